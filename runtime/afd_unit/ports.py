"""Ports of a unit's processes. All containers of a pod share one address, so workers add their device."""

GATEWAY_HTTP = 8000
COORDINATOR_CONTROL = 7400
"""ZeroMQ ROUTER of the coordinator: workers and gateways connect here."""
COORDINATOR_HTTP = 7401
"""`/status` (authenticated), `/health`, `/ready`, `/metrics` of the coordinator."""

_WORKER_HTTP = 7410
_EXPERT_DATA = 7430


def worker_http(device: int) -> int:
    """Port of a worker's `/health`, `/ready` and `/metrics`."""
    return _WORKER_HTTP + device


def expert_data(device: int) -> int:
    """Port where an expert worker accepts dispatch and combine connections of the lanes."""
    return _EXPERT_DATA + device
