"""Stores that break one clause each, for the kit to catch."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from plain_file import PlainFileStore

from hicache.storage import Outcome, Page, Store
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

HIT, ABSENT, FAILED = Outcome.HIT, Outcome.ABSENT, Outcome.FAILED
Keys = Sequence[bytes]
Pages = Sequence[Page]


class TwiceTheAnswers(MemoryStore):
    def exists(self, identity: bytes, keys: Keys) -> Any:
        return [answer for answer in super().exists(identity, keys) for _ in range(2)]


class OtherOrder(MemoryStore):
    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        return list(super().get(identity, keys, pages))[::-1]


class Booleans(MemoryStore):
    def exists(self, identity: bytes, keys: Keys) -> Any:
        return [answer is HIT for answer in super().exists(identity, keys)]


class NoEmptyBatch(MemoryStore):
    def exists(self, identity: bytes, keys: Keys) -> Any:
        assert keys[0]
        return super().exists(identity, keys)


class At128(MemoryStore):
    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        done = super().put(identity, keys[:128], parents[:128], pages[:128])
        return [*done, *[FAILED] * len(keys[128:])]


class OncePerBatch(MemoryStore):
    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        found = dict(zip(keys, super().put(identity, keys, parents, pages), strict=True))
        return list(found.values())


class WholeSectors(MemoryStore):
    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        outcomes = super().get(identity, keys, pages)
        for page in pages:
            if rest := page.runs[-1].nbytes % 512:
                page.runs[-1][-rest:] = bytes(rest)
        return outcomes


class FirstRun(MemoryStore):
    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        first = [Page.of(bytes(page.runs[0]).ljust(page.nbytes, b"\0")) for page in pages]
        return super().put(identity, keys, parents, first)


class NoCopies(MemoryStore):
    """Keeps what it was given instead of its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[bytes, bytes], Page] = {}

    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        self.kept |= {(identity, key): Page(list(page.runs)) for key, page in zip(keys, pages, strict=True)}
        return super().put(identity, keys, parents, pages)

    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        outcomes = super().get(identity, keys, pages)
        for key, page in zip(keys, pages, strict=True):
            if (identity, key) in self.kept:
                page.write(self.kept[identity, key].read())
        return outcomes


class KeepsArrays(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[Any] = []

    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        self.arrays += [np.frombuffer(run, np.uint8) for page in pages for run in page.runs]
        return super().get(identity, keys, pages)


class LateWriter(MemoryStore):
    """Writes once more when it is closed, through an address that it kept."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[Any] = []

    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        self.buffers += [run.obj for page in pages for run in page.runs]
        return super().get(identity, keys, pages)

    def close(self) -> None:
        for buffer in self.buffers:
            buffer[0] ^= 1
        self.buffers.clear()
        super().close()


class LengthBlind(MemoryStore):
    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        found = []
        for key, page in zip(keys, pages, strict=True):
            entry = self._pages.get((identity, key))
            if entry:
                page.write(entry.payload[: page.nbytes].ljust(page.nbytes, b"\0"))
            found.append(HIT if entry else FAILED if self._closed else ABSENT)
        return found


class ShortIsAbsent(MemoryStore):
    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        found = super().get(identity, keys, pages)
        return [ABSENT if outcome is Outcome.SHORT else outcome for outcome in found]


class NeverMends(MemoryStore):
    def remove(self, identity: bytes, keys: Keys) -> Any:
        return [HIT for _ in keys]


class OneIdentity(Double):
    def exists(self, identity: bytes, keys: Keys) -> Any:
        return super().exists(bytes(32), keys)

    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        return super().get(bytes(32), keys, pages)

    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        return super().put(bytes(32), keys, parents, pages)


class HalfNames(Double):
    def exists(self, identity: bytes, keys: Keys) -> Any:
        return super().exists(identity, [key[:16] for key in keys])

    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        return super().get(identity, [key[:16] for key in keys], pages)

    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        return super().put(identity, [key[:16] for key in keys], parents, pages)


class Overwrites(MemoryStore):
    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        self.remove(identity, keys)
        return super().put(identity, keys, parents, pages)


class RemovesAll(MemoryStore):
    def remove(self, identity: bytes, keys: Keys) -> Any:
        outcomes = super().remove(identity, keys)
        self._pages.clear()
        return outcomes


class ClearsAll(MemoryStore):
    def clear(self, identity: bytes) -> int:
        count = super().clear(identity)
        self._pages.clear()
        return count


class ClearsNothing(MemoryStore):
    def clear(self, identity: bytes) -> int:
        return sum(name[0] == identity for name in self._pages)


class ListsOneIdentity(MemoryStore):
    def list(self) -> Any:
        held = list(super().list())
        return [item for item in held if item.identity == held[0].identity]


class ComesBack(MemoryStore):
    """A put publishes whatever was removed meanwhile."""

    def _publish(self, name: Any, parent: Any, payload: bytes, number: int) -> Outcome:
        return super()._publish(name, parent, payload, 1 << 62)


class InPieces(MemoryStore):
    """A page is there before all of it is."""

    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        for key, page in zip(keys, pages, strict=True):
            super().put(identity, [key], [None], [Page.of(bytes(3000))])
            entry = self._pages[identity, key]
            entry.payload = page.read()
        return [HIT] * len(keys)


class OneScratch(MemoryStore):
    """All threads copy through the same buffer."""

    scratch = b""

    def put(self, identity: bytes, keys: Keys, parents: Any, pages: Pages) -> Any:
        outcomes = []
        for key, parent, page in zip(keys, parents, pages, strict=True):
            self.scratch = page.read()
            time.sleep(1e-5)
            outcomes += super().put(identity, [key], [parent], [Page.of(self.scratch)])
        return outcomes


class NeverCloses(MemoryStore):
    def close(self) -> None:
        threading.Event().wait(5)
        super().close()


class OpenAfterClose(MemoryStore):
    def close(self) -> None:
        return


class Raises(MemoryStore):
    def close(self) -> None:
        if self._closed:
            raise ValueError("closed already")
        super().close()


class HangsOnceClosed(MemoryStore):
    def get(self, identity: bytes, keys: Keys, pages: Pages) -> Any:
        if self._closed:
            threading.Event().wait(5)
        return super().get(identity, keys, pages)


class Unbounded(MemoryStore):
    def _make_room(self, need: int, parent: Any) -> bool:
        return True


class FailsWhenFull(MemoryStore):
    def _make_room(self, need: int, parent: Any) -> bool:
        if self._bytes + need > (self._capacity or 0):
            raise OSError("no space left on device")
        return True


class EvictsInVain(MemoryStore):
    def _make_room(self, need: int, parent: Any) -> bool:
        while self._pages and self._bytes + need > (self._capacity or 0):
            self._drop(next(iter(self._pages)))
        return self._bytes + need <= (self._capacity or 0)


class NoPickles(PlainFileStore):
    """Its objects are pickles."""

    def _put(self, name: tuple[bytes, bytes], page: Page, number: int) -> Outcome:
        return super()._put(name, Page.of(pickle.dumps(page.read())), number)

    def _get(self, path: Path, page: Page) -> Outcome:
        if not path.exists():
            return ABSENT
        try:
            return HIT if page.write(pickle.loads(path.read_bytes())) else Outcome.CORRUPT
        except Exception:
            path.unlink()
            return Outcome.CORRUPT


class RaisesOnShort(PlainFileStore):
    def _get(self, path: Path, page: Page) -> Outcome:
        if path.exists() and path.stat().st_size < page.nbytes:
            raise EOFError(path)
        return super()._get(path, page)


class RaisesOnGone(PlainFileStore):
    def _get(self, path: Path, page: Page) -> Outcome:
        content = path.read_bytes()
        return HIT if page.write(content) else Outcome.CORRUPT


def opened(kind: type[Store]) -> Any:
    """As a kit opens it, at a place or nowhere."""
    if issubclass(kind, PlainFileStore):
        return lambda _, where: kind(where)
    if issubclass(kind, Double):
        return lambda _, where: kind(MemoryStore())
    return lambda _, where: kind()
