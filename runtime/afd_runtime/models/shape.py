"""The numbers of a model that lanes, expert workers and buffers are sized by, whatever its family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Counts and widths. `moe_layers` are the layers with routed experts, hence with rounds."""

    layers: int
    hidden: int
    vocab: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    moe_layers: tuple[int, ...]
    max_position: int
    """Most positions that the checkpoint was made for."""
    eos_token_ids: tuple[int, ...]

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of keys and values that one token keeps over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_bytes
