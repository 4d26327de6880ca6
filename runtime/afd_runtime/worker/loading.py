"""What both roles do first: open the checkpoint and agree on the wire format."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from afd_runtime.models.checkpoint import Checkpoint
from afd_runtime.models.registry import Family, family_of
from afd_runtime.models.shape import ModelShape
from afd_runtime.transport.round import WireFormat
from afd_runtime.worker.settings import Settings

log = logging.getLogger(__name__)


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[Checkpoint, Family, ModelShape]]:
    """The checkpoint, its family and its shape; says how long the block took. Raises ModelError."""
    torch.set_num_threads(settings.threads)
    began = time.monotonic()
    log.info("loading", extra={"path": settings.unit.model.path, "dtype": settings.dtype})
    with Checkpoint(settings.unit.model.path) as checkpoint:
        family = family_of(checkpoint)
        yield checkpoint, family, family.read_shape(checkpoint)
    log.info("loaded", extra={"seconds": f"{time.monotonic() - began:.1f}"})


def dtype_of(settings: Settings) -> torch.dtype:
    found = getattr(torch, settings.dtype)
    assert isinstance(found, torch.dtype)
    return found


def wire_format(settings: Settings, shape: ModelShape) -> WireFormat:
    """The same on every member of a unit; the handshake checks that."""
    return WireFormat(
        hidden=shape.hidden, top_k=shape.top_k, max_rows=settings.max_rows, dtype=dtype_of(settings)
    )
