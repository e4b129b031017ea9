"""A store that carries no more than so many bytes a second: to see what waits for a slow disk or network.

Real bytes: only the time is longer. Reads and writes share the rate, in the order in which they are called.
On error: whatever the store behind it says; `ValueError` for a rate that isn't positive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from hicache.storage import Outcome, Page, Store
from hicache.testing.doubles import Double


class Throttled(Double):
    """A store around `inner`; `rate` in bytes a second."""

    def __init__(self, inner: Store, rate: float) -> None:
        super().__init__(inner)
        if not 0 < rate < float("inf"):
            raise ValueError(f"rate: must be a positive number of bytes a second, got {rate!r}")
        self._rate, self._mutex, self._free_at = rate, threading.Lock(), 0.0
        #: Bytes that it carried so far.
        self.carried = 0

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        outcomes = super().get(identity, keys, pages)
        # What isn't there costs nothing.
        found = zip(pages, outcomes, strict=True)
        self._carry(sum(_bytes(page) for page, outcome in found if outcome is Outcome.HIT))
        return outcomes

    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        self._carry(sum(map(_bytes, pages)))
        return super().put(identity, keys, parents, pages)

    def _carry(self, count: int) -> None:
        with self._mutex:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + count / self._rate
            self.carried += count
            wait = self._free_at - now
        time.sleep(wait)


def _bytes(page: Page) -> int:
    return sum(run.nbytes for run in page.runs)
