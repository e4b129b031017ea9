"""A cache's life beside requests: stores that come and go, clears, and what is done before an end.

On error: `ArgumentError` names what is in the way, and nothing was changed. No wait is longer than its
timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch

from hicache import _hicache, tensors
from hicache.config import seconds
from hicache.errors import ArgumentError, DeadlineError, StorageError
from hicache.identity import ModelIdentity
from hicache.storage import Served, Storage
from hicache.storage.opening import resolve

_MEMORY = ("device", "host")
_TIERS = (*_MEMORY, "storage")


class LeftBehind(NamedTuple):
    """What was still under way when a store was detached."""

    #: Pages on the host (with `host_mode="buffer_only"`: of the device) that this store was to get and hasn't
    #: got.
    unwritten_pages: int
    #: Batches that are still inside of a store. Their host memory comes back when they come out, by polls.
    inside: int


class Cleared(NamedTuple):
    """Pages that a clear removed, by tier. None: that tier wasn't to be cleared, or there is no
    storage."""

    #: At once; what running requests hold follows when they end.
    device: int | None
    host: int | None
    storage: int | None


class WithLifecycle:
    """What `HiCache` can do while no request is behind it."""

    _core: _hicache.Cache
    _identity: ModelIdentity | None

    def attach_store(self, storage: Storage) -> None:
        """Gives a cache without a store one, as `HiCache(storage=...)` takes it; the cache closes it. Costs a
        walk over all that is cached, whose pages get their digests. What is computed from now on is stored,
        below pages of before where it continues these; pages of before are stored when their path comes
        again, or by `write_out`.

        `ArgumentError`: there is one already (detach it first); no host tier or identity; or the store can't
        be opened, and the cache goes on as it was: try again when it is up."""
        # Before anything is made that somebody would have to close.
        if storage is None:
            raise ArgumentError("storage: need one; detach_store() takes it away")
        if self._identity is None:
            raise ArgumentError("identity: storage needs one, so that no other model's pages are served")
        if self._core.has_store():
            raise ArgumentError("storage: there is a store: detach it first")
        named = resolve(storage)
        assert named is not None
        self._core.attach_store(named.start() if isinstance(named, Served) else named)

    def detach_store(self, timeout: float = 10.0) -> LeftBehind:
        """Takes the store away, from any state, and closes it: also one that hangs, which gets `timeout`
        seconds. Prefetches end with what has come, writes that wait are given up (call `write_out` before, to
        keep them), requests go on. Another store, or the same, can be attached at once. Device, host and,
        with `Host(restart=...)`, what the host keeps for the next process stay.

        What is still inside of a store that hangs keeps its host memory until it comes out; nothing else
        waits for it. `ArgumentError`: there is none."""
        return LeftBehind(*self._core.detach_store(seconds(timeout)))

    @property
    def has_store(self) -> bool:
        """Whether there is a store."""
        return self._core.has_store()

    def write_out(self, timeout: float = 10.0) -> bool:
        """Writes what the policies would write later, now: device → host as far as that has free room, host →
        storage (with `host_mode="buffer_only"`: device → storage); and waits for it, `timeout` seconds at
        most. For shutdown, before `detach_store`, and before
        an engine sleeps. Nothing is removed: to empty the cache call `reset` (which SGLang calls a flush).
        True: all that the policies want further down is there (with selective policies: what a second request
        used). False: room, the store or the time was short; the rest goes on as ever."""
        deadline = time.monotonic() + seconds(timeout)
        last: list[int] = []
        while True:
            self._core.write_out()
            self.poll()
            drained = self.drain(max(0.0, deadline - time.monotonic()))
            left = self._core.unwritten()
            # What has come to the host is wanted in storage only then: a sum may grow while all goes well.
            if not any(left) or not drained or left == last:
                return drained and not any(left)
            last = left

    def clear(self, tiers: Iterable[str] = _TIERS, timeout: float = 30.0) -> Cleared:
        """Removes what is cached of this model identity, in the tiers that are named: "device" and "host"
        (together), "storage". Afterwards nothing of it is found there, by nobody, and by no process that is
        started later. Pages of other identities and other files stay.

        What running requests hold is theirs until they end, and found by nobody; waiting ones find nothing
        and compute; cursors are stale. Writes to storage that were asked for before lose, those inside of the
        store too. Cleared alone, storage gets pages that are in memory when their path comes again, or by
        `write_out`.

        `StorageError`: the store failed; some pages may be left. `DeadlineError`: it didn't answer within
        `timeout` seconds; it goes on, and writes of before lose in any case. Memory, if named, is cleared
        then, too.
        With `slots="engine"`, `returned_slots` says which slots are free. `ArgumentError`: unknown tiers."""
        wanted = _tiers(tiers)
        timeout = seconds(timeout)
        if "storage" in wanted and not self._core.has_store() and self._core.host_restart() is None:
            wanted = tuple(tier for tier in wanted if tier != "storage")
            if not wanted:
                raise ArgumentError("tiers: there is no storage to clear")
        device, host = self._core.clear_memory() if "device" in wanted else (None, None)
        storage = self._clear_storage(timeout) if "storage" in wanted else None
        return Cleared(device, host, storage)

    def reset(self) -> tuple[int, int]:
        """Empties device and host, at once; storage keeps everything. This is what SGLang calls
        `flush_cache`. Returns how many pages left the device and the host; what running requests hold follows
        when they end. As `clear(("device", "host"))`."""
        return self._core.clear_memory()

    def returned_slots(self) -> torch.Tensor:
        """With `slots="engine"`: device slots, int32 (slots,), that left the cache since this was asked last,
        other than by `evict`, which answers itself. They are the engine's again, each is told once, and no
        copy touches them any more. Ask after `clear`, `reset` and `bump_epoch`, and in each step from then on
        (it costs next to nothing): what a request or a copy still holds then comes when it lets go, in
        `release`, `rewind` or a `poll`; until it is told of, it isn't the engine's, and is refused where
        slots are given. Works after `close`, too. `ArgumentError`: the cache owns the slots."""
        return tensors.slots(self._core.returned_slots())

    def _clear_storage(self, timeout: float) -> int:
        number = self._core.clear_storage()
        self._settle(lambda: self._core.cleared(number)[0] == "waiting", timeout)
        what, pages = self._core.cleared(number)
        if what == "waiting":
            raise DeadlineError(f"the store did not clear within {timeout} s")
        if what == "failed":
            raise StorageError("the store could not be cleared: pages may be left")
        return pages

    if TYPE_CHECKING:

        def _settle(self, under_way: Callable[[], int], timeout: float) -> bool: ...

        def drain(self, timeout: float) -> bool: ...

        def poll(self) -> tuple[int, ...]: ...


def _tiers(tiers: Iterable[str]) -> tuple[str, ...]:
    try:
        named = (tiers,) if isinstance(tiers, str) else tuple(tiers)
    except TypeError:
        raise ArgumentError(f"tiers: need some of {', '.join(_TIERS)}, got {tiers!r}") from None
    unknown = [tier for tier in named if tier not in _TIERS]
    if unknown or not named:
        raise ArgumentError(f"tiers: need some of {', '.join(_TIERS)}, got {tiers!r}")
    if len({*named} & {*_MEMORY}) == 1:
        raise ArgumentError("tiers: device and host are cleared together; evict() empties one of them")
    return named
