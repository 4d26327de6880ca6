"""AFDDeployment, `afd.dev/v1alpha1`: the pydantic models ARE the API.

    spec parts      serving      model, SLO, workload            what is served and how well
                    shape        units, M:N ratio, SM budget     how much of what
                    placement    domains, nodes, scheduler       where
                    policies     scaling, failures, updates      what happens over time
                    runtime      images, gateway, pod template   with which containers
    spec            the parts together, and the rules between them
    status          what the operator reports; `conditions` its conditions
    deployment      the whole object
    load            `parse`: a dict from the API server -> AFDDeployment, or an error with field paths
    unsupported     what of a spec this version does not act on yet
    schema, crd     the structural schema, and the CRD around it (`afd crd`)
    reference       docs/api.md

Every rule between fields is written down once (`rules.Rule`), as the CEL expression that the API
server checks and the Python predicate that `parse` checks again, because a stored object may be older
than a rule. A test holds the two together.
"""
