"""Device memory that goes and comes while a cache lives: an engine that sleeps frees its tensors and wakes up
with new ones, and its host and storage tiers keep what they have.

On error: `ArgumentError` says what is in the way; nothing was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from hicache import _hicache
from hicache.config import seconds
from hicache.errors import ArgumentError
from hicache.pools import Pool, gpu
from hicache.pools import memory as memory_of
from hicache.spaces import device_slots
from hicache.stream import Stream
from hicache.unified import memory as unified_memory


class Attaching:
    """What `HiCache` can do with tensors besides copying them."""

    _core: _hicache.Cache
    _pools: list[Pool]
    _stream: Stream
    _unified: bool
    page_size: int

    def attach(self, pools: Sequence[Pool], unified: torch.Tensor | None = None) -> None:
        """Gives a detached cache the engine's tensors, declared as those it was made with; they may have
        another number of rows. Their slots are all free, or the engine's if it owns them. `unified`: the
        buffer, if the cache was made with one; no smaller than that."""
        if (unified is not None) != self._unified:
            raise ArgumentError("unified: need a buffer exactly where the cache was made with one")
        slots = attachable(self._pools, pools, self.page_size)
        memory = memory_of(pools) if unified is None else unified_memory(unified, pools)
        if memory is None:
            raise ArgumentError("pools: need tensors to attach, got declarations")
        number = gpu(pools)
        self._core.attach(memory, list(pools) if unified is None else unified, slots, number)
        self._stream = Stream(number)

    def detach(self, timeout: float = 10.0) -> int:
        """Takes the engine's tensors back, so that it can free them: the device tier is empty until others
        are attached; host and storage keep theirs, and matches and prefetches go on. Copies under way are
        waited for, `timeout` seconds at most; storage is not. No hit may be loaded, no slot with the engine
        unless it owns them. Returns the pages that had no host copy and are gone. `ArgumentError`: what is in
        the way. After a `DeviceError` of copies this, and attaching other tensors, is the way on."""
        self._settle(self._core.copying, timeout)
        return self._core.detach()

    @property
    def attached(self) -> bool:
        """Whether there are tensors."""
        return self._core.attached

    def host_memory(self) -> dict[str, tuple[int, int, int | None]]:
        """By pool: address, bytes and, where it is shared, the descriptor that other processes map."""
        names = [pool.name for pool in self._pools]
        return dict(zip(names, self._core.host_memory(), strict=True))

    @property
    def host_restart(self) -> str | None:
        """For people: where host memory is that outlives the process, and what was taken over or given up."""
        return self._core.host_restart()

    def _settle(self, under_way: Callable[[], int], timeout: float) -> bool:
        """Polls until nothing is under way; False if that takes more than `timeout` seconds."""
        deadline = time.monotonic() + seconds(timeout)
        while under_way() and time.monotonic() < deadline:
            if not any(self.poll()):
                time.sleep(0.001)
        return under_way() == 0

    if TYPE_CHECKING:

        def poll(self) -> tuple[int, ...]: ...


def attachable(declared: Sequence[Pool], pools: Sequence[Pool], page_size: int) -> list[int]:
    """Device slots, by space, of tensors that are declared as others were; `ArgumentError` names the pool
    that isn't."""
    slots = device_slots(pools, page_size)
    if [pool.name for pool in pools] != [pool.name for pool in declared]:
        raise ArgumentError(f"pools: need {', '.join(pool.name for pool in declared)}, in this order")
    for one, other in zip(declared, pools, strict=True):
        if replace(one, rows=0) != replace(other.declared(), rows=0):
            raise ArgumentError(f"pools: {other.name} is not declared as it was: {one.declared()}")
    return slots
