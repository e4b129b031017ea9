"""Pools: the engine's KV tensors, declared.

A pool's tensors have one row per token; the page in device slot `s` is rows `s * page_size` to
`(s + 1) * page_size`. All pools of a cache use the same slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hicache.config import text
from hicache.errors import ArgumentError
from hicache.tensors import planes


@dataclass(frozen=True)
class Pool:
    """A pool: its name, and the tensors of each layer in the order in which a layer has them (K, V)."""

    name: str
    layers: list[list[torch.Tensor]]

    @property
    def rows(self) -> int:
        """Tokens the pool has room for."""
        return int(self.layers[0][0].shape[0])

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.layers[0][0].device

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over all layers."""
        return sum(_row_bytes(tensor) for layer in self.layers for tensor in layer)

    def declaration(self) -> list[tuple[int, int, int]]:
        """(layer, role, bytes per token) of every tensor."""
        return [
            (layer, role, _row_bytes(tensor))
            for layer, tensors in enumerate(self.layers)
            for role, tensor in enumerate(tensors)
        ]

    def memory(self) -> list[tuple[int, int]]:
        """(address, bytes) of every tensor, in the same order."""
        return [
            (tensor.data_ptr(), tensor.numel() * tensor.element_size())
            for tensors in self.layers
            for tensor in tensors
        ]

    def description(self) -> str:
        """dtypes and shapes of a row, for the identity: equal sizes don't make equal contents."""
        return " ".join(
            f"{tensor.dtype}{tuple(tensor.shape[1:])}" for tensors in self.layers for tensor in tensors
        )


def mha(name: str, k_buffers: Any, v_buffers: Any) -> Pool:
    """K and V of every layer (MHA, GQA, MQA): sequences of L tensors, or tensors with L first.

    Each tensor: (rows, kv_heads, head_dim) or (rows, row_elements), any dtype, contiguous; all on the CPU or
    on one GPU. Heads of V may have another size than those of K.
    """
    k, v = _planes(name, "k_buffers", k_buffers), _planes(name, "v_buffers", v_buffers)
    if len(k) != len(v):
        raise ArgumentError(f"{name}.v_buffers: need {len(k)} layers like k_buffers, got {len(v)}")
    if k[0].shape[0] != v[0].shape[0]:
        raise ArgumentError(f"{name}.v_buffers: need {k[0].shape[0]} rows like K, got {v[0].shape[0]}")
    return Pool(name, [list(pair) for pair in zip(k, v, strict=True)])


def latent(name: str, buffers: Any) -> Pool:
    """One tensor per layer (MLA): a sequence of L tensors (rows, ...), or one tensor with L first."""
    return Pool(name, [[tensor] for tensor in _planes(name, "buffers", buffers)])


def gpu(pools: Sequence[Pool]) -> int | None:
    """The number of the GPU that all pools are on; None: the CPU reaches them."""
    devices = {tensor.device for pool in pools for layer in pool.layers for tensor in layer}
    if len(devices) > 1:
        raise ArgumentError(f"pools: all need one device, got {sorted(map(str, devices))}")
    device = devices.pop()
    return None if device.type == "cpu" else int(device.index or 0)


def device_slots(pools: Sequence[Pool], page_size: int) -> int:
    """Pages that every pool has room for: all the same."""
    if not isinstance(pools, Sequence) or not all(isinstance(pool, Pool) for pool in pools):
        raise ArgumentError(f"pools: need a list of pools, as hicache.pools makes them, got {pools!r}")
    if not pools:
        raise ArgumentError("pools: a cache needs at least one pool")
    slots = {pool.name: pool.rows // page_size for pool in pools}
    if len(set(slots.values())) > 1:
        raise ArgumentError(f"pools: all need the same number of pages, got {slots}")
    if slots[pools[0].name] < 1:
        raise ArgumentError(f"pools: no room for a page of {page_size} tokens in {pools[0].rows} rows")
    return slots[pools[0].name]


def _planes(pool: str, argument: str, buffers: Any) -> list[torch.Tensor]:
    name = f"{text('name', pool)}.{argument}"
    try:
        iter(buffers)
    except TypeError:
        kind = type(buffers).__name__
        raise ArgumentError(f"{name}: need tensors, one a layer, got {kind}") from None
    return planes(name, buffers)


def _row_bytes(tensor: torch.Tensor) -> int:
    return int(tensor[0].numel()) * tensor.element_size() if tensor.shape[0] else 0
