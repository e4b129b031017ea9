"""A store in Python that is named by its class, and whose pages outlive it: in this process."""

from __future__ import annotations

from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

_KEPT: dict[str, MemoryStore] = {}


class KeptPages(Double):
    """What was stored under the same `where` before."""

    def __init__(self, where: str) -> None:
        super().__init__(_KEPT.setdefault(where, MemoryStore()))

    def close(self) -> None:
        return
