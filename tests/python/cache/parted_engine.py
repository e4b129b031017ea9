"""The tiny engine of `fake_engine` with windows and states. They are stamps too: of the pages of a window,
and of exactly the tokens that a state sums up. A part in the wrong slot, or a page off, does not verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH, POISON, Device, Engine, Request, Shape, stamp

from hicache import ArgumentError, HiCache, Host, Inserted, Load, ModelIdentity, Namespace, pools
from hicache.storage import Served, Store

SIDES = {"window": ("wk", "wv"), "state": ("memory", "last")}


class PartedDevice(Device):
    """Pools "kv", "window" (`windows` pages, for `tokens` tokens before a hit's end) and "state"."""

    def __init__(self, slots: int, page_size: int, windows: int, states: int, tokens: int) -> None:
        self.parts: dict[str, dict[str, torch.Tensor]] = {}
        self.sizes = {"window": windows, "state": states}
        self.reach = -(-tokens // page_size)
        self.tokens = tokens
        super().__init__(slots, page_size)

    def _pools(self, shape: Shape) -> Iterator[pools.Pool]:
        yield from super()._pools(shape)
        wk, wv = ([self._rows("window", side, self.page_size, 6)] for side in SIDES["window"])
        yield pools.mha("window", wk, wv, window=self.tokens)
        yield pools.states("state", [[self._rows("state", side, 1, 10) for side in SIDES["state"]]])

    def _rows(self, part: str, side: str, rows: int, size: int) -> torch.Tensor:
        tensor = torch.full((self.sizes[part] * rows, size), POISON, dtype=torch.uint8)
        self.parts.setdefault(part, {})[side] = tensor.view(self.sizes[part], -1)
        return tensor

    def write_part(self, part: str, slot: int, namespace: Namespace, prefix: Sequence[int]) -> None:
        for name, plane in self.parts[part].items():
            plane[slot] = stamp(namespace, tuple(prefix), name, plane.shape[1])

    def poison_part(self, part: str, slots: Iterable[int]) -> None:
        for slot in slots:
            for plane in self.parts[part].values():
                plane[slot] = POISON

    def verify_part(self, part: str, slot: int, namespace: Namespace, prefix: Sequence[int]) -> None:
        for name, plane in self.parts[part].items():
            wanted = stamp(namespace, tuple(prefix), name, plane.shape[1])
            assert torch.equal(plane[slot], wanted), f"{part} slot {slot} is not that of {prefix}"


@dataclass(eq=False)
class PartedRequest(Request):
    """`windows`: pages whose window must be there while it reaches them. `state`: whether one must be."""

    windows: set[int] = field(default_factory=set)
    state: bool = False


class PartedEngine(Engine):
    """Gives windows and a checkpoint with each insert, as far as there is room and `sparse` lets it."""

    device: PartedDevice

    def __init__(self, cache: HiCache, device: PartedDevice) -> None:
        super().__init__(cache, device)
        self.held_parts: dict[str, set[int]] = {"window": set(), "state": set()}
        #: What was ever given, by part.
        self.given: dict[str, set[tuple[Namespace, tuple[int, ...]]]] = {"window": set(), "state": set()}
        #: Every so manieth part is left out; 0: none.
        self.sparse, self._turn = 0, 0

    def match(self, tokens: Sequence[int], namespace: Namespace | None = None, **options: object) -> Request:
        request = super().match(tokens, namespace, **options)
        return PartedRequest(request.hit, request.tokens, request.namespace)

    def load(self, *requests: Request) -> Load:
        load = super().load(*requests)
        for request in requests:
            assert isinstance(request, PartedRequest)
            pages = request.hit.length // self.device.page_size
            request.windows = set(range(max(0, pages - self.device.reach), pages))
            request.state = pages > 0
        return load

    def rewind(self, request: Request, pages: int, tokens: Sequence[int]) -> None:
        """To where a match would end, too; from anywhere else it is refused, and nothing changes."""
        assert isinstance(request, PartedRequest)
        before, length = request.hit.length, pages * self.device.page_size
        match = self.cache.match_prefix(request.tokens[:length], request.namespace)
        usable = match.device_length == length
        match.release()
        if length < before and not usable:
            with pytest.raises(ArgumentError, match=r"^length: "):
                super().rewind(request, pages, tokens)
            assert request.hit.length == before
            return
        super().rewind(request, pages, tokens)
        if length < before:
            request.windows = set(range(max(0, pages - self.device.reach), pages))
            request.state = pages > 0

    def insert(self, request: Request, start: int, end: int) -> Inserted:
        assert isinstance(request, PartedRequest)
        size = self.device.page_size
        first, last = start // size, end // size
        given = {"window": [-1] * (last - first), "state": [-1]}
        for page in range(first, last):
            given["window"][page - first] = self.made(request, "window", (page + 1) * size)
        if last > first:
            given["state"] = [self.made(request, "state", last * size)]
        tokens, slots = request.tokens[start:end], request.table[first:]
        done = self.cache.insert_parts(request.hit, tokens, slots, given)
        if last > first:
            self.adopt_parts(request, first, given, done)
        return done

    def made(self, request: Request, part: str, end: int) -> int:
        """A slot with the part that belongs to the tokens before `end`; -1: no room, or left out."""
        self._turn += 1
        if self.sparse and self._turn % self.sparse == 0:
            return -1
        slots = self.cache.allocate_part(part, 1)
        if slots is None:
            return -1
        (slot,) = slots.tolist()
        assert slot not in self.held_parts[part], "a slot that is ours was handed out again"
        self.held_parts[part].add(slot)
        self.device.write_part(part, slot, request.namespace, request.tokens[:end])
        self.given[part].add((request.namespace, tuple(request.tokens[:end])))
        return slot

    def adopt_parts(
        self, request: PartedRequest, first: int, given: dict[str, list[int]], done: Inserted
    ) -> None:
        request.state = int(done.parts["state"]) >= 0
        for page, slot in enumerate(done.parts["window"].tolist(), first):
            if slot >= 0:
                request.windows.add(page)
        for part, mine in given.items():
            for ours, kept in zip(mine, done.parts[part].tolist(), strict=True):
                assert ours < 0 or kept >= 0, "what was given is adopted, or a duplicate"
                if ours >= 0 and ours == kept:
                    self.held_parts[part].remove(ours)
                elif ours >= 0:
                    self.free_part(part, [ours])

    def free_part(self, part: str, slots: list[int]) -> None:
        self.device.poison_part(part, slots)
        self.cache.free_part(part, slots)
        self.held_parts[part] -= set(slots)

    def verify(self, request: Request) -> None:
        """The parts of the hit's place too: what must be there is, and whatever is there is right."""
        super().verify(request)
        assert isinstance(request, PartedRequest)
        size, parts = self.device.page_size, request.hit.parts
        pages = request.hit.length // size
        assert len(parts["window"]) == pages
        for page, slot in enumerate(parts["window"].tolist()):
            needed = page >= pages - self.device.reach
            assert slot < 0 or needed, "a window's page that no token sees"
            assert slot >= 0 or not needed or page not in request.windows, f"page {page} has lost its window"
            if slot >= 0:
                prefix = request.tokens[: (page + 1) * size]
                self.device.verify_part("window", slot, request.namespace, prefix)
        assert len(parts["state"]) == 1 or not request.state, "the checkpoint has gone"
        for slot in parts["state"].tolist():
            self.device.verify_part("state", slot, request.namespace, request.tokens[: request.hit.length])

    def check(self) -> None:
        super().check()
        for part, held in self.held_parts.items():
            stats = self.cache.part_stats(part)
            assert stats["device_free"] + stats["device_resident"] + len(held) == stats["device_slots"]


def make_parted(
    page_size: int,
    sizes: tuple[int, int, int],
    host_pages: int,
    *,
    tokens: int = 3,
    layout: str = "page_unified",
    store: Path | Store | Served | None = None,
    **options: Any,
) -> PartedEngine:
    """An engine over a new cache; `sizes`: slots of pages, windows, states. `store`: directory or store."""
    device = PartedDevice(sizes[0], page_size, sizes[1], sizes[2], tokens)
    cache = HiCache(
        device.pools,
        page_size,
        host=Host(tokens=host_pages * page_size, layout=layout) if host_pages else None,
        storage=store,
        identity=ModelIdentity(model="stamps"),
        **(ANY_LENGTH | options),
    )
    return PartedEngine(cache, device)
