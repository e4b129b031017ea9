"""The queue of waiting requests, and who of them may run.

For: `engine.py`, which asks twice a step: find what has arrived, admit what has room.
Assumes: a running request owns every slot it will ever need (see `path.allocate`), so running requests end.
Refuses to know: the model, tokens.
On error: no room is no error: a request stays in the queue. It cannot stay for good: nobody overtakes one
that waits for room, and once nobody runs the whole pool is its own (`submit.py` refused what would not fit).
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import torch

from hicache.engines.reference import path

if TYPE_CHECKING:
    from collections.abc import Callable

    from hicache.engines.reference.parts import Needs
    from hicache.engines.reference.sequence import Sequence
    from hicache.engines.reference.verbs import Cache, Load


class Admission:
    """First come, first served; at most `max_running` run at once."""

    def __init__(self, cache: Cache, needs: Needs, max_running: int, clock: Callable[[], float]) -> None:
        self.waiting: deque[Sequence] = deque()
        self.crowded = False  # the last try found no room: try again when a request has ended
        self._cache = cache
        self._needs = needs
        self._pool = needs.pools.kv
        self._max_running = max_running
        self._clock = clock

    def find(self) -> None:
        """Match and prefetch for all that have arrived or stepped back."""
        for sequence in self.waiting:
            if sequence.hit is None:
                path.find(self._cache, sequence, self._clock)

    def admit(self, running: list[Sequence]) -> Load | None:
        """Move those that have room to `running`. The load for them, if one was issued."""
        batch = self._admissible(running)
        if not batch:
            return None
        load = path.load(self._cache, batch, self._clock)
        for number, sequence in enumerate(batch):
            if sequence.hit is None or not self._allocate(sequence, batch[number + 1 :]):
                break  # this one stepped back, and so did all behind it
            self.waiting.remove(sequence)
            running.append(sequence)
        return load

    def _admissible(self, running: list[Sequence]) -> list[Sequence]:
        """Those that are decided and may have room.

        The count of pages is a necessary condition only: it takes all of a hit for shared with those who run.
        """
        if self.crowded and running:
            return []
        self.crowded = False
        used = _slots_in_use(running)
        others: Counter[str] = Counter()  # of the other pools
        for sequence in running:
            others.update(self._needs.of(sequence.kv_tokens))
        batch: list[Sequence] = []
        ready = len(running) + sum(
            sequence.hit is not None and not sequence.hit.waiting for sequence in self.waiting
        )
        for sequence in self.waiting:
            if len(running) + len(batch) >= self._max_running:
                break
            if sequence.hit is None:
                continue
            # The load pins the whole batch before it makes room for any of it. So those behind the first
            # count in full, or the first one's copies would be cut short for pages that they hold.
            held = 0 if batch else sequence.hit.device_length
            pages = used + path.missing(sequence, self._pool, held)
            parts = others + Counter(self._needs.of(sequence.kv_tokens))
            waiting = sequence.hit.waiting
            if pages > self._pool.slots or self._needs.lacking(parts) is not None:
                if waiting:
                    continue  # it could not run anyway: those behind it need not wait for its prefetch
                break  # nobody overtakes a request that waits for room: it would wait for ever
            if not path.decided(self._cache, sequence, ready - (not waiting), self._clock):
                continue
            used, others = pages, parts
            batch.append(sequence)
        return batch

    def _allocate(self, sequence: Sequence, behind: list[Sequence]) -> bool:
        """Slots for one that was loaded; without room, those behind it step back first, then it does."""
        if path.allocate(self._cache, sequence, self._pool):
            return True
        for other in behind:
            self._step_back(other)
        if path.allocate(self._cache, sequence, self._pool):
            return True
        self._step_back(sequence)
        return False

    def _step_back(self, sequence: Sequence) -> None:
        """Unpin a loaded request; it stays in the queue and is found anew, as things are then."""
        path.give_back(self._cache, sequence, self._pool)
        self.crowded = True


def _slots_in_use(running: list[Sequence]) -> int:
    """Slots of running requests, shared ones counted once."""
    if not running:
        return 0
    return len(torch.unique(torch.cat([sequence.page_table for sequence in running])))
