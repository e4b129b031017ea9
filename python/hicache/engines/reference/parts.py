"""What one request has in the pools of windows and states, besides its pages of full attention.

    window page   0 .... first ............ end ............ pages
    table         | gone | has a slot       | not yet needed |
    freed by      |      | us, or nobody where the tree took it

    state         own      private: the state after the last token that was computed
                  source   where the next span starts from: the hit's checkpoint, then `own`
                  spare    for the next checkpoint, where there is room; the tree may take it with an insert

A page leaves the window when no later token sees any of it; what is freed then is enough for the pages that
follow, so that a request holds at most what `Needs` says at any time, what its hit pins included: whoever
waits for room waits for no one who waits. States are read from `source` and
written to `own` and `spare`: a checkpoint that others share is never advanced.

For: `path.py`, at the same places where it takes and gives slots of full attention.
Assumes: what a cache says of a hit: `parts["window"]` has a slot for each page that the window before
`hit.length` reaches, `parts["state"]` the one checkpoint at `hit.length` (see `verbs.HybridCache`).
Refuses to know: the model; bytes.
On error: no room is a value (False). A hit without the window or state that it promised is a `RuntimeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hicache.engines.reference.span import NO_SLOT, StateUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hicache.engines.reference.pools import Pools
    from hicache.engines.reference.verbs import HybridCache, HybridDone

STATES = 3  # slots of a request: its own, the checkpoint that its hit pins, and one for the next checkpoint


def reach(window: int) -> int:
    """Tokens that a hit needs before its end where a token sees `window` tokens, itself included. At least
    one: a cache's windows have some."""
    return max(window - 1, 1)


@dataclass(frozen=True, slots=True)
class Needs:
    """What any request needs at most of each pool at one time; `window` and `chunk` in tokens."""

    pools: Pools
    window: int
    chunk: int

    def of(self, kv_tokens: int) -> dict[str, int]:
        """Slots by pool for a request of so many tokens."""
        needs = {}
        if self.pools.window is not None:
            pages = self.pools.window.pages_for
            # Behind the hit's place, which is up to a page short of what is computed, the tokens of a step;
            # before it what a cache pins with it: the window, and a page more (an edge's beginning).
            step = pages(self.pools.window.page_size - 1 + self.chunk)
            needs["window"] = min(pages(kv_tokens), pages(reach(self.window)) + 1 + step)
        if self.pools.state is not None:
            needs["state"] = STATES
        return needs

    def lacking(self, total: Mapping[str, int]) -> str | None:
        """The pool that has fewer slots than `total` asks of it, said in words; None if none has."""
        sizes = {"window": self.pools.window, "state": self.pools.state}
        for name, count in total.items():
            pool = sizes[name]
            if pool is not None and count > pool.slots:
                return f"{count} slots of the {name} pool, which has {pool.slots}"
        return None


class Parts:
    """One request's slots in the window and state pools of a hybrid model."""

    def __init__(self, cache: HybridCache, needs: Needs, kv_tokens: int) -> None:
        self._cache = cache
        self._needs = needs
        self._page_size = needs.pools.kv.page_size
        self._pages = needs.pools.kv.pages_for(kv_tokens)
        self._reset()

    def _reset(self) -> None:
        self.window_table = torch.full((self._pages,), NO_SLOT, dtype=torch.int32)
        self._ours = torch.zeros(self._pages, dtype=torch.bool)
        self._first = self._end = 0
        self._own: int | None = None
        self._spare: int | None = None
        self._source: int | None = None
        self._held_at: int | None = None  # the boundary whose state the spare slot holds

    def take(self, hit: Any) -> bool:
        """Start behind a hit: its window, its checkpoint, and a slot for our own state. False: no room."""
        pools = self._needs.pools
        if pools.state is not None:
            slots = self._cache.allocate_part("state", 1)
            if slots is None:
                return False
            self._own = int(slots)
        if hit.length:
            self._start_behind(hit.length, hit.parts)
        return True

    def _start_behind(self, length: int, parts: Mapping[str, Tensor]) -> None:
        if self._needs.pools.window is not None:
            self._first, self._end = self._gone(length), length // self._page_size
            self.window_table[self._first : self._end] = parts["window"][self._first : self._end]
            if (self.window_table[self._first : self._end] == NO_SLOT).any():
                raise RuntimeError(f"a hit of {length} tokens has holes in the window before its end")
        if self._needs.pools.state is not None:
            (self._source,) = parts["state"].tolist()

    def reach(self, tokens: int) -> bool:
        """Window slots for all pages up to position `tokens`; False: no room now, try again later."""
        if self._needs.pools.state is not None and self._spare is None:
            # Without one there is no checkpoint this time.
            spare = self._cache.allocate_part("state", 1)
            self._spare = None if spare is None else int(spare)
        pool = self._needs.pools.window
        if pool is None or pool.pages_for(tokens) <= self._end:
            return True
        slots = self._cache.allocate_part("window", pool.pages_for(tokens) - self._end)
        if slots is None:
            return False
        end = self._end + len(slots)
        self.window_table[self._end : end] = slots
        self._ours[self._end : end] = True
        self._end = end
        return True

    def state_use(self, start: int, end: int) -> StateUse | None:
        """For a span: with a checkpoint at its last page boundary, if it has one."""
        if self._own is None:
            return None
        boundary = end // self._page_size * self._page_size
        checkpoint = None
        if self._spare is not None and boundary > start:
            checkpoint, self._held_at = (boundary, self._spare), boundary
        return StateUse(self._source, self._own, checkpoint)

    def computed(self) -> None:
        """The forward pass of a span is through."""
        self._source = self._own

    def insert(self, hit: Any, tokens: Tensor, slots: Tensor, first: int) -> HybridDone:
        """Insert whole pages from page `first` on, with their window slots and the checkpoint at their end.

        What the tree has of them is used from now on; where it has another request's page, ours is freed.
        """
        pages, given = slice(first, first + len(slots)), {}
        if self._needs.pools.window is not None:
            given["window"] = self.window_table[pages]
        if self._spare is not None and self._held_at == pages.stop * self._page_size:
            given["state"] = torch.tensor([self._spare], dtype=torch.int32)
        done = self._cache.insert_parts(hit, tokens, slots, given)
        if "window" in given:
            self._repoint(pages, done.parts["window"])
        if "state" in given and int(done.parts["state"]) == self._spare:
            self._spare = self._held_at = None
        return done

    def _repoint(self, pages: slice, kept: Tensor) -> None:
        mine, ours = self.window_table[pages].clone(), self._ours[pages]
        taken = (kept != NO_SLOT) & ours
        duplicates = mine[taken & (kept != mine)]
        self.window_table[pages] = torch.where(taken, kept, mine)
        self._ours[pages] = ours & ~taken
        self._cache.free_part("window", duplicates)

    def slide(self, computed: int) -> None:
        """Free what has left the window of the token at position `computed`, and of all after it."""
        if self._needs.pools.window is not None:
            self._drop(min(self._gone(computed), self._end))

    def _gone(self, position: int) -> int:
        """Pages before the first one that the token at a position sees."""
        return max(0, position - self._needs.window + 1) // self._page_size

    def _drop(self, until: int) -> None:
        if until <= self._first:
            return
        pages = slice(self._first, until)
        self._cache.free_part("window", self.window_table[pages][self._ours[pages]])
        self.window_table[pages] = NO_SLOT
        self._ours[pages] = False
        self._first = until

    def give_back(self) -> None:
        """Free all that is ours; the request may start anew afterwards."""
        self._drop(self._end)
        states = [slot for slot in (self._own, self._spare) if slot is not None]
        if states:
            self._cache.free_part("state", torch.tensor(states, dtype=torch.int32))
        self._reset()
