"""AFDDeployments for tests, made by the parser that the operator uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.load import parse

Json = dict[str, Any]


def body(
    name: str = "demo",
    namespace: str = "prod",
    *,
    uid: str | None = None,
    generation: int = 1,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """An AFDDeployment as the API server shows it: 1 + 1 nodes of 2 GPUs unless said otherwise."""
    base: Json = {
        "model": {"id": "tiny", "source": "pvc://models/tiny"},
        "ratio": {"attention": 1, "expert": 1},
        "placement": {"gpusPerNode": 2},
        "runtime": {"image": "registry.example/afd:1"},
    }
    return {
        "apiVersion": "afd.dev/v1alpha1",
        "kind": "AFDDeployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name[:40]}",
            "generation": generation,
        },
        "spec": _merged(base, spec),
        "status": status or {},
    }


def deployment(name: str = "demo", namespace: str = "prod", **spec: Any) -> AFDDeployment:
    return parse(body(name, namespace, **spec))


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
