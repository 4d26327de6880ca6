"""The revision of a unit: a hash of everything in a spec that its pods are made from.

Pods of one unit always carry the same revision; a unit whose pods carry another than the spec's is
replaced as a whole. The hash is over what the user wrote, without values that equal the defaults, and
not over the finished pods: a new version of the operator that shapes pods a little differently, or of
the API that has one more field, must not restart every unit of a cluster (as in ai-dynamo/grove#709).
"""

from __future__ import annotations

import hashlib
import json

from afd_operator.api.pod_template import ContainerName
from afd_operator.api.spec import AFDDeploymentSpec

PODS_FORMAT = 1
"""Raised when pods of an older operator and of this one cannot work together in one unit."""


def revision(spec: AFDDeploymentSpec) -> str:
    """10 hex digits. Equal for two specs exactly if a unit of one is as good as a unit of the other.

    Not in it: `units` and what decides where a unit goes (selectors, spares), which a running unit need
    not be restarted for, and all that concerns gateways only.
    """
    placement, runtime = spec.placement, spec.runtime
    template = runtime.pod_template
    containers = [c for c in template.spec.containers if c.name is not ContainerName.GATEWAY]
    template = template.model_copy(
        update={"spec": template.spec.model_copy(update={"containers": containers})}
    )
    parts = {
        "format": PODS_FORMAT,
        "model": spec.model.model_dump(mode="json", exclude_defaults=True),
        "attention": spec.ratio.attention,
        "expert": spec.ratio.expert,
        "microbatches": spec.microbatches,
        "topologyKey": placement.topology_key,
        "gpusPerNode": placement.gpus_per_node,
        "schedulerName": placement.scheduler.name,
        "image": runtime.image,
        "imagePullPolicy": runtime.image_pull_policy,
        "podTemplate": template.model_dump(mode="json", exclude_defaults=True),
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
