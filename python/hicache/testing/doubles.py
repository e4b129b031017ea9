"""Stores that misbehave, around any store: to see what a cache, or an engine, makes of it.

    store = Faulty(MemoryStore(), {Fault.FLIP: 0.1}, seed=7)        # a tenth of all calls
    store = Faulty(MemoryStore(), [None, Fault.FAIL, Fault.HANG])   # the second and the third call, then none
    store = Faulty(MemoryStore(), lambda turn: Fault.LIE if turn.verb == "exists" else None)

`injected` counts what was done, so that a test can tell that its fault has happened. The same seed and the
same calls give the same faults.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from hicache.storage import Held, Outcome, Page, Store


class Fault(Enum):
    """What can be wrong with a call. Those that say so answer HIT all the same."""

    #: Raises, having done nothing.
    FAIL = "fail"
    #: Does nothing and answers FAILED for half of the keys; the others are done.
    HALF = "half"
    #: Takes `delay` seconds longer.
    SLOW = "slow"
    #: Does not return before `release` or `close`.
    HANG = "hang"
    #: One bit of one page is another one (get: of what is read; put: of what is stored), HIT.
    FLIP = "flip"
    #: The last byte of one page is missing, HIT.
    SHORT = "short"
    #: One page has the bytes of another key, HIT.
    WRONG_KEY = "wrong_key"
    #: Answers come in another order than keys.
    REORDER = "reorder"
    #: Every answer comes twice.
    DUPLICATE = "duplicate"
    #: An answer is no outcome.
    NONSENSE = "nonsense"
    #: `exists` answers HIT for what isn't there, `get` for what it hasn't read.
    LIE = "lie"
    #: `put` and `remove` answer HIT and do nothing.
    DROP = "drop"
    #: Views of the call's pages are kept, written to and read after it (`touch`).
    KEEP = "keep"


class Turn(NamedTuple):
    """A call that may go wrong: which verb, and how many calls there were, this one included."""

    verb: str
    number: int
    keys: Sequence[bytes]


#: Chances by fault; faults by call, until they are used up; or a function.
Plan = Mapping[Fault, float] | Iterable[Fault | None] | Callable[[Turn], Fault | None]
#: What some faults are about; others are about any verb with keys.
_ONLY = {
    Fault.FLIP: ("get", "put"),
    Fault.SHORT: ("get", "put"),
    Fault.WRONG_KEY: ("get", "put"),
    Fault.LIE: ("exists", "get"),
    Fault.DROP: ("put", "remove"),
    Fault.KEEP: ("get", "put"),
}


class Double(Store):
    """A store that does what another one does."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return self.inner.exists(identity, keys)

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        return self.inner.get(identity, keys, pages)

    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        return self.inner.put(identity, keys, parents, pages)

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return self.inner.remove(identity, keys)

    def clear(self, identity: bytes) -> int:
        return self.inner.clear(identity)

    def statistics(self) -> Mapping[str, int | None]:
        return self.inner.statistics()

    def list(self) -> Sequence[Held]:
        return self.inner.list()

    def compact(self) -> int:
        return self.inner.compact()

    def describe(self) -> str:
        return self.inner.describe()

    def close(self) -> None:
        self.inner.close()


class Faulty(Double):
    """A store around `inner` whose calls go wrong by a plan."""

    def __init__(self, inner: Store, plan: Plan, *, seed: int = 0, delay: float = 0.05) -> None:
        super().__init__(inner)
        self.injected: Counter[Fault] = Counter()
        self.calls: Counter[str] = Counter()
        self._random, self._mutex = random.Random(seed), threading.Lock()
        self._delay, self._released = delay, threading.Event()
        self._plan = _planned(plan, self._random)
        self._kept: list[memoryview] = []

    def release(self) -> None:
        """Lets go of what hangs, now and from now on."""
        self._released.set()

    def touch(self) -> int:
        """Writes to every view that was kept; how many could be written to."""
        written = 0
        for view in self._kept:
            try:
                view[:] = bytes([0xAB]) * view.nbytes
                written += 1
            except (ValueError, TypeError):
                continue
        return written

    def close(self) -> None:
        self.release()
        super().close()

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        fault = self._fault("exists", keys)
        if fault is Fault.LIE:
            return [Outcome.HIT] * len(keys)
        return self._answers(fault, keys, lambda keys, _: self.inner.exists(identity, keys))

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        fault = self._fault("remove", keys)
        if fault is Fault.DROP:
            return [Outcome.HIT] * len(keys)
        return self._answers(fault, keys, lambda keys, _: self.inner.remove(identity, keys))

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        fault = self._fault("get", keys)
        if fault is Fault.LIE:
            return [Outcome.HIT] * len(keys)
        if fault is Fault.WRONG_KEY and len(keys) > 1:
            keys = [*keys[1:], keys[0]]
        outcomes = self._answers(
            fault, keys, lambda keys, some: self.inner.get(identity, keys, [pages[at] for at in some])
        )
        if fault in (Fault.FLIP, Fault.SHORT):
            self._spoil(pages, fault)
            return [Outcome.HIT] * len(keys)
        if fault is Fault.KEEP:
            self._keep(pages)
        return outcomes

    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        fault = self._fault("put", keys)
        if fault is Fault.DROP:
            return [Outcome.HIT] * len(keys)
        if fault is Fault.KEEP:
            self._keep(pages)
        if fault in (Fault.FLIP, Fault.SHORT, Fault.WRONG_KEY):
            pages = self._copies(pages, fault)

        def ask(keys: Sequence[bytes], some: Sequence[int]) -> Sequence[Outcome]:
            return self.inner.put(identity, keys, [parents[at] for at in some], [pages[at] for at in some])

        return self._answers(fault, keys, ask)

    def _fault(self, verb: str, keys: Sequence[bytes]) -> Fault | None:
        """What is wrong with this call; what comes before it is done here."""
        with self._mutex:
            self.calls[verb] += 1
            fault = self._plan(Turn(verb, self.calls.total(), keys)) if keys else None
            if fault is not None and verb not in _ONLY.get(fault, (verb,)):
                fault = None
            if fault is not None:
                self.injected[fault] += 1
        if fault is Fault.FAIL:
            raise OSError(f"{verb}: an injected fault")
        if fault is Fault.SLOW:
            time.sleep(self._delay)
        if fault is Fault.HANG:
            self._released.wait()
        return fault

    def _answers(
        self,
        fault: Fault | None,
        keys: Sequence[bytes],
        ask: Callable[[Sequence[bytes], Sequence[int]], Sequence[Outcome]],
    ) -> Sequence[Outcome]:
        if fault is Fault.HALF:
            some = range(0, len(keys), 2)
            done = dict(zip(some, ask([keys[at] for at in some], some), strict=True))
            return [done.get(at, Outcome.FAILED) for at in range(len(keys))]
        answers = list(ask(keys, range(len(keys))))
        if fault is Fault.REORDER:
            return [*answers[1:], answers[0]]
        if fault is Fault.DUPLICATE:
            return [answer for answer in answers for _ in range(2)]
        if fault is Fault.NONSENSE:
            return [True, *answers[1:]]  # type: ignore[list-item]
        return answers

    def _spoil(self, pages: Sequence[Page], fault: Fault) -> None:
        with self._mutex:
            page = self._random.choice(pages)
            runs = [run for run in page.runs if run.nbytes]
            run = runs[-1] if fault is Fault.SHORT else self._random.choice(runs)
            at = run.nbytes - 1 if fault is Fault.SHORT else self._random.randrange(run.nbytes)
        run[at] ^= 0x10

    def _copies(self, pages: Sequence[Page], fault: Fault) -> list[Page]:
        copies = [Page.of(bytearray(page.read())) for page in pages]
        if fault is Fault.WRONG_KEY:
            return [*copies[1:], copies[0]]
        if fault is Fault.SHORT:
            return [*copies[:-1], Page.of(copies[-1].read()[:-1])]
        self._spoil(copies, fault)
        return copies

    def _keep(self, pages: Sequence[Page]) -> None:
        with self._mutex:
            self._kept += [run for page in pages for run in page.runs]


def _planned(plan: Plan, dice: random.Random) -> Callable[[Turn], Fault | None]:
    if isinstance(plan, Mapping):
        chances = dict(plan)
        return lambda _: next((fault for fault, chance in chances.items() if dice.random() < chance), None)
    if isinstance(plan, Iterable):
        rest = iter(plan)
        return lambda _: next(rest, None)
    return plan
