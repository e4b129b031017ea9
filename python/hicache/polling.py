"""What finished, and the time: they enter a cache through `poll` alone.

On error: `ArgumentError` names the argument, before anything was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hicache import _hicache
from hicache.config import moment, whole_number
from hicache.errors import ArgumentError


class Polling:
    """What `HiCache` does with finished transfers and the passing of time."""

    _core: _hicache.Cache
    #: Of hits and forwards that were dropped: what lets go of them.
    _forgotten: list[Callable[[], object]]
    #: The engine's clock, as the difference to the monotonic one.
    _skew: float

    def ready(self) -> tuple[int, int, int, int, int]:
        """How many leading backups, loads, stores, prefetches and strays (past their deadline, landed after
        all) have ended, for `poll`'s limits."""
        return self._core.ready()

    def poll(
        self, limits: tuple[int, int, int, int, int] | None = None, *, at: float | None = None
    ) -> tuple[int, int, int, int, int]:
        """First thing in each step: applies what has ended, in order, and lets deadlines pass. `limits`: at
        most so many of each kind, as `ready` counts them. `at`: now, in seconds (default: a monotonic clock).
        Returns what was applied."""
        while self._forgotten:
            self._forgotten.pop()()
        counts = None if limits is None else _counts(limits)
        return self._core.poll(counts, self._now(at))

    def drain(self, timeout: float) -> bool:
        """Polls until no transfer is under way; False if that takes more than `timeout` seconds."""
        return self._settle(self._core.pending, timeout)

    def _now(self, at: float | None) -> float:
        """Seconds on the engine's clock, which goes on by itself between the times that it tells."""
        monotonic = time.monotonic()
        if at is not None:
            self._skew = moment("at", at) - monotonic
        return monotonic + self._skew

    if TYPE_CHECKING:

        def _settle(self, under_way: Callable[[], int], timeout: float) -> bool: ...


def _counts(limits: Sequence[int]) -> tuple[int, int, int, int, int]:
    if not isinstance(limits, Sequence) or len(limits) != 5:
        raise ArgumentError(f"limits: need five counts, as ready() gives them, got {limits!r}")
    backups, loads, stores, prefetches, strays = (whole_number("limits", count, least=0) for count in limits)
    return backups, loads, stores, prefetches, strays
