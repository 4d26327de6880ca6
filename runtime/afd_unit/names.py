"""Names of a deployment's children, one function for each, legal for every legal deployment name.

A custom resource may be called anything a DNS subdomain allows: 253 characters, dots, a leading
digit. A pod's hostname, a label value and a Service allow 63, without dots, a Service must begin
with a letter. `stem` maps the one into the other: it keeps names that already fit, and otherwise
shortens and adds 8 hex digits of the full name's SHA-256. A name that looks like another
deployment's child (`demo-coords`, `demo-0-coord`) or like a stem made so gets digits too, so that two
deployments of a namespace never meet in one Service.

    demo                 -> demo               demo-0-attn-3, demo-0-coord, demo-gateway
    qwen3.235b.prod      -> qwen3-235b-prod-e7958575
    demo-coords          -> demo-coords-d36c7d0f
"""

from __future__ import annotations

import hashlib
import re

from afd_unit.identity import Role

MAX_LABEL = 63
"""Longest DNS label (RFC 1123), hence pod hostname, Service name and label value."""

LONGEST_SUFFIX = len("-999-attn-9999")
MAX_STEM = MAX_LABEL - LONGEST_SUFFIX

_PLAIN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TAKEN = re.compile(r".*-(coords|[0-9]+-coord|[0-9a-f]{8})")
"""Names that this module itself makes for Services of other deployments."""
_POD_ROLE = {Role.ATTENTION: "attn", Role.EXPERT: "exp"}


def stem(deployment: str) -> str:
    """The prefix of every child's name: at most `MAX_STEM` characters, a legal Service name."""
    if len(deployment) <= MAX_STEM and _PLAIN.fullmatch(deployment) and not _TAKEN.fullmatch(deployment):
        return deployment
    digest = hashlib.sha256(deployment.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "-", deployment).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"afd-{plain}"
    return f"{plain[: MAX_STEM - 9].rstrip('-')}-{digest}"


def unit(deployment: str, unit_index: int) -> str:
    """Name of what belongs to one unit as a whole: its ConfigMap and its ComputeDomain."""
    return f"{stem(deployment)}-{unit_index}"


def pod(deployment: str, unit_index: int, role: Role, pod_index: int) -> str:
    """Name of the attention or expert pod `pod_index`; raises KeyError for other roles."""
    return f"{unit(deployment, unit_index)}-{_POD_ROLE[role]}-{pod_index}"


def coordinator(deployment: str, unit_index: int) -> str:
    """Name of the coordinator's pod, and of the Service by which its workers find it."""
    return f"{unit(deployment, unit_index)}-coord"


def gateway(deployment: str) -> str:
    """Name of the gateway's Deployment."""
    return f"{stem(deployment)}-gateway"


def service(deployment: str) -> str:
    """Name of the Service that clients talk to, and of the runtime pods' ServiceAccount."""
    return stem(deployment)


def coordinators(deployment: str) -> str:
    """Name of the headless Service whose addresses are the coordinators of all units."""
    return f"{stem(deployment)}-coords"


def container(device: int) -> str:
    """Name of the container that runs the worker of GPU `device` in an attention or expert pod."""
    return f"gpu-{device}"
