"""What a rack is made of, as plain values: domains x nodes x GPUs, and which of the nodes are real.

    domain 0    d0-n00  d0-n01  d0-n02 ... d0-n17       one NVL72: 18 nodes x 4 GPUs, one clique label
    domain 1    d1-n00  d1-n01  d1-n02 ... d1-n17
    beside it   cpu-0                                   no GPU, no taint: where the operator and DNS run

A *real* node is a kubelet with containers. A *hollow* node exists in the API only: kwok keeps it Ready and
says of its pods that they run. Both look the same to whoever reads labels, capacity and taints.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afd_unit import labels

HOLLOW = "kwok.x-k8s.io/node"
"""Annotation and taint key of a hollow node, with the value `fake`: kwok's own convention."""
NOT_READY = "rack.afd.dev/ready"
"""Annotation of a hollow node: its Ready condition says this ("False", "Unknown") instead of "True"."""
HOLD = "rack.afd.dev/hold"
"""Annotation of a pod: kwok leaves it Pending."""
CPU_NODE = "cpu-0"

GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-GB200",
    "nvidia.com/gpu.family": "blackwell",
    "nvidia.com/gpu.compute.major": "10",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.memory": "189471",
    "nvidia.com/mig.capable": "true",
}
"""What GPU Feature Discovery writes on a GB200 node beside count and clique. Memory is in MiB."""
GPU_TAINT = {"key": labels.GPU, "value": "present", "effect": "NoSchedule"}
HOLLOW_TAINT = {"key": HOLLOW, "value": "fake", "effect": "NoSchedule"}
HOLLOW_CAPACITY = {"cpu": "144", "memory": "882Gi", "pods": "110"}
"""A GB200 compute tray has two Grace CPUs of 72 cores and 480 GB each."""

_CLIQUES = uuid.UUID("6f1d1f6e-52a5-4c1e-9a06-5a6a1a7b3f10")


def clique(domain: int) -> str:
    """The clique label of a domain, `<cluster uuid>.<clique id>`: the same in every rack and run."""
    digest = uuid.uuid5(_CLIQUES, f"domain-{domain}").bytes
    return f"{uuid.UUID(bytes=digest, version=4)}.0"


@dataclass(frozen=True)
class Node:
    """One node. `domain` is None for the CPU node, `index` counts real nodes over the whole rack."""

    name: str
    domain: int | None
    gpus: int
    index: int | None = None

    @property
    def real(self) -> bool:
        return self.index is not None

    def labels(self) -> dict[str, str]:
        found = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "rack",
            "topology.kubernetes.io/zone": "rack-a",
        }
        if self.domain is not None:
            found |= GPU_LABELS | {labels.CLIQUE: clique(self.domain), "nvidia.com/gpu.count": str(self.gpus)}
        return found

    def manifest(self) -> dict[str, Any]:
        """The Node object as the rack creates it, before anything keeps it Ready."""
        metadata: dict[str, Any] = {"name": self.name, "labels": self.labels()}
        taints = [GPU_TAINT] if self.gpus else []
        status: dict[str, Any] = {}
        if not self.real:
            metadata["annotations"] = {HOLLOW: "fake"}
            if self.domain is not None:
                taints = [*taints, HOLLOW_TAINT]
            amounts = HOLLOW_CAPACITY | self.gpu_capacity()
            status = {"capacity": amounts, "allocatable": amounts}
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": metadata,
            "spec": {"taints": taints}, "status": status,
        }  # fmt: skip

    def gpu_capacity(self) -> dict[str, str]:
        return {labels.GPU: str(self.gpus)} if self.gpus else {}


@dataclass(frozen=True, kw_only=True)
class RackSpec:
    """`real`: how many nodes of domain 0 are real, or of each. Raises ValueError if they do not fit."""

    domains: int = 1
    nodes: int = 4
    gpus: int = 4
    real: int | Mapping[int, int] = 0
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Of API server, controller manager, scheduler and kubelets."""
    runtime_config: tuple[str, ...] = ()
    """API groups beyond the defaults, such as `scheduling.k8s.io/v1beta1=true`."""

    def __post_init__(self) -> None:
        if self.domains < 0 or self.nodes < 1 or self.gpus < 1:
            raise ValueError(f"a rack of {self.domains} domains x {self.nodes} nodes x {self.gpus} GPUs")
        for domain, count in self.real_by_domain.items():
            if not 0 <= domain < self.domains or not 0 <= count <= self.nodes:
                raise ValueError(
                    f"{count} real nodes in domain {domain}, of {self.domains} domains x {self.nodes} nodes"
                )

    @property
    def real_by_domain(self) -> dict[int, int]:
        if isinstance(self.real, int):
            return {0: self.real} if self.real else {}
        return dict(self.real)

    @property
    def has_real_nodes(self) -> bool:
        return any(self.real_by_domain.values())

    def all_nodes(self) -> tuple[Node, ...]:
        """The CPU node (real if any node is), then domain by domain, real ones first."""
        real = iter(range(self.domains * self.nodes + 1))
        found = [Node(CPU_NODE, None, 0, next(real) if self.has_real_nodes else None)]
        for domain in range(self.domains):
            for position in range(self.nodes):
                is_real = position < self.real_by_domain.get(domain, 0)
                name = f"d{domain}-n{position:02d}"
                found.append(Node(name, domain, self.gpus, next(real) if is_real else None))
        return tuple(found)
