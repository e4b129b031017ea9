"""The verbs without a cache: nothing is ever found, all tokens are computed, slots come from a free list.

For: the oracle. An engine on this must give the same tokens as one on any cache, on the very same code path.
Assumes: one engine uses it.
Refuses to know: tokens.
On error: freeing a slot that is free already is a `RuntimeError`: it would give one slot to two owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hicache.engines.reference.span import NO_SLOT

NO_SLOTS = torch.empty(0, dtype=torch.int32)


class FreeList:
    """Slots that nobody owns."""

    def __init__(self, slots: int) -> None:
        self._free = list(range(slots - 1, -1, -1))
        self._is_free = [True] * slots

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int) -> Tensor | None:
        """`count` slots, or None where fewer are free."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        for slot in taken:
            self._is_free[slot] = False
        return torch.tensor(taken, dtype=torch.int32)

    def put(self, slots: Tensor) -> None:
        """Takes slots back."""
        for slot in slots.tolist():
            if self._is_free[slot]:
                raise RuntimeError(f"slot {slot} is freed twice")
            self._is_free[slot] = True
            self._free.append(slot)


class Uncached:
    """Free lists behind the cache's verbs: `slots` device slots of `page_size` tokens, and those of the
    window and state pools."""

    def __init__(self, slots: int, page_size: int, *, window_slots: int = 0, state_slots: int = 0) -> None:
        self.page_size = page_size
        self.slots = slots
        self._free = FreeList(slots)
        self._parts = {"window": FreeList(window_slots), "state": FreeList(state_slots)}

    @property
    def free_slots(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def free_part_slots(self, part: str) -> int:
        """The same of the pool "window" or "state"."""
        return len(self._parts[part])

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

    def decide(self, hit: UncachedHit, others: int) -> str:
        """There is nothing to wait for."""
        return "compute"

    def stepped(self, tokens: int, seconds: float, *, ahead: int) -> None:
        """Nobody wants to know."""

    def load(self, hits: list[UncachedHit]) -> UncachedLoad:
        """Nothing to copy."""
        return UncachedLoad()

    def allocate(self, pages: int) -> Tensor | None:
        """`pages` slots, or None where fewer are free."""
        return self._free.take(pages)

    def allocate_part(self, part: str, count: int) -> Tensor | None:
        """`count` slots of the pool "window" or "state", or None."""
        return self._parts[part].take(count)

    def insert(self, hit: UncachedHit, tokens: Tensor, slots: Tensor) -> UncachedDone:
        """The hit adopts whole pages and keeps them until its release; nobody else finds them."""
        pages = len(tokens) // self.page_size
        hit.slots = torch.cat([hit.slots, slots[:pages]])
        hit.length += pages * self.page_size
        return UncachedDone(slots=slots[:pages])

    def insert_parts(
        self, hit: UncachedHit, tokens: Tensor, slots: Tensor, parts: Mapping[str, Tensor]
    ) -> UncachedDone:
        """`insert`; windows and states stay with the request, which knows when they have passed."""
        done = self.insert(hit, tokens, slots)
        kept = {name: torch.full_like(given, NO_SLOT) for name, given in parts.items()}
        return UncachedDone(done.slots, parts=kept)

    def free(self, slots: Tensor) -> None:
        """Takes slots back."""
        self._free.put(slots)

    def free_part(self, part: str, slots: Tensor) -> None:
        """Takes slots of the pool "window" or "state" back."""
        self._parts[part].put(slots)


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
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    checkpoint_length: int | None = None

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
    parts: Mapping[str, Tensor] = field(default_factory=dict)
