"""`Store`: any place for pages outside of memory. This is the specification that every store is held to.

For: people who write one, and those who call one. `hicache.testing.stores` checks every clause.
Knows names and bytes. Refuses to know tokens, requests, models and engines.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from hicache.errors import ArgumentError


class Outcome(Enum):
    """What became of one key."""

    #: Read whole, written whole, present, or removed.
    HIT = "hit"
    #: Not there.
    ABSENT = "absent"
    #: There, but with fewer bytes than the page has. It was taken out of the way.
    SHORT = "short"
    #: There, but not what was written. It was taken out of the way.
    CORRUPT = "corrupt"
    #: The store could not do it.
    FAILED = "failed"
    #: The store did not do it in time.
    TIMED_OUT = "timed_out"
    #: Given up before it was tried.
    CANCELLED = "cancelled"
    #: Not taken: no room for it, or the store's rules don't want it. No fault.
    DECLINED = "declined"


#: Outcomes as the core numbers them.
OUTCOMES = tuple(Outcome)
NUMBERS = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Page:
    """The bytes of one page: runs of memory (memoryviews of bytes), which together are its payload.

    They belong to the call that has them. Afterwards they are released: reading one raises `ValueError`.
    """

    __slots__ = ("runs",)

    def __init__(self, runs: Sequence[memoryview]) -> None:
        self.runs = runs

    @classmethod
    def of(cls, buffer: Any) -> Page:
        """A page in one run, over anything with the buffer protocol."""
        return cls([memoryview(buffer).cast("B")])

    @property
    def nbytes(self) -> int:
        """Size of the payload."""
        return sum(run.nbytes for run in self.runs)

    def read(self) -> bytes:
        """A copy of the payload in one piece."""
        return b"".join(self.runs)

    def write(self, payload: Any) -> bool:
        """Fills it with a payload of its size; False, and nothing done, if that has another one."""
        rest = memoryview(payload).cast("B")
        if rest.nbytes != self.nbytes:
            return False
        for run in self.runs:
            run[:] = rest[: run.nbytes]
            rest = rest[run.nbytes :]
        return True


class Held(NamedTuple):
    """A page that a store holds: whose, which, the size of its payload, and seconds since it was written."""

    identity: bytes
    key: bytes
    bytes: int
    age: int


class Store(ABC):
    """Pages by name, whole and the very bytes that were put, or not at all.

    A name is an identity and a key, 32 bytes each: the same key under two identities names two pages. Calls
    come in batches; each list has as many items as `keys`.

    1. **One answer a key.** Every key of a batch is answered, in its order, whatever happens to the others.
       A call that raises, or answers anything else, has failed for all of its keys.
    2. **Whole or absent.** Only what is whole is published: after a crash at any moment, and to any other
       reader while it is written, a page is there with its bytes, or absent.
    3. **The very bytes.** `get` answers HIT only with the bytes that were put under this key *and* this
       identity. What the store itself finds damaged is SHORT or CORRUPT, is taken out of the way, and a later
       `put` of the key mends it. An object shorter than the page is SHORT, never absent, never a HIT.
    4. **Written once.** Putting a present key answers HIT and changes nothing.
    5. **Acknowledged.** A `put` that answered HIT survives the death of the process, in stores that outlive
       it. After a loss of power a page may be missing, never wrong.
    6. **Removal wins** over every put that began before it: when both have returned, the page is absent.
    7. **Bounded.** Room is made by giving up pages, of which a parent goes after its children; or the page is
       DECLINED. Nothing is ever written beyond what the store was given.
    8. **Any thread, at once.** Calls come from several threads and may block; no request waits for them but
       the one whose pages they are. Nothing is kept of a call's pages after it has returned: no view, no
       array or tensor over one, no transfer under way. Copy (`page.read()`).
    9. **Closed.** After `close`, which returns in bounded time, calls answer FAILED and touch nothing.

    A store that breaks 1 or hangs loses that call's pages (`FAILED`, `TIMED_OUT`), one that breaks 8 loses
    its call until it has let go. Unless it is trusted (`served(store, verify=False)`) every page goes through
    it with a checksum of its own, so that one that breaks 3 loses pages and never serves wrong ones.
    """

    @abstractmethod
    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        """Which keys are there: HIT or ABSENT. No bytes are read; a later `get` may still answer
        otherwise."""

    @abstractmethod
    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        """Reads pages, each as long as its `Page`. Where the outcome isn't HIT, its bytes are undefined."""

    @abstractmethod
    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        """Writes pages: HIT, DECLINED or FAILED. `parents`: for each the key of the page without which it is
        worth nothing, or None. Pages are read-only."""

    @abstractmethod
    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        """Removes pages: HIT for what was there and is gone, ABSENT for what was not."""

    @abstractmethod
    def clear(self, identity: bytes) -> int:
        """Removes all pages of an identity, and nothing else; how many there were. Raises if it can't."""

    @abstractmethod
    def close(self) -> None:
        """Ends it: lets go of files, threads and memory. A second time does nothing."""

    def statistics(self) -> Mapping[str, int | None]:
        """What it holds: `pages`, `bytes`, `capacity` (None: unbounded), and how many pages it gave up:
        `evicted_pages`, `expired_pages`; those that it knows. Asked for after every call: it must be
        cheap."""
        return {}

    def list(self) -> Sequence[Held]:
        """All that it holds, for maintenance; may take long. Raises if it can't tell."""
        raise NotImplementedError(f"{type(self).__name__} can't list its pages")

    def compact(self) -> int:
        """Gives back room that it takes for nothing; bytes that were given back."""
        return 0

    def describe(self) -> str:
        """What it is, for people: one line."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def age(written: float) -> int:
    """Seconds since a time of `time.time()`; 0 if the clock went back."""
    return max(0, int(time.time() - written))


def check_names(identity: bytes, keys: Sequence[bytes]) -> None:
    """`ArgumentError` for what is no name."""
    for argument, name in [("identity", identity), *(("keys", key) for key in keys)]:
        if not isinstance(name, bytes) or len(name) != 32:
            raise ArgumentError(f"{argument}: need 32 bytes, got {name!r}")
