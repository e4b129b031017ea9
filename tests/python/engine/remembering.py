"""Device-only caches for hybrids, as simple as can be: every page is remembered in a dictionary, and evicted
only when a test says so, or (`Evicting`) where windows or states find no room. A prefix is usable where all
pages, the last windows, and the state are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hicache.engines.reference import Pools
from hicache.engines.reference.uncached import NO_SLOTS, Uncached, UncachedDone, UncachedHit


@dataclass
class Page:
    """Slots of one page; -1 for a hole."""

    kv: int
    window: int = -1
    state: int = -1


class RememberedHit(UncachedHit):
    """The tree's pages are not its own to free."""

    key: tuple[int, ...] = ()

    def release(self, generated: int = 0) -> None:
        pass


class Remembering(Uncached):
    """`window`: pages that a match needs before its end; None without sliding windows."""

    def __init__(self, pools: Pools, window: int | None) -> None:
        super().__init__(
            pools.kv.slots,
            pools.kv.page_size,
            window_slots=0 if pools.window is None else pools.window.slots,
            state_slots=0 if pools.state is None else pools.state.slots,
        )
        self.part_sizes = {part: self.free_part_slots(part) for part in ("window", "state")}
        self.window = window
        self.stateful = pools.state is not None
        self.pages: dict[tuple[int, ...], Page] = {}
        self.checkpoints_used = 0

    def path(self, tokens: torch.Tensor) -> list[Page]:
        """The remembered pages of a prompt."""
        found, known = [], tokens.tolist()
        for end in range(self.page_size, len(known) + 1, self.page_size):
            page = self.pages.get(tuple(known[:end]))
            if page is None:
                break
            found.append(page)
        return found

    def match_prefix(
        self, tokens: torch.Tensor, *args: Any, limit: int | None = None, **_: Any
    ) -> UncachedHit:
        pages = self.path(tokens[:limit])
        while pages and not self.usable(pages):
            pages.pop()
        hit = RememberedHit(self, len(pages) * self.page_size, length=len(pages) * self.page_size)
        hit.key = tuple(tokens[: hit.length].tolist())
        hit.slots = torch.tensor([page.kv for page in pages], dtype=torch.int32)
        hit.parts = {"window": torch.tensor([page.window for page in pages], dtype=torch.int32)}
        if pages and self.stateful:
            hit.parts["state"] = torch.tensor([pages[-1].state], dtype=torch.int32)
            self.checkpoints_used += 1
        return hit

    def usable(self, pages: list[Page]) -> bool:
        tail = pages[max(0, len(pages) - self.window) :] if self.window is not None else []
        return all(page.window >= 0 for page in tail) and (not self.stateful or pages[-1].state >= 0)

    def insert(self, *_: Any) -> UncachedDone:
        raise AssertionError("a hybrid's pages are inserted with their parts")

    def insert_parts(
        self, hit: Any, tokens: torch.Tensor, slots: torch.Tensor, parts: Mapping[str, torch.Tensor]
    ) -> UncachedDone:
        key, done, duplicates, windows = hit.key, [], [], []
        for number, slot in enumerate(slots.tolist()):
            key += tuple(tokens[number * self.page_size : (number + 1) * self.page_size].tolist())
            page = self.pages.setdefault(key, Page(slot))
            if page.kv != slot:
                duplicates.append(slot)
            done.append(page.kv)
            if "window" in parts:
                if page.window < 0:
                    page.window = int(parts["window"][number])
                windows.append(page.window)
        answer = {"window": torch.tensor(windows, dtype=torch.int32)} if "window" in parts else {}
        if "state" in parts:
            if page.state < 0:
                page.state = int(parts["state"])
            answer["state"] = torch.tensor([page.state], dtype=torch.int32)
        hit.key = key
        hit.length += len(done) * self.page_size
        hit.slots = torch.cat([hit.slots, torch.tensor(done, dtype=torch.int32)])
        return UncachedDone(
            torch.tensor(done, dtype=torch.int32),
            torch.tensor(duplicates, dtype=torch.int32) if duplicates else NO_SLOTS,
            answer,
        )

    def evict(self, part: str, page: Page) -> None:
        """A tombstone: the page's other parts stay."""
        self.free_part(part, torch.tensor([getattr(page, part)]))
        setattr(page, part, -1)

    def check(self) -> None:
        """With no request under way, every slot is free or exactly one page's."""
        pages = self.pages.values()
        assert self.free_slots + len({page.kv for page in pages}) == self.slots
        for part in ("window", "state"):
            kept = [slot for page in pages if (slot := getattr(page, part)) >= 0]
            assert len(set(kept)) == len(kept)
            assert self.free_part_slots(part) + len(kept) == self.part_sizes[part]


class Evicting(Remembering):
    """Makes room for windows and states, but never from those that a hit holds before its place: the state
    there, its window, and a page more."""

    def __init__(self, pools: Pools, window: int | None) -> None:
        super().__init__(pools, window)
        self.hits: list[HeldHit] = []

    def match_prefix(self, *args: Any, **options: Any) -> UncachedHit:
        found = super().match_prefix(*args, **options)
        hit = HeldHit(self, found.device_length, length=found.length, slots=found.slots, parts=found.parts)
        hit.key = found.key  # type: ignore[attr-defined]
        self.hits.append(hit)
        return hit

    def allocate_part(self, part: str, count: int) -> torch.Tensor | None:
        held = {id(page) for hit in self.hits for page in self.before(hit, part)}
        for page in self.pages.values():
            if self.free_part_slots(part) >= count:
                break
            if id(page) not in held and getattr(page, part) >= 0:
                self.evict(part, page)
        return super().allocate_part(part, count)

    def before(self, hit: HeldHit, part: str) -> list[Page]:
        """The pages whose window, or whose state, a hit needs."""
        pages = self.path(torch.tensor(hit.key))
        return pages[max(0, len(pages) - (self.window or 0) - 1) :] if part == "window" else pages[-1:]


class HeldHit(RememberedHit):
    """Known to its cache until it is released."""

    def release(self, generated: int = 0) -> None:
        assert isinstance(self.owner, Evicting)
        self.owner.hits = [hit for hit in self.owner.hits if hit is not self]
