"""What every clause of the kit builds on: how the store under test is opened, and pages that say what they
are.

On error: `AssertionError` that begins with the clause's number.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hicache.storage import Outcome, Page, Store

HIT, ABSENT = Outcome.HIT, Outcome.ABSENT
#: What a read may answer that isn't the page.
MISSES = frozenset(Outcome) - {HIT, Outcome.DECLINED}
#: What every page is filled with before it is read into.
POISON = 0xEE


def name(text: object) -> bytes:
    """32 bytes for anything that has a text."""
    return hashlib.sha256(repr(text).encode()).digest()


US, THEM = name("identity of ours"), name("identity of theirs")


def names(count: int, salt: object = "") -> list[bytes]:
    """So many keys."""
    return [name((salt, at)) for at in range(count)]


@lru_cache(maxsize=4096)
def payload(key: bytes, size: int, identity: bytes = US) -> bytes:
    """The `size` bytes of a page: another key's, identity's or size's are others."""
    return hashlib.shake_128(identity + key + size.to_bytes(8, "little")).digest(size)


class Sheet(Page):
    """A page in memory of its own: a buffer, viewed as runs of the given sizes."""

    __slots__ = ("buffer",)

    def __init__(self, content: bytes | int, runs: Sequence[int] = (), *, read_only: bool = False) -> None:
        poison = isinstance(content, int)
        self.buffer = bytearray([POISON]) * content if isinstance(content, int) else bytearray(content)
        whole = memoryview(self.buffer)
        whole = whole.toreadonly() if read_only and not poison else whole
        views, at = [], 0
        for size in runs or [len(self.buffer)]:
            views.append(whole[at : at + size])
            at += size
        assert at == len(self.buffer), "a bug of the kit: runs are not the page"
        super().__init__(views)


def cut(size: int, parts: int) -> list[int]:
    """Sizes of so many runs, as uneven as can be; some may be empty."""
    runs = []
    for left in range(parts, 1, -1):
        runs.append(min(size, max(0, size // left - left)))
        size -= runs[-1]
    return [*runs, size]


class Base:
    """How to get the store under test. Override `open`, and what else doesn't fit."""

    #: Whether pages are there again when the same place is opened anew.
    persistent = True
    #: Whether several stores, of several processes too, may have the same place open at once.
    shared = False
    #: Whether it finds out by itself that bytes aren't those that were put. One that doesn't is safe in a
    #: cache,
    #: which puts a checksum before every page, and is not asked for it here.
    verifies = True
    #: Sizes of pages in bytes, odd ones too. A store that takes only some declines the others.
    sizes: Sequence[int] = (1, 511, 512, 513, 4096, 65_537)
    #: Seconds in which anything that is not a bug ends.
    patience = 20.0
    #: Children that write and are killed.
    kills = 5

    def open(self, where: Path) -> Store:
        """The store at a place (a directory of its own, which may not exist yet): a fresh one, or what an
        earlier one has left there."""
        raise NotImplementedError("override open(where)")

    def open_bounded(self, where: Path, capacity: int) -> Store | None:
        """The same with room for so many bytes. None: it can't be bounded from here."""
        return None

    def objects(self, where: Path) -> Sequence[Path]:
        """Files at the place that hold pages, of a closed store, for the kit to damage. None: it can't be."""
        return ()

    def put(
        self,
        store: Store,
        keys: Sequence[bytes],
        size: int,
        *,
        identity: bytes = US,
        parents: Sequence[bytes | None] | None = None,
    ) -> list[Outcome]:
        """Puts the pages that the keys stand for."""
        pages = [Sheet(payload(key, size, identity), read_only=True) for key in keys]
        outcomes = store.put(identity, keys, parents or [None] * len(keys), pages)
        return answers("put", keys, outcomes)

    def get(self, store: Store, keys: Sequence[bytes], size: int, *, identity: bytes = US) -> list[Outcome]:
        """Reads them; every HIT must be the very bytes."""
        pages = [Sheet(size) for _ in keys]
        outcomes = answers("get", keys, store.get(identity, keys, pages))
        for key, page, outcome in zip(keys, pages, outcomes, strict=True):
            if outcome is HIT:
                same = page.buffer == payload(key, size, identity)
                assert same, f"clause 3: get answers HIT with other bytes than were put ({size} bytes)"
            else:
                assert outcome in MISSES, f"clause 1: get can't answer {outcome}"
        return outcomes

    def within(self, what: str, act: Callable[[], Any]) -> Any:
        """What `act` returns, on a thread of its own; a call that doesn't end fails."""
        result: list[Any] = []

        def run() -> None:
            try:
                result.append((act(), None))
            except BaseException as error:
                result.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience)
        assert result, f"{what} did not end within {self.patience} s"
        value, error = result[0]
        if error is not None:
            raise error
        return value


def answers(verb: str, keys: Sequence[bytes], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, one for each key."""
    found = list(outcomes)
    wrong = [answer for answer in found if not isinstance(answer, Outcome)]
    assert not wrong, f"clause 1: {verb} answers {wrong[0]!r}, which is no Outcome"
    assert len(found) == len(keys), f"clause 1: {verb} gives {len(found)} answers for {len(keys)} keys"
    return found


def all_are(outcome: Outcome, found: Sequence[Outcome], what: str) -> None:
    """Every one of them."""
    assert set(found) <= {outcome}, (
        f"{what}: {[answer.value for answer in found if answer is not outcome][:5]}"
    )
