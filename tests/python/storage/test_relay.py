"""How a store in Python is served: threads, memory, time, the end of the process. Only ends are timed."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hicache import ArgumentError, _hicache
from hicache.storage import Held, Opened, Outcome, Page, Store, open, served  # noqa: A004
from hicache.storage.serve import Crew
from hicache.testing.doubles import Double, Fault, Faulty
from hicache.testing.memory import MemoryStore

WHOSE = bytes(32)
KEYS = [bytes([at]) * 32 for at in range(4)]
HIT, FAILED, TIMED_OUT = Outcome.HIT, Outcome.FAILED, Outcome.TIMED_OUT
SIZE = 1000


def put(store: Store, keys: Sequence[bytes] = KEYS) -> list[Outcome]:
    pages = [Page.of((key * 40)[:SIZE]) for key in keys]
    return list(store.put(WHOSE, list(keys), [None] * len(keys), pages))


def get(store: Store, keys: Sequence[bytes] = KEYS) -> list[Outcome]:
    buffers = [bytearray(SIZE) for _ in keys]
    outcomes = list(store.get(WHOSE, list(keys), [Page.of(buffer) for buffer in buffers]))
    for key, buffer, outcome in zip(keys, buffers, outcomes, strict=True):
        assert outcome is not HIT or buffer == (key * 40)[:SIZE]
    return outcomes


def until(what: str, there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def crew(store: Store, threads: int = 2, timeout: float = 0.3) -> tuple[Crew, Opened]:
    """A store and who serves it."""
    served_by = Crew(store, threads, own=False)
    core = _hicache.Store.relayed(served_by.desk, timeout, "a store", False)
    return served_by, Opened(core)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.DUPLICATE, Fault.NONSENSE])
def test_a_call_that_goes_wrong_is_one_call(fault: Fault) -> None:
    """Its keys have failed; no thread is lost, and the next call is like any other."""
    faults = [fault] * 9
    people, store = crew(Faulty(MemoryStore(), faults))
    for _ in range(3):
        assert put(store) == [FAILED] * 4
        assert get(store) == [FAILED] * 4
        assert store.exists(WHOSE, KEYS) == [FAILED] * 4
    assert put(store) == get(store) == [HIT] * 4
    assert people.desk.counts()["nonsense"] == (0 if fault is Fault.FAIL else 9)
    store.close()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        "hits",
        [],
        [HIT] * 3,
        [HIT, HIT, HIT, None],
        ["hit"] * 4,
        [1, 1, 1, 1],
        [Outcome.ABSENT] * 4,
        [Outcome.CORRUPT] * 4,
    ],
    ids=repr,
)
def test_what_a_put_can_not_answer(answer: Any) -> None:
    class Says(MemoryStore):
        def put(self, *_: Any) -> Any:
            return answer

    people, store = crew(Says())
    assert put(store) == [FAILED] * 4
    assert people.desk.counts()["nonsense"] >= 1
    store.close()


def test_endless_answers_end() -> None:
    class Endless(MemoryStore):
        def exists(self, *_: Any) -> Any:
            return iter(lambda: HIT, None)

    _, store = crew(Endless())
    assert store.exists(WHOSE, KEYS) == [FAILED] * 4
    store.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError])
def test_what_would_end_a_thread_ends_a_call(error: type[BaseException]) -> None:
    class Raises(Double):
        def exists(self, *_: Any) -> Any:
            raise error

    people, store = crew(Raises(MemoryStore()))
    for _ in range(5):
        assert store.exists(WHOSE, KEYS) == [FAILED] * 4
    assert put(store) == [HIT] * 4
    assert all(thread.is_alive() for thread in people._threads)
    store.close()


@pytest.mark.parametrize("verb", ["exists", "get", "put", "remove"])
def test_a_call_that_hangs_is_timed_out(verb: str) -> None:
    """Also when it hangs on every thread there was: each gets a successor, which goes when it is back."""
    inner = Faulty(MemoryStore(), lambda turn: Fault.HANG if turn.verb == verb and turn.number < 6 else None)
    people, store = crew(inner, threads=1)
    act = {
        "exists": lambda: store.exists(WHOSE, KEYS),
        "get": lambda: get(store),
        "put": lambda: put(store),
        "remove": lambda: store.remove(WHOSE, KEYS),
    }[verb]
    for _ in range(5):
        assert act() == [TIMED_OUT] * 4
    assert set(act()) <= {HIT, Outcome.ABSENT}
    assert people.desk.counts()["kept"] == 0
    inner.release()
    until("successors go", lambda: len(people._threads) == 1)
    assert set(act()) <= {HIT, Outcome.ABSENT}
    store.close()


def test_pages_of_a_call_that_hangs_are_taken_back() -> None:
    """What it does with them later reaches nobody's memory."""
    late: list[str] = []

    class Slow(MemoryStore):
        free = threading.Event()

        def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
            self.free.wait(20)
            try:
                pages[0].runs[0][0] = 1
            except ValueError as error:
                late.append(str(error))
            return [HIT] * len(keys)

    slow = Slow()
    _, store = crew(slow)
    buffer = bytearray(SIZE)
    assert store.get(WHOSE, KEYS[:1], [Page.of(buffer)]) == [TIMED_OUT]
    buffer.append(0)  # nobody has a view of it any more
    slow.free.set()
    until("the call comes back", lambda: bool(late))
    assert "released memoryview" in late[0]
    assert buffer == bytes(SIZE + 1)
    store.close()


@pytest.mark.parametrize("keep", ["array", "tensor", "view"])
def test_a_call_is_not_over_while_its_memory_is_kept(keep: str) -> None:
    kept: list[Any] = []
    makers: dict[str, Callable[[memoryview], Any]] = {
        "array": lambda run: np.frombuffer(run, np.uint8),
        "tensor": lambda run: torch.frombuffer(run, dtype=torch.uint8),
        "view": lambda run: run,
    }

    class Keeps(MemoryStore):
        def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
            kept.extend(makers[keep](page.runs[0]) for page in pages)
            return super().get(identity, keys, pages)

    people, store = crew(Keeps(), timeout=0.1)
    assert put(store) == [HIT] * 4
    found: list[Outcome] = []
    reader = threading.Thread(target=lambda: found.extend(get(store)), daemon=True)
    reader.start()
    until("it is seen", lambda: people.desk.counts()["kept"] == 1)
    assert put(store, [b"x" * 32]) == [HIT], "others go on"
    reader.join(0.5)
    assert not found
    kept.clear()
    gc.collect()
    reader.join(20)
    assert found == [FAILED] * 4, "what it answered isn't believed"
    store.close()


def test_pages_are_views_of_the_callers_memory() -> None:
    """Nothing is copied on the way: a store sees the very addresses, read-only where it is to read."""
    seen: list[tuple[int, bool, list[int]]] = []

    class Looks(MemoryStore):
        def _look(self, pages: Sequence[Page]) -> None:
            for page in pages:
                array = np.frombuffer(page.runs[0], np.uint8)
                sizes = [run.nbytes for run in page.runs]
                seen.append((array.__array_interface__["data"][0], page.runs[0].readonly, sizes))

        def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
            self._look(pages)
            return super().get(identity, keys, pages)

        def put(self, identity: bytes, keys: Any, parents: Any, pages: Sequence[Page]) -> Sequence[Outcome]:
            self._look(pages)
            return super().put(identity, keys, parents, pages)

    _, store = crew(Looks())
    array = np.arange(100, dtype=np.uint8)
    page = Page([memoryview(array)[:30], memoryview(array)[30:30], memoryview(array)[30:]])
    assert store.put(WHOSE, KEYS[:1], [None], [page]) == [HIT]
    assert store.get(WHOSE, KEYS[:1], [page]) == [HIT]
    address = array.__array_interface__["data"][0]
    assert seen == [(address, True, [30, 0, 70]), (address, False, [30, 0, 70])]
    store.close()


def test_parents_and_names_arrive() -> None:
    seen: list[Any] = []

    class Looks(MemoryStore):
        def put(self, identity: bytes, keys: Any, parents: Any, pages: Sequence[Page]) -> Sequence[Outcome]:
            seen.append((identity, list(keys), list(parents)))
            return super().put(identity, keys, parents, pages)

    _, store = crew(Looks())
    pages = [Page.of(b"page") for _ in KEYS]
    store.put(b"i" * 32, KEYS, [None, *KEYS[:3]], pages)
    assert seen == [(b"i" * 32, KEYS, [None, *KEYS[:3]])]
    store.close()


def test_clear_list_compact_and_statistics() -> None:
    class Compacts(MemoryStore):
        def compact(self) -> int:
            return 4096

    store = open(Compacts(100_000))
    assert put(store) == [HIT] * 4
    assert sorted(item.key for item in store.list()) == KEYS
    assert {item.bytes for item in store.list()} == {SIZE}, "without its checksum"
    assert store.compact() == 4096
    counts = store.statistics()
    assert (counts["pages"], counts["capacity"], counts["written_pages"]) == (4, 100_000, 4)
    assert get(store) == [HIT] * 4
    assert store.clear(WHOSE) == 4
    assert store.statistics()["pages"] == 0
    assert store.statistics()["read_pages"] == 4
    store.close()


@pytest.mark.parametrize(
    "bad", [None, [(b"short", b"k" * 32, 1, 1)], [Held(WHOSE, KEYS[0], -1, 0)], [7]], ids=repr
)
def test_a_list_of_nonsense_is_an_error(bad: Any) -> None:
    class Lists(MemoryStore):
        def list(self) -> Any:
            return bad

        def clear(self, identity: bytes) -> Any:
            return "many"

    store = open(Lists())
    for act in (store.list, lambda: store.clear(WHOSE)):
        with pytest.raises(ArgumentError, match=r"^storage: "):
            act()
    assert put(store) == [HIT] * 4
    store.close()


def test_close_ends_although_everything_hangs() -> None:
    inner = Faulty(MemoryStore(), lambda turn: Fault.HANG)

    class Never(Double):
        def close(self) -> None:
            threading.Event().wait(60)

    people, store = crew(Never(inner), threads=1, timeout=0.2)
    callers = [threading.Thread(target=act, args=(store,), daemon=True) for act in (get, put) * 4]
    for caller in callers:
        caller.start()
    closer = threading.Thread(target=store.close, daemon=True)
    closer.start()
    for thread in (closer, *callers):
        thread.join(20)
        assert not thread.is_alive()
    assert people.desk.closed
    assert put(store) == get(store) == [FAILED] * 4
    inner.release()


def test_idle_threads_do_not_touch_the_interpreter() -> None:
    """Counted twice: how often one came back from waiting, and how often the kernel woke its thread."""
    people, store = crew(MemoryStore(), threads=8)
    assert put(store) == get(store) == [HIT] * 4
    threads = [*people._threads, people._watcher]
    assert len(threads) == 9

    def wakeups() -> tuple[int, list[str]]:
        switches = []
        for thread in threads:
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
            switches.append(next(line for line in status.splitlines() if line.startswith("voluntary")))
        return people.desk.counts()["wakeups"], switches

    time.sleep(0.1)  # the last of them goes to sleep
    before = wakeups()
    assert sum(range(2_000_000)) > 0  # a victim that has the interpreter for itself
    for _ in range(200_000):
        pass
    time.sleep(0.3)
    assert wakeups() == before
    get(store)
    assert wakeups() != before
    store.close()


def child(program: str) -> subprocess.CompletedProcess[str]:
    lines = textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)


START = """
import os, sys, threading, time
from hicache.storage import open, served, Page
from hicache.testing.memory import MemoryStore
from hicache.testing.doubles import Fault, Faulty
keys = [bytes([at]) * 32 for at in range(4)]
def use(store):
    return store.exists(bytes(32), keys)
"""


@pytest.mark.parametrize(
    "end",
    [
        "store.close()",
        "pass",
        "del store",
        "sys.exit(0)",
        "threading.Thread(target=lambda: [use(store) for _ in range(10**9)], daemon=True).start()",
    ],
)
def test_the_interpreter_ends(end: str) -> None:
    done = child(f"{START}\nstore = open(MemoryStore())\nuse(store)\n{end}\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_although_a_store_hangs() -> None:
    done = child(f"""{START}
store = open(served(Faulty(MemoryStore(), lambda turn: Fault.HANG), timeout=60.0, threads=2))
for _ in range(4):
    threading.Thread(target=use, args=(store,), daemon=True).start()
time.sleep(0.2)
print("the end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_a_forked_child_is_told() -> None:
    """And ends like any other; its parent's store goes on."""
    done = child(f"""{START}
from hicache import HiCacheError
store = open(MemoryStore())
use(store)
pid = os.fork()
if pid == 0:
    try:
        use(store)
    except HiCacheError as error:
        print("told", flush=True)
    del store
    other = open(MemoryStore())
    print(use(other)[0].value, flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), use(store)[0].value)
""")
    assert done.stdout.split() == ["told", "absent", "3", "absent"], done.stderr


@pytest.mark.parametrize(
    ("act", "argument"),
    [
        (lambda store: store.exists(b"short", KEYS), "identity"),
        (lambda store: store.exists(WHOSE, [b"short"]), "keys"),
        (lambda store: store.get(WHOSE, KEYS, []), "pages"),
        (lambda store: store.get(WHOSE, KEYS[:1], [Page.of(b"read-only")]), "pages"),
        (lambda store: store.get(WHOSE, KEYS[:2], [Page.of(SAME), Page.of(SAME)]), "pages"),
        (lambda store: store.put(WHOSE, KEYS[:1], [], [Page.of(b"x")]), "parents"),
        (lambda store: store.put(WHOSE, KEYS[:1], [b"short"], [Page.of(b"x")]), "parents"),
        (lambda store: store.clear(b""), "identity"),
    ],
)
def test_bad_arguments_are_named(act: Callable[[Store], Any], argument: str) -> None:
    store = open(MemoryStore())
    with pytest.raises(ArgumentError, match=f"^{argument}: "):
        act(store)
    store.close()


SAME = bytearray(10)


def test_whether_pages_are_verified_is_said() -> None:
    for settings, said in (({}, True), ({"verify": False}, False)):
        store = open(served(MemoryStore(), **settings))
        assert ("verified" in store.describe()) is said
        store.close()
