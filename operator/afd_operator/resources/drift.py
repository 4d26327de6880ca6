"""Whether a child is as it should be: told from what the API server shows, without asking it to write.

A server-side apply that changes nothing is a write request all the same, so we look first. A child is
right if it carries the fingerprint of its manifest (nothing that we wanted has changed since we applied
it) and holds every field of it (nobody has changed a field since). Fields that others or the API
server's defaults add are not ours to judge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from afd_unit import labels

Json = dict[str, Any]

_MERGE_KEYS = ("name", "mountPath", "uid")
"""Merge keys of containers, variables, ports and volumes; of mounts; of owner references."""

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


def stamped(manifest: Json) -> Json:
    """The manifest with its fingerprint as an annotation."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), labels.FINGERPRINT: fingerprint}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def as_wanted(observed: Mapping[str, Any] | None, stamped_manifest: Json) -> bool:
    """True if applying the manifest (from `stamped`) would change nothing."""
    return observed is not None and _holds(observed, stamped_manifest)


def _holds(observed: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if not isinstance(observed, Mapping):
            return not wanted and observed is None
        return all(_holds(observed.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return _holds_items(observed or (), wanted)
    if observed is None:
        # The API server leaves out zero values: "", 0, false, null.
        return not wanted
    return bool(observed == wanted) or _same_amount(observed, wanted)


def _holds_items(observed: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Lists whose items have an identity are merged by it, and may hold items of others (a sidecar that
    was injected, a variable that `kubectl set env` added); all others are one value."""
    for key in _MERGE_KEYS:
        if wanted and all(isinstance(item, Mapping) and key in item for item in wanted):
            found = {item.get(key): item for item in observed}
            return all(_holds(found.get(item[key]), item) for item in wanted)
    return len(observed) == len(wanted) and all(map(_holds, observed, wanted))


def _same_amount(one: Any, other: Any) -> bool:
    """Quantities are stored in a canonical form: 1000m comes back as 1."""
    try:
        return _amount(one) == _amount(other)
    except InvalidOperation:
        return False


def _amount(quantity: Any) -> Decimal:
    text = str(quantity)
    for length in (2, 1):
        if text[-length:] in _SUFFIXES:
            return Decimal(text[:-length]) * _SUFFIXES[text[-length:]]
    return Decimal(text)
