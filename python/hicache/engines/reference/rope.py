"""Rotary positions: of interleaved pairs (x0, x1), (x2, x3), ... or half-split ones (x0, x_{d/2}), ...

For: the model's queries and keys. The two forms are permutations of one another; weights of one form give
garbage in the other.
Assumes: an even head dimension (checked by `ModelConfig`).
Refuses to know: pages and sequences.
On error: an index error of torch for a position outside the table.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Rope:
    """Cosines and sines of every position, (max_positions, head_dim / 2), in the dtype of the activations."""

    def __init__(self, head_dim: int, base: float, max_positions: int, like: Tensor) -> None:
        # In float64 whatever the activations are: at position 8,000 a float32 angle is off by 5e-4.
        pairs = torch.arange(0, head_dim, 2, dtype=torch.float64)
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float64), base ** (-pairs / head_dim))
        self._cos = angles.cos().to(like)
        self._sin = angles.sin().to(like)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(cos, sin) for `positions` (n,) int64, each (n, 1, head_dim / 2): the 1 stands for all heads."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def turn(x: Tensor, cos: Tensor, sin: Tensor, *, half_split: bool = False) -> Tensor:
    """`x` (n, heads, head_dim) with every pair turned by its position's angle."""
    if half_split:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
