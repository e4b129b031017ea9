"""Insert, allocate, free and evict: who owns which slot at any time, with either owner of device slots."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from fake_engine import PLAIN, Engine, Shape, make

import hicache
from hicache import ArgumentError, DeadlineError, Hit

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them on the device and on the host; no store."""
    return make(2)


def started(engine: Engine, tokens: list[int]) -> Hit:
    """A loaded hit of nothing, without a table: the test does the rest."""
    request = engine.match(tokens, limit=0)
    engine.load(request)
    return request.hit


def fill(engine: Engine, tokens: list[int], slots: list[int]) -> None:
    for page, slot in enumerate(slots):
        engine.device.write(slot, PLAIN, tokens[: (page + 1) * 2])


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8, 9])
def test_chunks_make_the_same_path_as_one_insert(engine: Engine, chunk: int) -> None:
    tokens = [*EIGHT, 8]
    request = engine.run(tokens, chunk=chunk)
    assert (request.hit.length, len(request.table)) == (8, 5)
    assert len(engine.held) == 1, "the partial page stays ours"
    engine.check()
    engine.finish(request)
    assert engine.cache.stats()["inserted_pages"] == 4
    assert engine.match(tokens).hit.device_length == 8


def test_each_insert_tells_the_whole_length_and_the_slots_of_its_own_pages(engine: Engine) -> None:
    hit = started(engine, EIGHT)
    slots = engine.cache.allocate(4)
    assert slots is not None
    assert slots.dtype == torch.int32
    first = engine.cache.insert(hit, EIGHT[:4], slots[:2])
    assert (first.length, first.slots.tolist(), first.duplicates.tolist()) == (4, slots[:2].tolist(), [])
    nothing = engine.cache.insert(hit, [4], [])
    assert (nothing.length, nothing.slots.tolist(), hit.length) == (4, [], 4)
    second = engine.cache.insert(hit, EIGHT[4:], slots[2:])
    assert (second.length, second.slots.tolist()) == (8, slots[2:].tolist())
    assert hit.slots.tolist() == slots.tolist()


def test_twins_share_the_first_ones_pages(engine: Engine) -> None:
    """The second finds its pages there: it re-points its table, and only then are its own slots free."""
    first, second = engine.match(EIGHT), engine.match(EIGHT)
    engine.load(first, second)
    for _ in range(4):
        engine.compute(first, 2)
        engine.compute(second, 2)
        engine.verify(first)
        engine.verify(second)
        engine.check()
    assert first.table == second.table
    stats = engine.cache.stats()
    assert (stats["inserted_pages"], stats["device_resident"], stats["device_free"]) == (4, 4, 12)


def test_duplicates_are_named_and_stay_out_until_they_are_freed(engine: Engine) -> None:
    """Slots 5, 6 for what the tree has in 0, 1."""
    first, second = started(engine, EIGHT[:4]), started(engine, EIGHT[:4])
    slots = engine.cache.allocate(4)
    assert slots is not None
    ours, theirs = slots[:2].tolist(), slots[2:].tolist()
    fill(engine, EIGHT, ours)
    engine.cache.insert(first, EIGHT[:4], ours)
    done = engine.cache.insert(second, EIGHT[:4], theirs)
    assert (done.slots.tolist(), done.duplicates.tolist()) == (ours, theirs)
    assert second.slots.tolist() == ours
    assert engine.cache.stats()["device_free"] == 12
    engine.device.poison(theirs)
    engine.cache.free(done.duplicates)
    engine.device.verify(second.slots.tolist(), PLAIN, EIGHT[:4])
    for slot in ours:
        with pytest.raises(ArgumentError, match=r"^slots: .* belongs to a cached page"):
            engine.cache.free([slot])
    with pytest.raises(ArgumentError, match=r"^slots: .* is free"):
        engine.cache.free(done.duplicates)


def test_pages_on_the_host_alone_adopt_new_slots(engine: Engine) -> None:
    """A host-only page takes the given slot, which may not be freed any more."""
    engine.finish(engine.run(EIGHT[:6]))
    assert engine.cache.drain(10)
    assert len(engine.cache.evict(3)) == 3
    hit = started(engine, EIGHT)
    slots = engine.cache.allocate(4)
    assert slots is not None
    fill(engine, EIGHT, slots.tolist())
    done = engine.cache.insert(hit, EIGHT, slots)
    assert (done.slots.tolist(), done.duplicates.tolist()) == (slots.tolist(), [])
    with pytest.raises(ArgumentError, match=r"^slots: "):
        engine.cache.free(slots[:1])
    engine.check()
    stats = engine.cache.stats()
    assert (stats["device_resident"], stats["host_resident"], stats["backed_up_pages"]) == (4, 4, 4)


def test_allocate_evicts_what_is_missing_and_no_more() -> None:
    engine = make(2, device_pages=10)
    engine.finish(engine.run(list(range(12))))
    assert engine.cache.drain(10)
    taken = engine.cache.allocate(6)
    assert taken is not None
    assert (len(set(taken.tolist())), engine.cache.stats()["evicted_device_pages"]) == (6, 2)


def test_allocate_says_none_when_there_is_no_such_room(engine: Engine) -> None:
    request = engine.run(EIGHT)
    assert engine.cache.allocate(13) is None
    twelve = engine.cache.allocate(12)
    assert twelve is not None
    assert engine.cache.allocate(1) is None
    nothing = engine.cache.allocate(0)
    assert nothing is not None
    assert nothing.tolist() == []
    engine.verify(request)
    engine.cache.free(twelve)
    assert engine.cache.stats()["device_free"] == 12


def test_an_allocation_that_fails_evicts_nothing(engine: Engine) -> None:
    engine.finish(engine.run(EIGHT))
    assert engine.cache.drain(10)
    assert engine.cache.allocate(17) is None
    assert engine.match(EIGHT).hit.device_length == 8


def test_backup_brings_what_had_found_no_room() -> None:
    engine = make(2, host_pages=2)
    request = engine.run(EIGHT)
    assert engine.cache.stats()["backup_no_room_pages"] == 2
    assert engine.cache.drain(10)
    assert engine.cache.backup(request.hit) == 0, "there is still no room"
    assert engine.match(EIGHT).hit.device_length == 8
    engine.finish(request)
    engine.cache.evict(99)
    engine.cache.evict(99, tier="host")
    again = engine.run(EIGHT[:4])
    assert engine.cache.stats()["host_resident"] == 2
    engine.verify(again)


# slots="engine"


def engine_owned() -> tuple[Engine, list[int]]:
    """Eight tokens in the slots 3, 1, 4, 15, on both tiers."""
    engine, slots = make(2, slots="engine"), [3, 1, 4, 15]
    hit = engine.cache.match_prefix(EIGHT)
    assert engine.cache.load([hit], slots=[7, 8]).unused.tolist() == [7, 8]
    fill(engine, EIGHT, slots)
    assert engine.cache.insert(hit, EIGHT, slots).slots.tolist() == slots
    hit.release()
    assert engine.cache.drain(10)
    return engine, slots


def test_evict_returns_the_engines_slots() -> None:
    engine, slots = engine_owned()
    assert engine.cache.evict(1).tolist() == [15]
    assert sorted(engine.cache.evict(9).tolist()) == [1, 3, 4]
    assert engine.cache.stats()["device_resident"] == 0
    engine.device.poison(slots)
    hit = engine.cache.match_prefix(EIGHT)
    load = engine.cache.load([hit], slots=[9, 2, 11, 0, 5])
    assert (load.unused.tolist(), hit.slots.tolist()) == ([5], [9, 2, 11, 0])
    load.wait()
    engine.device.verify([9, 2, 11, 0], PLAIN, EIGHT)
    engine.cache.check()


def test_a_load_with_few_slots_is_short() -> None:
    engine, _ = engine_owned()
    engine.cache.evict(9)
    hit = engine.cache.match_prefix(EIGHT)
    load = engine.cache.load([hit], slots=torch.tensor([9, 2]))
    load.wait()
    assert (hit.length, hit.slots.tolist(), load.unused.tolist()) == (4, [9, 2], [])
    engine.device.verify([9, 2], PLAIN, EIGHT)


@pytest.mark.parametrize("bad", [None, [3], [16], [-1], [5, 5]])
def test_slots_for_a_load_must_be_the_engines(bad: list[int] | None) -> None:
    engine, _ = engine_owned()
    hit = engine.cache.match_prefix(EIGHT)
    before = engine.cache.stats()
    with pytest.raises(ArgumentError, match=r"^slots: "):
        engine.cache.load([hit], slots=bad)
    assert engine.cache.stats() == before
    engine.cache.load([hit], slots=[])


def test_each_owner_refuses_the_others_verbs(engine: Engine) -> None:
    theirs, _ = engine_owned()
    for call in (lambda: theirs.cache.allocate(1), lambda: theirs.cache.free([5])):
        with pytest.raises(ArgumentError, match=r"^slots: the engine owns"):
            call()
    with pytest.raises(ArgumentError, match=r"^slots: the cache owns"):
        engine.cache.load([engine.match(EIGHT).hit], slots=[1])


# threads and processes


def test_a_load_that_is_late_says_so() -> None:
    """32 MiB can't be copied within a nanosecond, but they can while this thread has to wait: try again."""
    engine = make(16, 64, 64, shape=Shape(heads=64, k_size=64, v_size=64), load_deadline=1e-9)
    tokens = list(range(16 * 64))
    hit = started(engine, tokens)
    engine.cache.insert(hit, tokens, engine.cache.allocate(64))
    hit.release()
    assert engine.cache.drain(10)
    assert any(_is_late(engine, tokens) for _ in range(20))


def _is_late(engine: Engine, tokens: list[int]) -> bool:
    assert len(engine.cache.evict(64)) == 64
    hit = engine.cache.match_prefix(tokens)
    load, late = engine.cache.load([hit]), False
    try:
        load.wait()
    except DeadlineError as error:
        late = "the load did not finish" in str(error)
    assert engine.cache.drain(10)
    load.wait()
    hit.release()
    return late


FORKED = """
    import os, sys
    from fake_engine import make
    engine = make(2)
    request = engine.run([1, 2, 3, 4])
    child = os.fork()
    if child == 0:
        verbs = {
            "match_prefix": ([1],), "prefetch": (request.hit,), "load": ([request.hit],), "allocate": (1,),
            "insert": (request.hit, [], []), "free": ([],), "backup": (request.hit,), "evict": (1,),
            "poll": (), "drain": (1.0,), "close": (),
        }
        for verb, arguments in verbs.items():
            try:
                getattr(engine.cache, verb)(*arguments)
                print(verb, "went through")
            except Exception as error:
                if "fork" not in str(error):
                    print(verb, repr(error))
        sys.exit(0)  # runs destructors: none may wait for threads that are not there
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status))
    engine.verify(request)
    engine.finish(request)
    engine.cache.close()
"""


def test_a_forked_child_gets_a_clear_error_and_can_end() -> None:
    paths = [str(Path(hicache.__file__).parents[1]), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("child 0\n", 0), done.stderr
