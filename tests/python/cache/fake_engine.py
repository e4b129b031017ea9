"""A tiny engine without a model: its KV is a stamp, so that every page can be told from every other.

The stamp of a page is a function of namespace, all tokens up to the page's end, pool, layer and role: a page
in the wrong slot, under the wrong prefix, half copied or copied too early does not verify. Fresh slots and
slots about to be given back are poisoned, so that reading them shows too.
On error: `AssertionError` names the page. Refuses to know how the cache finds or keeps anything.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from hicache import HiCache, Hit, Host, Inserted, Load, ModelIdentity, Namespace, pools
from hicache.metrics import GAUGES
from hicache.storage import Served, Store

POISON = 0xEE
PLAIN = Namespace()
#: Small caches land their transfers within milliseconds: more is a hang.
PATIENCE = 10.0


@lru_cache(maxsize=100_000)
def stamp(namespace: Namespace, prefix: tuple[int, ...], plane: str, size: int) -> torch.Tensor:
    """The `size` bytes of the page at which `prefix` ends, in one plane."""
    parts = (namespace.extra_key, namespace.salt or None, namespace.adapter, prefix, plane)
    data = hashlib.shake_128(repr(parts).encode()).digest(size)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@dataclass(frozen=True)
class Shape:
    """What a page consists of. `side`: bytes per token of a second pool, 0 for none."""

    layers: int = 2
    heads: int = 2
    k_size: int = 4
    v_size: int = 4
    dtype: torch.dtype = torch.float16
    side: int = 0
    latent: bool = False

    def row(self, size: int) -> tuple[int, int]:
        return (self.heads, size)


class Device:
    """The engine's pools, for `slots` pages of `page_size` tokens."""

    def __init__(self, slots: int, page_size: int, shape: Shape = Shape()) -> None:
        self.slots, self.page_size = slots, page_size
        self.planes: dict[str, torch.Tensor] = {}
        self.pools = list(self._pools(shape))

    def _pools(self, shape: Shape) -> Iterator[pools.Pool]:
        k = self._tensors("k", shape.layers, shape.row(shape.k_size), shape.dtype)
        if shape.latent:
            yield pools.latent("kv", k)
        else:
            v = self._tensors("v", shape.layers, shape.row(shape.v_size), shape.dtype)
            yield pools.mha("kv", k, v)
        if shape.side:
            yield pools.latent("side", self._tensors("side", shape.layers, (shape.side,), torch.uint8))

    def _tensors(
        self, role: str, layers: int, row: tuple[int, ...], dtype: torch.dtype
    ) -> list[torch.Tensor]:
        tensors = []
        for layer in range(layers):
            data = torch.full((self.slots * self.page_size, *row), POISON, dtype=torch.uint8)
            tensor = data.repeat_interleave(dtype.itemsize, dim=-1).view(dtype)
            self.planes[f"{role}{layer}"] = tensor.view(torch.uint8).view(self.slots, -1)
            tensors.append(tensor)
        return tensors

    def write(self, slot: int, namespace: Namespace, prefix: Sequence[int]) -> None:
        """Computes the page that ends with `prefix`."""
        for name, plane in self.planes.items():
            plane[slot] = stamp(namespace, tuple(prefix), name, plane.shape[1])

    def poison(self, slots: Iterable[int]) -> None:
        for slot in slots:
            for plane in self.planes.values():
                plane[slot] = POISON

    def holds(self, slot: int, namespace: Namespace, prefix: Sequence[int]) -> bool:
        """Whether the slot holds exactly this page, in all planes."""
        return all(
            torch.equal(plane[slot], stamp(namespace, tuple(prefix), name, plane.shape[1]))
            for name, plane in self.planes.items()
        )

    def verify(self, slots: Sequence[int], namespace: Namespace, tokens: Sequence[int]) -> None:
        """Every page of a path; `slots` in its order."""
        for page, slot in enumerate(slots):
            prefix = tokens[: (page + 1) * self.page_size]
            assert len(prefix) == (page + 1) * self.page_size, f"page {page} is beyond the tokens"
            assert self.holds(slot, namespace, prefix), f"page {page} in slot {slot} is not {prefix}"


@dataclass(eq=False)
class Request:
    """A request: its tokens, its hit, and the page table (a slot for a partial page comes last)."""

    hit: Hit
    tokens: list[int]
    namespace: Namespace
    load: Load | None = None
    table: list[int] = field(default_factory=list)
    #: Tokens whose KV there is, those in the partial page included.
    computed: int = 0

    @property
    def verifiable(self) -> bool:
        return self.load is not None and self.load.finished


class Engine:
    """Drives a cache as an engine does: match, prefetch, load, compute in chunks, insert, release."""

    def __init__(self, cache: HiCache, device: Device) -> None:
        self.cache, self.device = cache, device
        #: Device slots that are ours: allocated and not adopted by the cache.
        self.held: set[int] = set()
        self.counted: dict[str, int] = {}

    def match(self, tokens: Sequence[int], namespace: Namespace | None = None, **options: Any) -> Request:
        """`namespace` None: without one, or that of `after`, whose tokens `known` are put before these."""
        known = options.pop("known", [])
        hit = self.cache.match_prefix(list(tokens), namespace, **options)
        return Request(hit, [*known, *tokens], hit.namespace)

    def fetch(self, request: Request) -> bool:
        """Prefetches and polls until it is decided."""
        asked = self.cache.prefetch(request.hit)
        deadline = time.monotonic() + PATIENCE
        while request.hit.waiting:
            assert time.monotonic() < deadline, "the prefetch is never decided"
            self.cache.poll()
        return asked

    def load(self, *requests: Request) -> Load:
        load = self.cache.load([request.hit for request in requests])
        for request in requests:
            request.load = load
            request.table = request.hit.slots.tolist()
            request.computed = request.hit.length
        return load

    def compute(self, request: Request, count: int | None = None) -> bool:
        """Computes and inserts the next `count` tokens (default: all). False: no room, nothing computed."""
        assert request.load is not None, "load first"
        request.load.wait()
        left = len(request.tokens) - request.computed
        end = request.computed + (left if count is None else min(count, left))
        size = self.device.page_size
        fresh = self.allocate(-(-end // size) - len(request.table))
        if fresh is None:
            return False
        request.table += fresh
        start = request.hit.length
        for page in range(start // size, end // size):
            self.device.write(request.table[page], request.namespace, request.tokens[: (page + 1) * size])
        done = self.insert(request, start, end)
        request.computed = end
        self._adopt(request, start // size, done)
        return True

    def insert(self, request: Request, start: int, end: int) -> Inserted:
        """Gives the cache the tokens from `start` to `end`, of which a partial page stays ours."""
        size = self.device.page_size
        return self.cache.insert(request.hit, request.tokens[start:end], request.table[start // size :])

    def _adopt(self, request: Request, first: int, done: Inserted) -> None:
        """Re-points the table to the tree's slots, then gives the duplicates back."""
        given = request.table[first : first + len(done.slots)]
        duplicates = done.duplicates.tolist()
        self.held -= set(given) - set(duplicates)
        request.table[first : first + len(done.slots)] = done.slots.tolist()
        self.free(duplicates)

    def allocate(self, pages: int) -> list[int] | None:
        slots = self.cache.allocate(max(0, pages))
        if slots is None:
            return None
        self.device.poison(slots.tolist())
        assert not self.held & set(slots.tolist()), "a slot that is ours was handed out again"
        self.held |= set(slots.tolist())
        return slots.tolist()

    def free(self, slots: Sequence[int]) -> None:
        self.device.poison(slots)
        self.cache.free(list(slots))
        self.held -= set(slots)

    def rewind(self, request: Request, pages: int, tokens: Sequence[int]) -> None:
        """Goes back to so many pages of a loaded request, which `tokens` follow instead."""
        size = self.device.page_size
        ours = request.table[request.hit.length // size :]
        request.hit.rewind(pages * size)
        self.free(ours)
        request.tokens = [*request.tokens[: pages * size], *tokens]
        request.table, request.computed = request.table[:pages], pages * size

    def finish(self, request: Request) -> None:
        """Ends a request in any state."""
        if request.load is not None:
            self.free(request.table[request.hit.length // self.device.page_size :])
        request.hit.release(generated=0)

    def run(
        self, tokens: Sequence[int], namespace: Namespace | None = None, chunk: int | None = None
    ) -> Request:
        """A whole request, not yet released: match, fetch, load, compute, verify."""
        request = self.match(tokens, namespace)
        self.fetch(request)
        self.load(request)
        while request.computed < len(request.tokens):
            assert self.compute(request, chunk), "no room"
        self.verify(request)
        return request

    def verify(self, request: Request) -> None:
        """After the load: the whole pages of the table hold their stamps and are the hit's."""
        assert request.load is not None
        request.load.wait()
        whole = request.hit.length // self.device.page_size
        assert request.hit.slots.tolist() == request.table[:whole]
        self.device.verify(request.table[:whole], request.namespace, request.tokens)

    def check(self) -> None:
        """The cache's own books, and ours with them."""
        self.cache.check()
        stats = self.cache.stats()
        assert stats["device_free"] + stats["device_resident"] + len(self.held) == stats["device_slots"]
        fell = [name for name, then in self.counted.items() if stats[name] < then]
        assert not fell, f"counters never go down, but {fell} did"
        self.counted = {name: count for name, count in stats.items() if name not in GAUGES}


#: Prompts are short here: nothing is too little to fetch or to load, and all of it is waited for.
ANY_LENGTH: dict[str, Any] = {"prefetch": "wait_complete", "prefetch_threshold": 0, "load_threshold": 0}


def make(
    page_size: int = 2,
    device_pages: int = 16,
    host_pages: int = 16,
    shape: Shape = Shape(),
    layout: str = "page_unified",
    store: Path | Store | Served | str | None = None,
    identity: ModelIdentity | None = None,
    **options: Any,
) -> Engine:
    """An engine over a new cache; `store` is a directory, or a store."""
    device = Device(device_pages, page_size, shape)
    cache = HiCache(
        device.pools,
        page_size,
        host=Host(tokens=host_pages * page_size, layout=layout) if host_pages else None,
        storage=f"file://{store}" if isinstance(store, Path) else store,
        identity=identity or ModelIdentity(model="stamps", dtype=str(shape.dtype)),
        **(ANY_LENGTH | options),
    )
    return Engine(cache, device)


def store_files(store: Path) -> list[Path]:
    """The pages of a file store."""
    return sorted(f for f in store.rglob("*") if f.is_file() and len(f.parent.name) == 2)
