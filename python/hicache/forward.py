"""A forward of the model that is under way while the cache's verbs are called (`HiCache.forward`).

Only a cache over one buffer must know of it: nowhere else do pages move. What it computes, and on which
thread, nobody here knows; it begins and ends on the thread that calls the verbs.
On error: `ArgumentError` for one that has ended already; one that is dropped is ended by the next poll.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hicache.cache import HiCache


class Forward:
    """Under way until `end`, or the end of its `with`. Exactly once, in any order among several."""

    def __init__(self, cache: HiCache, number: int) -> None:
        self._cache, self._number, self._ended = cache, number, False

    @property
    def ended(self) -> bool:
        """Whether it is through."""
        return self._ended

    def end(self) -> None:
        """It is through: nothing that it might use is in use by it any more. Also after `HiCache.close`."""
        self._cache._core.end_forward(self._number)
        self._ended = True

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self.end()

    def __del__(self) -> None:
        # Nothing that it might use would ever be had again: loud where warnings are errors.
        if not getattr(self, "_ended", True) and not self._cache.closed:
            self._cache._forgotten.append(partial(self._cache._core.end_forward, self._number))
            warnings.warn("a forward was dropped without end()", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<Forward {self._number}: {'ended' if self._ended else 'under way'}>"
