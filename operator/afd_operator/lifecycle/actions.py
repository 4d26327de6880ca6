"""What the operator can do to a cluster. Each action is one write, and repeating one does no harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afd_operator.placement.reservation import Holder, Reservation

Json = dict[str, Any]


@dataclass(frozen=True)
class Reserve:
    """Take a domain for a unit. Fails if somebody else has it, and then nothing after it is done."""

    topology_key: str
    domain: str
    holder: Holder


@dataclass(frozen=True)
class Release:
    """The mirror image of `Reserve`: give back exactly this record."""

    reservation: Reservation


@dataclass(frozen=True)
class CreatePod:
    """A pod of a unit, born with our gate."""

    manifest: Json


@dataclass(frozen=True)
class DeletePod:
    """The mirror image of `CreatePod`. `why` is for the log."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True)
class LiftGate:
    """Let the scheduler bind the pod: removes our gate and leaves those of others."""

    name: str
    uid: str


@dataclass(frozen=True)
class Apply:
    """Server-side apply of a child that can be changed in place."""

    manifest: Json


@dataclass(frozen=True)
class Delete:
    """The mirror image of `Apply`."""

    kind: str
    name: str
    uid: str


Action = Reserve | Release | CreatePod | DeletePod | LiftGate | Apply | Delete


def in_order(actions: list[Action]) -> tuple[Action, ...]:
    """The order in which a plan's actions are done, stable within a step.

    What goes, goes first, so that its domain and its nodes are there for what comes. A domain is taken
    before anything is made in it. What pods refer to (the account, Services) comes before the pods.
    """
    return tuple(sorted(actions, key=_step))


def _step(action: Action) -> int:
    match action:
        case Delete() | DeletePod():
            return 0
        case Release():
            return 1
        case Reserve():
            return 2
        case Apply():
            return 3
        case CreatePod():
            return 4
        case LiftGate():
            return 5
