"""Threads that carry out the calls of a store that is written in Python.

The core's threads never take the interpreter's lock: they put a call on a desk and wait. A thread of a `Crew`
takes it, asks the store and ends the call; without calls it sleeps outside of the interpreter. One more
thread watches: of a call that isn't answered in time it takes the pages back, and a thread that the store
never gives back gets a successor. Nothing here waits for a store without a bound; all threads are daemons.
On error: what a store raises is a failed call and, once for each kind, a line in the log "hicache.storage".
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any
from weakref import WeakSet

from hicache import _hicache
from hicache.storage.store import NUMBERS, Held, Page, Store

log = logging.getLogger("hicache.storage")

#: Calls that may wait for a thread.
QUEUE = 256
#: Successors of threads that a store never gave back, at most.
SPARE = 64
#: Seconds that the interpreter waits at its end for stores to let go.
AT_EXIT = 2.0
#: Verbs after which a store holds something else.
CHANGES = ("put", "remove", "clear", "compact")


class Nonsense(Exception):
    """An answer that nobody can believe."""


class Crew:
    """The threads of one store."""

    def __init__(self, store: Store, threads: int, *, own: bool) -> None:
        """`own`: the store is closed with the desk even if nobody asked for that."""
        self.desk = _hicache.Desk(QUEUE)
        self._store, self._wanted, self._own = store, threads, own
        self._mutex = threading.Lock()
        self._has: dict[threading.Thread, _hicache.Call] = {}
        self._stuck: set[threading.Thread] = set()
        self._threads: set[threading.Thread] = set()
        self._said: set[tuple[str, str]] = set()
        self._closed = False
        self._tell()
        for _ in range(threads):
            self._start()
        self._watcher = threading.Thread(target=self._watch, name="hicache-store-watch", daemon=True)
        self._watcher.start()
        _alive.add(self)

    def close(self, timeout: float) -> None:
        """Ends the threads, as far as the store gives them back within so many seconds."""
        self.desk.close()
        deadline = time.monotonic() + timeout
        for thread in [*self._threads, self._watcher]:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="hicache-store", daemon=True)
        with self._mutex:
            self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        me = threading.current_thread()
        while (call := self.desk.take()) is not None:
            with self._mutex:
                self._has[me] = call
            self._carry_out(call)
            del call
            if self._surplus(me):
                return
        with self._mutex:
            self._threads.discard(me)
            last = self._own and not self._closed and not self._threads
        if last:
            self._ask_quietly(self._store.close)

    def _surplus(self, me: threading.Thread) -> bool:
        """Books that a call is over; whether a successor does this thread's work by now."""
        with self._mutex:
            del self._has[me]
            self._stuck.discard(me)
            surplus = len(self._threads) - len(self._stuck) > self._wanted
            if surplus:
                self._threads.discard(me)
        return surplus

    def _watch(self) -> None:
        while (call := self.desk.late()) is not None:
            if not call.revoke():
                self._say(call.verb, "kept", f"{call.verb} is over, and its pages' memory is still in use")
            self._succeed(call)
            del call

    def _succeed(self, call: _hicache.Call) -> None:
        """Starts a thread for the one that has this call."""
        with self._mutex:
            new = {thread for thread, has in self._has.items() if has is call} - self._stuck
            self._stuck |= new
            start = bool(new) and len(self._stuck) <= SPARE and not self.desk.closed
        if new and not self.desk.closed:
            self._say(call.verb, "late", f"{call.verb} did not answer in time")
        if start:
            self._start()

    def _carry_out(self, call: _hicache.Call) -> None:
        """Ends the call, whatever the store does."""
        try:
            over = _ask(call, self._store)()
        except BaseException as error:  # also what would end this thread: it has no other work
            # Nothing may keep the frames, which have the pages.
            nonsense = isinstance(error, (Nonsense, OverflowError))
            told = _told(error)
            why = str(error) if nonsense else told
            self._say(call.verb, type(error).__name__, why)
        else:
            if over:
                self._closed |= call.verb == "close"
                self._after(call.verb)
            else:
                self._say(call.verb, "kept", f"{call.verb} kept views of its pages")
            return
        call.fail(why.splitlines()[-1] if why else "failed", nonsense)

    def _after(self, verb: str) -> None:
        if verb in CHANGES:
            self._tell()

    def _tell(self) -> None:
        self._ask_quietly(self._tell_holds)

    def _tell_holds(self) -> None:
        said = self._store.statistics()
        capacity = said.get("capacity")
        names = ("pages", "bytes", "evicted_pages", "expired_pages")
        pages, size, evicted, expired = (int(said.get(name) or 0) for name in names)
        self.desk.holds(pages, size, None if capacity is None else int(capacity), evicted, expired)

    def _ask_quietly(self, ask: Callable[[], object]) -> None:
        try:
            ask()
        except Exception as error:
            self._say("statistics", type(error).__name__, _told(error))

    def _say(self, verb: str, kind: str, text: str) -> None:
        """Once for each kind."""
        with self._mutex:
            new = (verb, kind) not in self._said
            self._said.add((verb, kind))
        if new:
            log.warning("store %s: %s: %s", type(self._store).__qualname__, verb, text)


def _ask(call: _hicache.Call, store: Store) -> Callable[[], bool]:
    """Asks the store; what ends the call. No page outlives this frame but what the store kept."""
    verb, identity = call.verb, call.identity
    if verb in ("exists", "remove"):
        return _outcomes(call, getattr(store, verb)(identity, call.keys))
    if verb == "get":
        pages = [Page(runs) for runs in call.pages]
        return _outcomes(call, store.get(identity, call.keys, pages))
    if verb == "put":
        pages = [Page(runs) for runs in call.pages]
        return _outcomes(call, store.put(identity, call.keys, call.parents, pages))
    if verb == "list":
        held = [_held(item) for item in store.list()]
        return lambda: call.held(held)
    if verb == "close":
        store.close()
        return lambda: call.number(0)
    number = store.clear(identity) if verb == "clear" else store.compact()
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
        raise Nonsense(f"{verb}: {number!r} is no number of pages or bytes")
    return lambda: call.number(number)


def _outcomes(call: _hicache.Call, answers: Iterable[Any]) -> Callable[[], bool]:
    """One more than there are keys is enough to see that there are too many."""
    try:
        numbers = bytes(NUMBERS[answer] for answer in islice(answers, len(call.keys) + 1))
    except (KeyError, TypeError):
        raise Nonsense(f"{call.verb}: need one Outcome a key, got {type(answers).__name__}") from None
    return lambda: call.outcomes(numbers)


def _held(item: Held) -> tuple[bytes, bytes, int, int]:
    identity, key, size, seconds = item
    if len(identity) != 32 or len(key) != 32 or size < 0 or seconds < 0:
        raise Nonsense("list: a name is 32 bytes, and sizes and ages are not negative")
    return bytes(identity), bytes(key), int(size), int(seconds)


def _told(error: BaseException) -> str:
    """An exception as text. Its frames are emptied: they may have the pages of a call."""
    text = "".join(traceback.format_exception(error)).rstrip()
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        chain += [one.__cause__, one.__context__]
    return text


#: Crews whose threads run in this process.
_alive: WeakSet[Crew] = WeakSet()


def _at_exit() -> None:
    """A thread that wakes up in an interpreter that has ended can do nothing right."""
    for crew in list(_alive):
        crew.desk.close()
    for crew in list(_alive):
        crew.close(AT_EXIT)


atexit.register(_at_exit)
# A child has no thread of its parent's, and nothing to end.
os.register_at_fork(after_in_child=_alive.clear)
