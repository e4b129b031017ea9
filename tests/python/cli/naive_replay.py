"""A model of `Replay` that is too simple to be wrong: what the extension's answers are compared with.

Each tier is one ordered dict of pages, oldest first. A page is named by its whole prefix. A request looks its
prompt up from the front, is inserted whole, touched from its last page to its first, and the oldest pages
go until the size fits (so a request longer than the tier loses its own tail).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence


class NaiveReplay:
    """The same calls as `hicache._hicache.Replay`; sizes in pages, amounts in units."""

    def __init__(self, page_size: int, device: int | None, host: int | None, storage: bool) -> None:
        self._page_size = page_size
        self._sizes = (device, host)
        self._tiers: tuple[OrderedDict[int, None], ...] = (OrderedDict(), OrderedDict())
        self._stores = storage
        self._seen: set[int] = set()
        self._evicted = [0, 0]
        self._names: dict[tuple[int, tuple[int, ...]], int] = {}

    def request(self, tokens: Sequence[int], prompt: int) -> tuple[int, int, int, int]:
        """Hits on device, host and storage, and what could have hit at most."""
        pages = self._pages(tokens)
        looked_up = pages[: prompt // self._page_size]
        device, host = self._tiers
        on_device = _prefix(looked_up, device)
        on_host = max(on_device, _prefix(looked_up, device.keys() | host.keys()))
        stored = max(on_host, _prefix(looked_up, self._seen)) if self._stores else on_host
        ceiling = _prefix(looked_up, self._seen)
        self._insert(pages)
        amounts = (on_device, on_host - on_device, stored - on_host, ceiling)
        return tuple(amount * self._page_size for amount in amounts)  # type: ignore[return-value]

    def evicted(self) -> tuple[int, int]:
        return self._evicted[0], self._evicted[1]

    def resident(self) -> tuple[int, int, int]:
        return len(self._tiers[0]), len(self._tiers[1]), len(self._seen) if self._stores else 0

    def _pages(self, tokens: Sequence[int]) -> list[int]:
        names, before, size = [], -1, self._page_size
        for end in range(size, len(tokens) + 1, size):
            before = self._names.setdefault((before, tuple(tokens[end - size : end])), len(self._names))
            names.append(before)
        return names

    def _insert(self, pages: list[int]) -> None:
        self._seen.update(pages)
        for number, (tier, size) in enumerate(zip(self._tiers, self._sizes, strict=True)):
            if size == 0:
                continue
            for page in reversed(pages):
                tier[page] = None
                tier.move_to_end(page)
            while size is not None and len(tier) > size:
                tier.popitem(last=False)
                self._evicted[number] += 1


def _prefix(pages: list[int], present: Container[int]) -> int:
    for count, page in enumerate(pages):
        if page not in present:
            return count
    return len(pages)
