"""`HiCache` for engines: the verbs in path order, tensors in, tensors out.

One thread at a time calls it: the engine's. A call returns at once; what runs in the background enters
through `poll`. Decisions are the core's: this layer only turns tensors into buffers and back.
On error: `ArgumentError` names the argument, before anything was changed. A fault of storage is never an
error here: it is a miss and a counter.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hicache import build, tensors
from hicache.attach import Attaching
from hicache.config import Host, Namespace, expect, number, seconds, settings, whole_number
from hicache.copies import GpuCopies
from hicache.epochs import WithEpochs
from hicache.errors import ArgumentError, HitError
from hicache.events import WithEvents, most_events
from hicache.explain import WithExplanations
from hicache.histograms import WithHistograms
from hicache.hit import Hit, Inserted
from hicache.identity import ModelIdentity
from hicache.lifecycle import WithLifecycle
from hicache.parts import WithParts, names, on_host
from hicache.policy import asked
from hicache.polling import Polling
from hicache.pools import Pool, gpu
from hicache.reader import Reader
from hicache.storage import Storage
from hicache.stored import WithStore
from hicache.stream import Stream
from hicache.tensors import Integers, Slots
from hicache.waiting import WithWaiting
from hicache.warming import PLAIN, Warming

__all__ = ["HiCache"]


class HiCache(
    Polling,
    Attaching,
    WithParts,
    WithEpochs,
    WithEvents,
    WithExplanations,
    WithHistograms,
    WithLifecycle,
    WithStore,
    WithWaiting,
    Warming,
):
    """A hierarchical KV cache over an engine's pools.

    `pools`: the engine's tensors (`hicache.pools`), which must not be moved or freed before `close` or
    `detach`, or declarations without tensors: those are attached later. They use the slots of the first one:
    where slots are passed, an array or {its name: array}. Windows and states have slots of their own
    (`parts`): `load` brings what a hit needs of them, `hit.parts` has their slots, `insert_parts` takes them.
    `page_size`: tokens per page. `host`: the host tier, or None; `host_mode`: "cache", or
    "buffer_only": host memory as staging (docs/buffer-only.md). `storage`: a store by URL
    ("file:///directory"), a directory's path, a class ("module:Class?option=value") or an object
    (`hicache.storage`), which the cache closes, or None; needs `host` and `identity`. `keys`: "tokens", or
    "bigrams" where draft state depends on the next token too: a page is `page_size` pairs of neighbours, so
    that n + 1 tokens fill n places; tokens after a hit begin at `hit.length` as ever. `slots`: who
    allocates device slots, "cache" or "engine". `checkpoints_per_path`: most states that one history keeps on
    the device (the deepest; 0: all). `gpu_copies`: how a GPU copies, None for the defaults. `unified`: one
    uint8 tensor as the device memory of pools that are only declared (`hicache.unified`); their rows are then
    the most there may be. `write`, `write_storage`, `host_copies`, `clean_reserve`: when pages are copied
    further down (docs/write-policies.md). `prefetch`: when a request stops to wait for storage
    (docs/prefetch-policies.md); `policy`: an object of yours that decides (docs/policies.md).
    `load_threshold`: fewer tokens on the host are computed. `events`: keeps what comes to tiers and leaves
    them for `take_events`, so many announcements of pages at most, True: the usual number (docs/events.md).
    Times are in seconds, thresholds in tokens, which are rounded up to whole pages.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        page_size: int,
        *,
        host: Host | None = None,
        host_mode: str = "cache",
        storage: Storage | None = None,
        identity: ModelIdentity | None = None,
        gpu_copies: GpuCopies | None = None,
        unified: torch.Tensor | None = None,
        write: str = "write_through",
        write_storage: str = "write_through",
        prefetch: str = "timeout",
        policy: object | None = None,
        eviction: str = "lru",
        host_copies: str = "give_way",
        clean_reserve: float = 0.05,
        keys: str = "tokens",
        slots: str = "cache",
        checkpoints_per_path: int = 0,
        prefetch_timeout_base: float = 1.0,
        prefetch_timeout_per_ki_token: float = 0.25,
        prefetch_threshold: int = 256,
        prefetch_deadline: float = 30.0,
        load_threshold: int = 10,
        store_deadline: float = 30.0,
        load_deadline: float = 30.0,
        io_threads: int = 4,
        write_queue: int = 256,
        events: bool | int = False,
    ) -> None:
        self._load_deadline = number("load_deadline", load_deadline)
        self._asked, kept = asked(policy), most_events(events)
        self._core = build.core(
            pools,
            page_size,
            host,
            storage,
            identity,
            gpu_copies,
            unified,
            writing=(write, write_storage, host_copies, clean_reserve),
            policies={
                "prefetch": prefetch,
                "eviction": eviction,
                "keys": keys,
                "slots": slots,
                "host_mode": host_mode,
            },
            checkpoints_per_path=whole_number("checkpoints_per_path", checkpoints_per_path, least=0),
            io_threads=whole_number("io_threads", io_threads, least=1),
            write_queue=whole_number("write_queue", write_queue, least=1),
            prefetch=(prefetch, prefetch_timeout_base, prefetch_timeout_per_ki_token),
            prefetch_deadline=number("prefetch_deadline", prefetch_deadline),
            store_deadline=number("store_deadline", store_deadline),
            prefetch_threshold=whole_number("prefetch_threshold", prefetch_threshold, least=0),
            load_threshold=whole_number("load_threshold", load_threshold, least=0),
        )
        if kept > 0:
            self._core.keep_events(kept)
        if self._asked is not None:
            self._asked.begin(self._core, write, write_storage)
        self.page_size = int(page_size)
        self._pool, self._parts = pools[0].name, names(pools)
        self._stream = Stream(gpu(pools))
        self._pools = [pool.declared() for pool in pools]
        self._unified = unified is not None
        self._forgotten: list[Callable[[], object]] = []
        self._closed, self._identity = False, identity
        self._skew = 0.0

    @classmethod
    def from_config(
        cls, pools: Sequence[Pool], config: Mapping[str, Any] | str, identity: ModelIdentity | None = None
    ) -> HiCache:
        """From plain settings: a mapping or JSON text with the constructor's names; `host` and
        `gpu_copies` are mappings."""
        known = set(inspect.signature(cls).parameters) - {"pools", "identity", "unified"}
        grouped = {"host": Host, "gpu_copies": GpuCopies}
        return cls(pools, identity=identity, **settings(config, known, grouped))

    def match_prefix(
        self,
        tokens: Integers,
        namespace: Namespace | None = None,
        *,
        after: Hit | None = None,
        limit: int | None = None,
        at: float | None = None,
    ) -> Hit:
        """Finds the longest usable prefix; moves nothing. The hit must be released.

        `tokens`: one dimension, int32 or int64, read in place: nobody may write to them meanwhile. `after`: a
        released hit that they follow (its namespace is taken over); `StaleCursor` if its place was evicted,
        or has no whole window or no checkpoint: pass all tokens then.
        `limit`: most tokens that may hit. `at`: now, in seconds, on the clock of `poll` (default: a
        monotonic clock).
        """
        if after is not None:
            expect("after", after, Hit)
            if after._cache is not self:
                raise ArgumentError("after: is a hit of another cache")
            if after._cursor is None:
                raise HitError("after: is not released yet")
            namespace = after.namespace if namespace is None else namespace
        expect("namespace", namespace, Namespace)
        namespace = namespace or PLAIN
        most = None if limit is None else whole_number("limit", limit, least=0)
        hit = self._core.match_prefix(
            tensors.integers("tokens", tokens),
            namespace.extra_key,
            namespace.salt,
            namespace.adapter,
            None if after is None else after._cursor,
            most,
            self._now(at),
        )
        return Hit(self, hit, namespace)

    def allocate(self, pages: int) -> torch.Tensor | None:
        """Fresh device slots, int32 (pages,); evicts what it must. None, and nothing evicted: there is no
        such room now. Pages of finished transfers count as held until a `poll`: poll, then try again. While a
        `forward` is under way, None may also mean: when that ends."""
        slots = self._core.allocate(whole_number("pages", pages, least=0))
        return None if slots is None else tensors.slots(slots)

    def insert(self, hit: Hit, tokens: Integers, slots: Slots) -> Inserted:
        """Adds the whole pages of the tokens that follow `hit.length`, with the device slots their KV is in;
        backs them up as `write` says; moves the hit along. Call it after each part of a prefill, and at the
        end.

        `slots`: one per whole page (one for a trailing partial page may follow; it stays yours)."""
        buffers = tensors.integers("tokens", tokens), self._slots(slots)
        self._stream.follow(self._core)
        depth, own, duplicates = self._core.insert(self._number(hit), *buffers)
        return Inserted(depth * self.page_size, tensors.slots(own), tensors.first(buffers[1], duplicates))

    def free(self, slots: Slots) -> None:
        """Gives device slots back that no cached page is in: duplicates, partial tails, aborted work."""
        self._core.free(self._slots(slots))

    def backup(self, hit: Hit) -> int:
        """Device → host for those pages of a loaded hit, and parts at its end, that had found no room there.
        With "write_through" `insert` does it by itself. Returns how many slots' copies were started."""
        self._stream.follow(self._core)
        return self._core.backup(self._number(hit))

    def evict(self, pages: int, tier: str = "device") -> torch.Tensor:
        """Takes pages out of a tier ("device" or "host"), or as many as can go; returns their slots, int32.
        They are free already, unless the engine owns the device slots: then they are its own again. Host
        copies of pages that are on the device leave first, or stay with `host_copies="keep"`."""
        host = on_host(tier)
        return tensors.slots(self._core.evict(host, whole_number("pages", pages, least=0)))

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name; counters never go down."""
        return self._core.stats()

    def reader(self) -> Reader:
        """A view for other threads: how much would hit, and statistics. The first one costs a walk through
        the index. From then on every page that comes, moves or leaves is written to the readers' table too,
        of which a verb now and then makes a 256th part anew."""
        return Reader(self._core.reader())

    def digest(self) -> int:
        """A digest of all decisions of the index so far (64 bits): equal on ranks that took the same ones."""
        return self._core.digest()

    def check(self) -> None:
        """`InvariantError` if books or tree are broken; for tests, it looks at everything."""
        self._core.check()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self, timeout: float = 10.0) -> None:
        """Lets backups and stores finish and ends the threads, within about `timeout` seconds even if a
        store never answers. Hits may still be released."""
        if not self._closed:
            deadline = time.monotonic() + seconds(timeout)
            self.drain(timeout)
            self._core.close(max(0.0, deadline - time.monotonic()))
            self._closed = True

    def _slots(self, slots: Slots) -> Any:
        return tensors.integers("slots", tensors.of_pool("slots", self._pool, slots))

    def _numbers(self, hits: Sequence[Hit]) -> list[int]:
        try:
            return [self._number(hit) for hit in hits]
        except TypeError:
            raise ArgumentError(f"hits: need a sequence of hits, got {hits!r}") from None

    def _number(self, hit: Hit) -> int:
        if type(hit) is Hit and hit._cache is self and hit._cursor is None:
            return hit._number
        if not isinstance(hit, Hit):
            raise ArgumentError(f"hit: need a hit, as match_prefix gives it, got {hit!r}")
        if hit._cache is not self:
            raise ArgumentError("hit: belongs to another cache")
        return hit._live()

    def __enter__(self) -> HiCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
