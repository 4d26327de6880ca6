"""The structs of csrc/types.cuh as ctypes: the same fields in the same order, sizes checked on both sides."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64

TENSOR_MAP_BYTES = 128
LAYER_BYTES = 384
SLOT_BYTES = 896
CLOSED = 0x8000_0000
"""Tickets from here on mean that a run is over (claim.cuh)."""

FAULTS = {1: "activations of the first operation"}


class QueueView(ctypes.Structure):
    _fields_ = (
        ("ready", c_uint64),
        ("done", c_uint64),
        ("layer", c_uint64),
        ("extent", c_uint64),
        ("arrived", c_uint64),
        ("finished", c_uint64),
        ("slot", c_uint64),
        ("slots", c_uint32),
        ("scale_stride", c_uint32),
    )


class Control(ctypes.Structure):
    _fields_ = (
        ("budget", c_uint32),
        ("stop", c_uint32),
        ("fault", c_uint32),
        ("fault_queue", c_uint32),
        ("fault_slot", c_uint32),
        ("fault_expert", c_uint32),
        ("fault_seen", c_uint32),
        ("fault_wanted", c_uint32),
        ("timeout_ns", c_uint64),
        ("fault_block", c_uint32),
        ("reserved", c_uint32),
    )


class Params(ctypes.Structure):
    _fields_ = (
        ("queue", QueueView * 2),
        ("layers", c_uint64),
        ("control", c_uint64),
        ("parked", c_uint64),
        ("log", c_uint64),
        ("claimed_ns", c_uint64),
        ("experts", c_uint32),
        ("hidden", c_uint32),
        ("intermediate", c_uint32),
        ("chunk", c_uint32),
        ("group", c_uint32),
        ("log_runs", c_uint32),
        ("log_units", c_uint32),
        ("padding", c_uint32),
    )


class Traffic(ctypes.Structure):
    _fields_ = (
        ("queue", QueueView * 2),
        ("control", c_uint64),
        ("gap_cycles", c_uint64),
        ("latency_cycles", c_uint64),
        ("claim_ns", c_uint64),
        ("claimed_ns", c_uint64),
        ("window", c_uint64),
        ("decode_runs", c_uint32),
        ("prefill_runs", c_uint32),
        ("layers", c_uint32),
        ("feed_prefill", c_uint32),
    )


SIZES = {QueueView: 64, Control: 48, Params: 200, Traffic: 192}
"""What the static_asserts in csrc/ say."""


def address(struct: ctypes.Structure) -> int:
    return ctypes.addressof(struct)
