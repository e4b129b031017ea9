"""`MemoryStore`: a store in a dictionary, for tests and as an example of one that keeps every clause.

`Removals` is what clause 6 costs: a put that began before a removal must not publish after it.
On error: outcomes. Knows nothing of how pages are verified: whoever wraps it does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hicache.storage import Held, Outcome, Page, Store
from hicache.storage.store import age

#: An identity and a key.
Name = tuple[bytes, bytes]


class Removals:
    """Which names were removed while puts were under way. Its owner's mutex is held around every call."""

    def __init__(self) -> None:
        self._clock = 0
        self._began: list[int] = []
        self._removed: dict[Name | bytes, int] = {}

    def begin(self) -> int:
        """A put begins; its number."""
        self._clock += 1
        self._began.append(self._clock)
        return self._clock

    def end(self, number: int) -> None:
        """It has ended. What no put under way needs any more is forgotten."""
        self._began.remove(number)
        oldest = min(self._began, default=self._clock + 1)
        self._removed = {name: at for name, at in self._removed.items() if at > oldest}

    def remove(self, name: Name | bytes) -> None:
        """A name, or all of an identity, is removed."""
        self._clock += 1
        if self._began:
            self._removed[name] = self._clock

    def hit(self, name: Name, number: int) -> bool:
        """Whether this put's page was removed after the put began."""
        return max(self._removed.get(name, 0), self._removed.get(name[0], 0)) > number


@dataclass
class _Entry:
    payload: bytes
    parent: Name | None
    written: float
    children: int = 0


class MemoryStore(Store):
    """Pages in a dictionary, at most `capacity` bytes of them (None: unbounded). The oldest go first."""

    def __init__(self, capacity: int | str | None = None) -> None:
        self._capacity = None if capacity is None else int(capacity)
        self._mutex = threading.Lock()
        self._pages: dict[Name, _Entry] = {}
        self._removals = Removals()
        self._bytes = self._evicted = 0
        self._closed = False

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        with self._mutex:
            return [self._found((identity, key)) for key in keys]

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        with self._mutex:
            found = [self._pages.get((identity, key)) for key in keys]
            closed = self._closed
        outcomes = []
        for key, entry, page in zip(keys, found, pages, strict=True):
            if closed or entry is None:
                outcomes.append(Outcome.FAILED if closed else Outcome.ABSENT)
            elif page.write(entry.payload):
                outcomes.append(Outcome.HIT)
            else:
                self.remove(identity, [key])
                short = len(entry.payload) < page.nbytes
                outcomes.append(Outcome.SHORT if short else Outcome.CORRUPT)
        return outcomes

    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        with self._attempt() as number:
            outcomes = []
            for key, parent, page in zip(keys, parents, pages, strict=True):
                payload = page.read()
                above = None if parent is None else (identity, parent)
                with self._mutex:
                    outcomes.append(self._publish((identity, key), above, payload, number))
            return outcomes

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        with self._mutex:
            outcomes = [self._found((identity, key)) for key in keys]
            for key in keys:
                self._drop((identity, key))
            return outcomes

    def clear(self, identity: bytes) -> int:
        with self._mutex:
            if self._closed:
                raise ValueError("the store is closed")
            names = [name for name in self._pages if name[0] == identity]
            for name in names:
                self._drop(name)
            self._removals.remove(identity)
            return len(names)

    def statistics(self) -> Mapping[str, int | None]:
        with self._mutex:
            return {
                "pages": len(self._pages),
                "bytes": self._bytes,
                "capacity": self._capacity,
                "evicted_pages": self._evicted,
            }

    def list(self) -> Sequence[Held]:
        with self._mutex:
            return [Held(*name, len(e.payload), age(e.written)) for name, e in self._pages.items()]

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._pages.clear()
            self._bytes = 0

    @contextmanager
    def _attempt(self) -> Iterator[int]:
        with self._mutex:
            number = self._removals.begin()
        try:
            yield number
        finally:
            with self._mutex:
                self._removals.end(number)

    def _found(self, name: Name) -> Outcome:
        if self._closed:
            return Outcome.FAILED
        return Outcome.HIT if name in self._pages else Outcome.ABSENT

    def _publish(self, name: Name, parent: Name | None, payload: bytes, number: int) -> Outcome:
        if self._closed:
            return Outcome.FAILED
        if self._removals.hit(name, number):
            return Outcome.CANCELLED
        if name in self._pages:
            return Outcome.HIT
        if not self._make_room(len(payload), parent):
            return Outcome.DECLINED
        self._pages[name] = _Entry(payload, parent, time.time(), self._children(name))
        self._bytes += len(payload)
        if parent in self._pages:
            self._pages[parent].children += 1
        return Outcome.HIT

    def _children(self, name: Name) -> int:
        """Pages that came before their parent."""
        return sum(entry.parent == name for entry in self._pages.values()) if self._capacity else 0

    def _make_room(self, need: int, parent: Name | None) -> bool:
        """Gives up the oldest pages without children, but not the parent of the page that comes."""
        if self._capacity is None:
            return True
        while self._bytes + need > self._capacity:
            leaf = next((n for n, e in self._pages.items() if not e.children and n != parent), None)
            if leaf is None or need > self._capacity:
                return False
            self._drop(leaf)
            self._evicted += 1
        return True

    def _drop(self, name: Name) -> None:
        self._removals.remove(name)
        entry = self._pages.pop(name, None)
        if entry is None:
            return
        self._bytes -= len(entry.payload)
        if entry.parent in self._pages:
            self._pages[entry.parent].children -= 1
