"""An engine's own policy over models with windows and states: what is told counts tokens of the prefix,
whatever else is read for them; what is answered holds for windows and states as for their pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from parted_engine import PartedEngine, make_parted
from policies import Logs, serve
from test_waiting import Gated, Shared

from hicache.policy import Loading, Waiting, Writes
from hicache.storage import Store
from hicache.testing.memory import MemoryStore

#: 8 pages of 2 tokens; a window is 3 pages; with a checkpoint behind every second page.
PROMPT = list(range(16))
PAGES, WINDOW, CHUNK = 8, 3, 4


def engine(store: Store | None = None, **options: Any) -> PartedEngine:
    return make_parted(2, (40, 60, 20), 40, tokens=5, store=store, **options)


def stored(tokens: list[int] = PROMPT) -> MemoryStore:
    """A store with all of a prompt."""
    inner = MemoryStore()
    writer = engine(Shared(inner))
    serve(writer, tokens, chunk=CHUNK)
    writer.cache.close()
    return inner


def on_host_alone(some: PartedEngine) -> None:
    assert some.cache.drain(10)
    some.cache.evict(99)
    assert some.cache.stats()["device_resident"] == 0


def host(some: PartedEngine) -> tuple[int, int, int]:
    """Pages, windows and states on the host."""
    parts = [some.cache.part_stats(part)["host_resident"] for part in ("window", "state")]
    return some.cache.stats()["host_resident"], parts[0], parts[1]


@pytest.mark.parametrize("at", ["exists", "get"])
@pytest.mark.parametrize("word", ["compute", "wait", "skip"])
def test_who_waits_is_its_decision(word: str, at: str) -> None:
    """It is told of tokens, as many as the prompt has, though three kinds of pages are read."""
    gate = Gated(stored())
    policy = Logs(stop=word)
    some = engine(gate, policy=policy, prefetch="wait_complete", prefetch_deadline=1000.0)
    with some.cache as cache:
        cache.poll(at=100.0)
        request = some.match(PROMPT, at=100.0)
        assert cache.prefetch(request.hit)
        asking = Waiting(
            prompt=16, requested=16, missing=16, reading=0, waited=0.0, reading_for=None, asking=True,
            others=3, overtaken=0,
        )  # fmt: skip
        assert cache.decide(request.hit, others=3) == word
        assert policy.told["stop"] == [asking]
        if at == "get":
            while not gate.asked.is_set():
                cache.poll(at=101.0)
            assert cache.decide(request.hit) == word
            told = policy.told["stop"][-1]
            assert (told.requested, told.missing, told.reading) == (16, 16, 16)
            assert (told.asking, told.others, told.waited) == (False, 0, 1.0)
        some.load(request)
        assert request.hit.length == 0
        line = str(cache.explain(request.hit))
        assert ("prefetch given up: Logs" in line) == (word == "compute")
        gate.opened.set()
        assert some.compute(request, CHUNK)
        some.verify(request)
        some.finish(request)
        assert cache.drain(10)
        some.check()


def test_what_is_missing_is_less_when_the_store_has_less() -> None:
    """A prefix that is shorter than what was asked for; and nothing is asked when it has come."""
    gate, policy = Gated(stored(PROMPT[:8])), Logs(stop="wait")
    some = engine(gate, policy=policy)
    with some.cache as cache:
        request = some.match(PROMPT)
        assert cache.prefetch(request.hit)
        while not gate.asked.is_set():
            cache.poll()
        assert cache.decide(request.hit) == "wait"
        told = policy.told["stop"][-1]
        assert (told.requested, told.missing, told.reading) == (16, 8, 8)
        gate.opened.set()
        some.fetch(request)
        assert cache.decide(request.hit) == "compute"
        assert policy.times["stop"] == 1
        some.load(request)
        assert request.hit.length == 8
        some.verify(request)
        some.finish(request)
        some.check()


@pytest.mark.parametrize(
    ("most", "length"), [(None, 16), (16, 16), (10**9, 16), (15, 12), (11, 8), (4, 4), (3, 0), (0, 0)]
)
def test_how_much_is_loaded_is_its_decision(most: int | None, length: int) -> None:
    """Up to where the prefix has a window and a state."""
    policy = Logs()
    some = engine(policy=policy)
    with some.cache as cache:
        serve(some, PROMPT, chunk=CHUNK)
        on_host_alone(some)
        policy.answers["load"] = most
        request = some.match(PROMPT)
        load = some.load(request)
        load.wait()
        assert policy.told["load"][-1] == Loading(prompt=16, device=0, host=16, budget=None)
        assert request.hit.length == length
        some.verify(request)
        assert cache.stats()["load_declined_pages"] == (16 - length) // 2
        loaded = [cache.part_stats(part)["loaded"] for part in ("window", "state")]
        assert loaded == [min(WINDOW, length // 2), int(length > 0)], "no more than its end needs"
        while request.computed < len(PROMPT):
            assert some.compute(request, CHUNK)
        some.verify(request)
        some.finish(request)
        some.check()
        assert cache.stats()["device_resident"] == PAGES


def test_what_the_device_has_is_used_in_any_case() -> None:
    """With the parts that are there: a shorter end than its pages, and all of it stays right."""
    policy = Logs(load=0)
    some = engine(policy=policy)
    with some.cache as cache:
        serve(some, PROMPT, chunk=CHUNK)
        assert cache.drain(10)
        # The last window or state leaves with its page; what is before has its own.
        cache.evict(2)
        request = some.match(PROMPT)
        assert (request.hit.device_length, request.hit.host_length) == (12, 16)
        some.load(request)
        assert policy.told["load"][-1] == Loading(prompt=16, device=12, host=16, budget=None)
        assert request.hit.length == 12
        some.verify(request)
        some.finish(request)
        some.check()


def test_a_state_that_is_on_the_host_alone_is_asked_about() -> None:
    """All pages are on the device: what is loaded is the state, and that may be declined, too."""
    for most, length in ((None, 16), (15, 0)):
        policy = Logs(load=most)
        some = engine(policy=policy)
        with some.cache as cache:
            held = some.match([*PROMPT, 50, 51])
            some.load(held)
            for count in (16, 2):
                assert some.compute(held, count)
            assert cache.drain(10)
            cache.evict_part("state", 99)
            request = some.match(PROMPT)
            some.load(request).wait()
            assert policy.told["load"][-1] == Loading(prompt=16, device=0, host=16, budget=None)
            assert request.hit.length == length
            some.verify(request)
            for one in (request, held):
                some.finish(one)
            some.check()


#: Pages, windows and states on the host (or in storage) when all that may be there is: the windows and the
#: states of each of four ends.
ALL = (PAGES, PAGES, PAGES // 2)
NONE = (0, 0, 0)


def in_store(inner: MemoryStore) -> int:
    return len(inner.list())


@pytest.mark.parametrize(
    ("answer", "first", "second"),
    [
        (None, (ALL, sum(ALL)), (ALL, sum(ALL))),
        ("write_through", (ALL, sum(ALL)), (ALL, sum(ALL))),
        ("write_back", (NONE, 0), (NONE, 0)),
        ("never", (NONE, 0), (NONE, 0)),
        (Writes(host="write_through", storage="never"), (ALL, 0), (ALL, 0)),
        (Writes(host="never"), (NONE, 0), (NONE, 0)),
    ],
)
def test_what_is_written_is_its_decision(
    answer: Any, first: tuple[tuple[int, int, int], int], second: tuple[tuple[int, int, int], int]
) -> None:
    """After one request, and after another one for the same."""
    inner = MemoryStore()
    some = engine(Shared(inner), policy=Logs(write=answer), clean_reserve=0.0)
    for wanted in (first, second):
        serve(some, PROMPT, chunk=CHUNK)
        some.cache.poll()
        assert some.cache.drain(10)
        assert (host(some), in_store(inner)) == wanted
    some.cache.close()


def test_selective_is_what_a_second_request_used() -> None:
    """Pages with the window and the state of where it used them: those of other ends aren't used twice."""
    inner = MemoryStore()
    some = engine(Shared(inner), policy=Logs(write="write_through_selective"), clean_reserve=0.0)
    with some.cache as cache:
        serve(some, PROMPT, chunk=CHUNK)
        assert (host(some), in_store(inner)) == (NONE, 0)
        serve(some, PROMPT[:8], chunk=CHUNK)
        cache.poll()
        assert cache.drain(10)
        assert (host(some), in_store(inner)) == ((4, WINDOW, 1), 4 + WINDOW + 1)
        on_host = some.match(PROMPT).hit
        assert on_host.device_length == 16
        on_host.release()
        cache.evict(99)
        request = some.run(PROMPT, chunk=CHUNK)
        some.finish(request)
        some.check()


@pytest.mark.parametrize(("kept", "kind"), [("write_back", ALL), ("never", NONE)])
def test_before_it_leaves_only_what_is_wanted_is_copied(kept: str, kind: tuple[int, int, int]) -> None:
    inner = MemoryStore()
    some = engine(Shared(inner), policy=Logs(write=Writes(kept, "write_through")), clean_reserve=1.0)
    with some.cache as cache:
        serve(some, PROMPT, chunk=CHUNK)
        for _ in range(8):
            cache.poll()
            assert cache.drain(10)
        cache.evict(99)
        stats = cache.stats()
        assert (stats["host_resident"], stats["dropped_unsaved_pages"]) == (kind[0], 0)
        request = some.match(PROMPT)
        assert request.hit.host_length == 2 * kind[0]
        some.load(request).wait()
        some.verify(request)
        some.finish(request)
    assert (in_store(inner) > PAGES) == (kept == "write_back")


def test_requests_differ() -> None:
    """One that wants nothing to be written takes nothing from one that does, and adds nothing."""

    class Short(Logs):
        def write(self, loading: Loading) -> str:
            return "write_through" if loading.prompt <= 8 else "never"

    inner = MemoryStore()
    some = engine(Shared(inner), policy=Short(), clean_reserve=1.0)
    with some.cache as cache:
        for tokens in (PROMPT[:8], PROMPT, PROMPT):
            serve(some, tokens, chunk=CHUNK)
            cache.poll()
            assert cache.drain(10)
            assert host(some) == (4, 4, 2)
            some.check()
            if tokens == PROMPT:
                cache.evict(99)
                assert some.match(PROMPT).hit.host_length == 8
    assert in_store(inner) == 4 + 4 + 2


@pytest.mark.parametrize("method", ["stop", "load", "write"])
@pytest.mark.parametrize("answer", [RuntimeError("broken"), "later", -1])
def test_a_failure_is_the_settings_decision(method: str, answer: Any) -> None:
    inner = stored()
    some = engine(Shared(inner), policy=Logs(**{method: answer}))
    with some.cache as cache:
        request = some.match(PROMPT)
        assert cache.prefetch(request.hit)
        assert cache.decide(request.hit) == "wait"
        some.fetch(request)
        some.load(request)
        assert request.hit.length == 16
        some.verify(request)
        some.finish(request)
        assert cache.stats()["policy_failures"] == 1
        some.check()


def test_it_is_asked_once_per_request() -> None:
    policy = Logs()
    some = engine(Shared(MemoryStore()), policy=policy)
    ways: list[Callable[[], Any]] = [lambda: serve(some, PROMPT, chunk=CHUNK), lambda: on_host_alone(some)]
    with some.cache:
        for times, way in enumerate([*ways, ways[0]], 1):
            way()
            expected = (times + 1) // 2
            assert policy.times == Counter(load=expected, write=expected)
