"""How a deployment looks to Kubernetes: every child as a plain dict, a pure function of (spec, choice).

    ServiceAccount                                    account     who its processes are
    Service per unit, Service of all coordinators,
    Service for clients                               services    how they find one another
    Pod per node and role, Pod of the coordinator     pods        what runs, gated, in one domain
    ConfigMap per unit                                unit_config the file that starts a unit
    Deployment                                        gateway     the HTTP front

All children are owned by their AFDDeployment, so deleting it deletes them; all pods pass Pod Security
`restricted`. `drift` tells a child that is as it should be from one that is not.
"""
