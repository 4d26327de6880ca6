"""Label, annotation and gate keys that the operator writes and others select by."""

GROUP = "afd.dev"

DEPLOYMENT = f"{GROUP}/deployment"
"""`names.stem` of the AFDDeployment (a label value holds 63 characters, a name 253)."""
DEPLOYMENT_UID = f"{GROUP}/deployment-uid"
UNIT = f"{GROUP}/unit"
ROLE = f"{GROUP}/role"
INDEX = f"{GROUP}/index"

DEPLOYMENT_NAME = f"{GROUP}/deployment-name"
"""Annotation: the AFDDeployment's full name."""
REVISION = f"{GROUP}/revision"
"""Annotation: hash of what a pod was made from. Pods of one unit always carry the same one."""

FINGERPRINT = f"{GROUP}/fingerprint"
"""Annotation: hash of the manifest that the operator applied last."""

DOMAIN = f"{GROUP}/domain"
"""Annotation: the NVLink domain of a unit's pods and of a reservation (a value of the topology label)."""
TOPOLOGY_KEY = f"{GROUP}/topology-key"
"""Annotation of a reservation: the node label whose value names the domain."""
RESERVATION = f"{GROUP}/reservation"
"""Label of the Leases that reserve domains; its value is `domain`."""

PLACEMENT_GATE = f"{GROUP}/placement"
"""The scheduling gate that a unit's pods are born with. Only this one is ever lifted by us."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "afd-operator"

CLIQUE = "nvidia.com/gpu.clique"
"""NVLink domain of a node, `<cluster uuid>.<clique id>`; set by GPU Feature Discovery."""
GPU = "nvidia.com/gpu"

TOKEN_AUDIENCE = "afd"
"""Audience of the projected ServiceAccount tokens by which a unit's parties prove who they are."""
