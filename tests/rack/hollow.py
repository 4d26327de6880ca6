"""Hollow nodes: kwok keeps them Ready and says that their pods run (`stages.yaml` says what exactly)."""

from __future__ import annotations

from pathlib import Path

from tests.rack.addresses import HOLLOW_NODE, HOLLOW_PODS
from tests.rack.binaries import Binaries
from tests.rack.controlplane import NODE_LEASE_S
from tests.rack.spec import HOLLOW

STAGES = Path(__file__).with_name("stages.yaml")


def command(enter: tuple[str, ...], binaries: Binaries, kubeconfig: Path) -> list[str]:
    return [
        *enter,
        binaries["kwok"],
        f"--kubeconfig={kubeconfig}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={HOLLOW}=fake",
        f"--node-lease-duration-seconds={NODE_LEASE_S}",
        f"--cidr={HOLLOW_PODS}",
        f"--node-ip={HOLLOW_NODE}",
        "--v=WARN",
    ]
