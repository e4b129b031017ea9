"""The verbs without a cache: nothing is ever found, all tokens are computed, slots come from a free list.

For: the oracle. An engine on this must give the same tokens as one on any cache, on the very same code path.
Assumes: one engine uses it.
Refuses to know: tokens.
On error: freeing a slot that is free already is a `RuntimeError`: it would give one slot to two owners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

NO_SLOTS = torch.empty(0, dtype=torch.int32)


class Uncached:
    """A free list of `slots` device slots of `page_size` tokens behind the cache's verbs."""

    def __init__(self, slots: int, page_size: int) -> None:
        self.page_size = page_size
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._is_free = [True] * slots

    @property
    def free_slots(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def match_prefix(
        self, tokens: Tensor, namespace: Any = None, *, limit: int | None = None, at: float | None = None
    ) -> UncachedHit:
        """Finds nothing."""
        return UncachedHit(self)

    def prefetch(self, hit: UncachedHit) -> bool:
        """There is no storage to ask."""
        return False

    def poll(self) -> None:
        """Nothing is ever under way."""

    def load(self, hits: list[UncachedHit]) -> UncachedLoad:
        """Nothing to copy."""
        return UncachedLoad()

    def allocate(self, pages: int) -> Tensor | None:
        """`pages` slots, or None where fewer are free."""
        if pages > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(pages)]
        for slot in taken:
            self._is_free[slot] = False
        return torch.tensor(taken, dtype=torch.int32)

    def insert(self, hit: UncachedHit, tokens: Tensor, slots: Tensor) -> UncachedDone:
        """The hit adopts whole pages and keeps them until its release; nobody else finds them."""
        pages = len(tokens) // self.page_size
        hit.slots = torch.cat([hit.slots, slots[:pages]])
        hit.length += pages * self.page_size
        return UncachedDone(slots=slots[:pages])

    def free(self, slots: Tensor) -> None:
        """Takes slots back."""
        for slot in slots.tolist():
            if self._is_free[slot]:
                raise RuntimeError(f"slot {slot} is freed twice")
            self._is_free[slot] = True
            self._free.append(slot)


@dataclass(slots=True)
class UncachedHit:
    """An empty hit that grows with the request's own pages."""

    owner: Uncached
    device_length: int = 0
    waiting: bool = False
    storage_length: int = 0
    length: int = 0
    loaded_length: int = 0
    slots: Tensor = field(default_factory=lambda: NO_SLOTS)

    def release(self, generated: int = 0) -> None:
        """Gives the request's pages back."""
        self.owner.free(self.slots)


@dataclass(frozen=True, slots=True)
class UncachedLoad:
    """Always ready."""

    def wait_layer(self, layer: int) -> None:
        """Returns at once."""


@dataclass(frozen=True, slots=True)
class UncachedDone:
    """All pages adopted, none was there before."""

    slots: Tensor
    duplicates: Tensor = field(default_factory=lambda: NO_SLOTS)
