"""Who is who inside a unit.

    deployment/unit            demo/0
      role                     attention | expert | coordinator | gateway
        pod index              which node-sized pod of the role       demo-0-attn-3
          device               which GPU of that pod                  container `gpu-2`
            member index       pod index * gpus_per_node + device     14

A *member* is stable: it is the place in the unit, given by the pod. One life of the process that
fills the place is an *incarnation* (a random 64-bit number, the runtime's business).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """The four processes of a unit (protocol: parties and channels)."""

    ATTENTION = "attention"
    EXPERT = "expert"
    COORDINATOR = "coordinator"
    GATEWAY = "gateway"


class Member(msgspec.Struct, frozen=True, order=True):
    """The stable identity (unit, role, index) of a worker. `index` counts GPUs, not nodes."""

    unit: int
    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.unit}/{self.role}/{self.index}"


def member_index(pod_index: int, device: int, gpus_per_node: int) -> int:
    """The member index of GPU `device` of pod `pod_index`; raises ValueError for a GPU the pod lacks."""
    if not 0 <= device < gpus_per_node:
        raise ValueError(f"device {device} is not one of the {gpus_per_node} GPUs of a pod")
    return pod_index * gpus_per_node + device


def pod_of(index: int, gpus_per_node: int) -> tuple[int, int]:
    """The (pod index, device) of a member index: the mirror image of `member_index`."""
    return divmod(index, gpus_per_node)
