"""What users may add to the pods of a unit: a typed part of a PodTemplateSpec.

The operator's own part of a pod (names, gate, domain, GPUs, security context, probes, commands) is what makes
a unit whole, so it cannot be reached from here: there is no field for it, and names that would collide are
refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel, UpstreamModel, bounded_map, list_map
from afd_operator.api.rules import Rule
from afd_operator.api.scalars import LabelName, LabelValue, Quantity, SubdomainName
from afd_unit import labels
from afd_unit.environment import TUNING

RESERVED_ENV = "AFD_"
"""Prefix of the environment variables by which a process learns who it is (`afd_unit.unitfile`)."""
RESERVED_VOLUMES = "afd-"
"""Prefix of the operator's own volumes."""
RESERVED_MOUNTS = ("/etc/afd", "/var/run/secrets/afd", "/model")
"""Folders under which the operator mounts the unit file, tokens and the checkpoint."""
RESERVED_LABELS = f"{labels.GROUP}/"

HOSTNAME = "kubernetes.io/hostname"


def _reserved_mount(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in RESERVED_MOUNTS)


class ContainerName(StrEnum):
    """Which containers an entry applies to."""

    WORKER = "worker"
    """Each GPU's container of every attention and expert pod."""
    COORDINATOR = "coordinator"
    GATEWAY = "gateway"


class EnvVar(UpstreamModel):
    """One environment variable (core/v1 EnvVar)."""

    rules = (
        Rule(
            cel=f"!self.name.startsWith('{RESERVED_ENV}') || self.name in {list(TUNING)}",
            holds=lambda e: not e.name.startswith(RESERVED_ENV) or e.name in TUNING,
            field="name",
            message=f"must not begin with {RESERVED_ENV} (these say who a process is, and are the operator's),"
            f" but for {', '.join(TUNING)}",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^=\s]+$")]
    """Name of the variable. `value` or `valueFrom` beside it are passed on as they are."""


class EnvFromSource(UpstreamModel):
    """All keys of a ConfigMap or Secret as environment variables (core/v1 EnvFromSource)."""

    prefix: Annotated[str, Field(max_length=253)] = ""
    """Put before each key. `configMapRef` or `secretRef` beside it are passed on as they are."""


class VolumeMount(UpstreamModel):
    """One mount of a volume (core/v1 VolumeMount)."""

    rules = (
        Rule(
            cel=" && ".join(
                f"self.mountPath != '{root}' && !self.mountPath.startsWith('{root}/')"
                for root in RESERVED_MOUNTS
            ),
            holds=lambda m: not _reserved_mount(m.mount_path),
            field="mountPath",
            message=f"must not be in {', '.join(RESERVED_MOUNTS)}: the operator mounts its own volumes there",
        ),
    )

    name: LabelName
    """Name of one of `volumes`."""

    mount_path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^:]*$")]
    """Where it is mounted. `readOnly`, `subPath` and others beside it are passed on as they are."""


class Resources(ApiModel):
    """Requests and limits of one container. GPUs are the operator's to ask for: one per worker."""

    rules = (
        Rule(
            cel=f"!has(self.requests) || !('{labels.GPU}' in self.requests)",
            holds=lambda r: labels.GPU not in r.requests,
            field="requests",
            message=f"must not name {labels.GPU}: each worker gets one GPU, see placement.gpusPerNode",
        ),
        Rule(
            cel=f"!has(self.limits) || !('{labels.GPU}' in self.limits)",
            holds=lambda r: labels.GPU not in r.limits,
            field="limits",
            message=f"must not name {labels.GPU}: each worker gets one GPU, see placement.gpusPerNode",
        ),
    )

    requests: Annotated[dict[str, Quantity], bounded_map(max_items=16)] = {}
    """What the node must have free, by resource name."""

    limits: Annotated[dict[str, Quantity], bounded_map(max_items=16)] = {}
    """What the container may use at most, by resource name."""


class Container(ApiModel):
    """Additions to the containers of one kind."""

    name: ContainerName
    """Which containers: `worker` (every GPU's, attention and expert), `coordinator` or `gateway`."""

    env: Annotated[list[EnvVar], list_map("name", max_items=128)] = []
    """More environment variables."""

    env_from: Annotated[list[EnvFromSource], Field(max_length=16)] = []
    """ConfigMaps and Secrets whose keys become environment variables."""

    volume_mounts: Annotated[list[VolumeMount], list_map("mountPath", max_items=32)] = []
    """Mounts of `volumes`."""

    resources: Resources = Resources()
    """Requests and limits, instead of the operator's defaults where given."""


class Volume(UpstreamModel):
    """One volume (core/v1 Volume)."""

    rules = (
        Rule(
            cel=f"!self.name.startsWith('{RESERVED_VOLUMES}')",
            holds=lambda v: not v.name.startswith(RESERVED_VOLUMES),
            field="name",
            message=f"must not begin with {RESERVED_VOLUMES}: these are the operator's own volumes",
        ),
    )

    name: LabelName
    """Name by which mounts refer to it. The source beside it (`emptyDir`, `configMap`, ...) is passed on."""


class TolerationOperator(StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """One toleration of a taint (core/v1 Toleration)."""

    rules = (
        Rule(
            cel="self.operator == 'Equal' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator is TolerationOperator.EQUAL or not t.value,
            field="value",
            message="must be left out when operator is Exists",
        ),
        Rule(
            cel="self.operator == 'Exists' || (has(self.key) && self.key != '')",
            holds=lambda t: t.operator is TolerationOperator.EXISTS or bool(t.key),
            field="key",
            message="is required unless operator is Exists",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            holds=lambda t: t.toleration_seconds is None or t.effect is TaintEffect.NO_EXECUTE,
            field="tolerationSeconds",
            message="needs effect NoExecute",
        ),
    )

    key: Annotated[str, Field(max_length=317)] | None = None
    """Key of the taint; absent, with operator `Exists`: every taint."""

    operator: TolerationOperator = TolerationOperator.EQUAL
    """How the taint's value is compared."""

    value: LabelValue | None = None
    """Value of the taint, for `Equal`."""

    effect: TaintEffect | None = None
    """Effect of the taint; absent: every effect."""

    toleration_seconds: Annotated[int, Field(ge=0, le=2_147_483_647)] | None = None
    """How long a `NoExecute` taint is tolerated; absent: for ever."""


class SecretReference(ApiModel):
    """A Secret in the same namespace."""

    name: SubdomainName
    """Name of the Secret."""


class TemplateMetadata(ApiModel):
    """Labels and annotations to add to pods."""

    rules = (
        Rule(
            cel=f"!has(self.labels) || !self.labels.exists(k, k.startsWith('{RESERVED_LABELS}'))",
            holds=lambda m: not any(key.startswith(RESERVED_LABELS) for key in m.labels),
            field="labels",
            message=f"must not be under {RESERVED_LABELS}: the operator finds its pods by these",
        ),
        Rule(
            cel=f"!has(self.labels) || !('{labels.MANAGED_BY}' in self.labels)",
            holds=lambda m: labels.MANAGED_BY not in m.labels,
            field="labels",
            message=f"must not set {labels.MANAGED_BY}: the operator finds its pods by it",
        ),
        Rule(
            cel=f"!has(self.annotations) || !self.annotations.exists(k, k.startsWith('{RESERVED_LABELS}'))",
            holds=lambda m: not any(key.startswith(RESERVED_LABELS) for key in m.annotations),
            field="annotations",
            message=f"must not be under {RESERVED_LABELS}: these are the operator's",
        ),
    )

    labels: Annotated[dict[str, LabelValue], bounded_map(max_items=32)] = {}
    """Labels to add."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], bounded_map(max_items=32)] = {}
    """Annotations to add."""


class TemplateSpec(ApiModel):
    """What to add to the spec of pods."""

    rules = (
        Rule(
            cel=f"!has(self.nodeSelector) || !('{HOSTNAME}' in self.nodeSelector)",
            holds=lambda s: HOSTNAME not in s.node_selector,
            field="nodeSelector",
            message=f"must not name {HOSTNAME}: the pods of a unit run on different nodes",
        ),
        Rule(
            cel="!has(self.containers) || self.containers.all(c, !has(c.volumeMounts) || "
            "c.volumeMounts.all(m, has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
            holds=lambda s: (
                {mount.name for container in s.containers for mount in container.volume_mounts}
                <= {volume.name for volume in s.volumes}
            ),
            field="containers",
            message="must mount only what is listed in volumes",
        ),
    )

    containers: Annotated[list[Container], list_map("name", max_items=3)] = []
    """Additions by kind of container."""

    volumes: Annotated[list[Volume], list_map("name", max_items=32)] = []
    """Volumes to add to every pod. Pods are `restricted`: hostPath is refused where that is enforced."""

    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Taints that the pods tolerate, like that of GPU nodes."""

    node_selector: Annotated[dict[str, LabelValue], bounded_map(max_items=32)] = {}
    """Labels that the nodes of all pods must have. Not for choosing domains: see placement.domainSelector."""

    image_pull_secrets: Annotated[list[SecretReference], list_map("name", max_items=16)] = []
    """Secrets for pulling `runtime.image`."""

    priority_class_name: SubdomainName | None = None
    """PriorityClass of the pods."""

    runtime_class_name: SubdomainName | None = None
    """RuntimeClass of the pods, like `nvidia`."""

    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long a worker may take to hand over its requests before it is killed."""


class PodTemplate(ApiModel):
    """Additions to the pods of a unit and of the gateway."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations to add."""

    spec: TemplateSpec = TemplateSpec()
    """What to add to the spec of pods."""
