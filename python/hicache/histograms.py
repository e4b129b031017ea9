"""How long work took and how much of it there was, and what requests got: histograms, always on.

What each means: docs/metrics.md. Decides nothing. On error: nothing here fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache import _hicache


@dataclass(frozen=True)
class Histogram:
    """What was seen so far: nothing in it ever goes down."""

    #: The largest value of each place but the last, ascending: in seconds, pages or tokens, as the name says.
    bounds: tuple[float, ...]
    #: How many values were in each place; the last one has those beyond the last bound.
    counts: tuple[int, ...]
    #: All values together.
    sum: float

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class WithHistograms:
    """What `HiCache` measures."""

    _core: _hicache.Cache

    def histograms(self) -> dict[str, Histogram]:
        """Histograms by name: `backup`, `load`, `store`, `read` and `exists`, each with `_seconds` and
        `_pages`, and of loaded requests `request_wait_seconds`, `request_prompt_tokens` and
        `request_TIER_tokens` of three tiers.

        Waits for nobody; stays after `close`. What a thread is just telling may be in the counts and not yet
        in the sum."""
        return {
            name: Histogram(tuple(bounds), tuple(counts), total)
            for name, (bounds, counts, total) in self._core.histograms()
        }
