"""An engine's own policy: asked once per request, followed, and no harm when it fails."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fake_engine import make
from policies import Logs, host_only, serve
from test_waiting import Gated, Shared, reading, stored

from hicache import ArgumentError, DetachedError, HitError
from hicache.policy import Loading, Policy, Waiting, Writes
from hicache.testing.memory import MemoryStore

PROMPT = list(range(24))
OTHER = list(range(100, 124))


def test_it_is_asked_once_per_request() -> None:
    policy = Logs()
    engine = make(policy=policy)
    with engine.cache as cache:
        serve(engine, PROMPT, chunk=2)
        assert policy.times == Counter(load=1, write=1)
        host_only(engine)
        requests = [engine.match(PROMPT), engine.match(OTHER)]
        cache.load([request.hit for request in requests], budget=100).wait()
        assert policy.times == Counter(load=3, write=3)
        assert policy.told["load"] == policy.told["write"]
        assert policy.told["load"] == [
            Loading(prompt=24, device=0, host=0, budget=None),
            Loading(prompt=24, device=0, host=24, budget=100),
            Loading(prompt=24, device=0, host=0, budget=100),
        ]
        with pytest.raises(HitError):
            cache.load([requests[0].hit])
        assert policy.times == Counter(load=3, write=3)
        for request in requests:
            request.hit.release()
        assert cache.stats()["policy_failures"] == 0


def test_a_load_that_is_refused_asks_nobody() -> None:
    """Whatever is wrong with it: nothing was decided, and the one that is right asks once."""
    policy = Logs()
    engine, other = make(policy=policy), make()
    with engine.cache as cache, other.cache:
        first, second, foreign = engine.match(PROMPT).hit, engine.match(OTHER).hit, other.match(PROMPT).hit
        gone = engine.match(PROMPT).hit
        gone.release()
        refused: list[tuple[str, Callable[[], Any]]] = [
            ("budget", lambda: cache.load([first], budget=-1)),
            ("slots", lambda: cache.load([first], slots=[1, 2])),
            ("slots", lambda: cache.load([first], slots=[-1])),
            ("hits", lambda: cache.load([first, second, first])),
            ("hit", lambda: cache.load([first, foreign])),
            ("hits", lambda: cache.load(first)),  # type: ignore[arg-type]
            ("", lambda: cache.load([first, gone])),
        ]
        for named, load in refused:
            with pytest.raises((ArgumentError, HitError), match=f"^{named}"):
                load()
        pools = cache.detach()
        with pytest.raises(DetachedError):
            cache.load([first])
        cache.attach(engine.device.pools)
        assert (pools, policy.times) == (0, Counter())
        cache.load([first, second]).wait()
        assert policy.times == Counter(load=2, write=2)
        with pytest.raises(HitError):
            cache.load([second])
        for hit in (first, second, foreign):
            hit.release()
        assert policy.times == Counter(load=2, write=2)
    owner = make(policy=policy, slots="engine")
    with owner.cache as cache:
        hit = owner.match(PROMPT).hit
        for slots in (None, [16], [3, 3]):
            with pytest.raises(ArgumentError, match=r"^slots"):
                cache.load([hit], slots=slots)
        assert policy.times == Counter(load=2, write=2)
        assert cache.load([hit], slots=[3, 4]).unused.tolist() == [3, 4]
        assert policy.times == Counter(load=3, write=3)
        hit.release()


@pytest.mark.parametrize("word", ["compute", "wait", "skip"])
def test_who_waits_is_its_decision(word: str) -> None:
    gate, policy = Gated(stored()), Logs(stop=word)
    # Alone, each of the built-in policies would say something else than one of these.
    engine, request = reading(gate, policy=policy, prefetch="wait_complete")
    with engine.cache as cache:
        cache.poll(at=102.0)
        assert cache.decide(request.hit, others=3) == word
        cache.poll(at=103.5)
        assert cache.decide(request.hit) == word
        first, second = policy.told["stop"]
        assert (first.prompt, first.requested, first.missing, first.waited, first.others) == (
            24,
            24,
            24,
            0,
            3,
        )
        assert (second.waited, second.others, second.asking) == (1.5, 0, False)
        engine.load(request)
        assert request.hit.length == 0
        line = str(cache.explain(request.hit))
        assert ("prefetch given up: Logs, after 1500 ms" in line) == (word == "compute")
        engine.finish(request)
        gate.opened.set()
        assert cache.drain(10)
        # Nothing is undecided: nobody is asked.
        request = engine.match(OTHER)
        assert cache.decide(request.hit) == "compute"
        assert policy.times["stop"] == 2
        request.hit.release()


def test_without_an_answer_the_setting_decides() -> None:
    gate, policy = Gated(stored()), Logs()
    engine, request = reading(gate, policy=policy, prefetch="wait_complete")
    with engine.cache as cache:
        assert (cache.decide(request.hit), cache.decide(request.hit, others=1)) == ("wait", "skip")
        assert (policy.times["stop"], cache.stats()["policy_failures"]) == (2, 0)
        request.hit.release()
        gate.opened.set()
        assert cache.drain(10)


@pytest.mark.parametrize(
    ("most", "length"), [(None, 24), (24, 24), (10**9, 24), (17, 16), (6, 6), (1, 0), (0, 0)]
)
def test_how_much_is_loaded_is_its_decision(most: int | None, length: int) -> None:
    policy = Logs()
    engine = make(policy=policy)
    with engine.cache as cache:
        serve(engine, PROMPT)
        host_only(engine)
        policy.answers["load"] = most
        request = engine.match(PROMPT)
        engine.load(request)
        engine.verify(request)
        assert request.hit.length == length
        assert cache.stats()["load_declined_pages"] == (24 - length) // 2
        told = cache.explain(request.hit)
        assert [(reason.tokens, reason.code) for reason in told.reasons] == (
            [(24 - length, "declined_by_policy")] if length < 24 else []
        )
        assert ("Logs wants a prefix of" in told.line) == (length < 24)
        # What wasn't loaded is computed, and is no second page of the same.
        assert engine.compute(request)
        engine.verify(request)
        engine.finish(request)
        engine.check()
        assert cache.stats()["device_resident"] == 12


def test_what_the_device_has_is_used_in_any_case() -> None:
    policy = Logs()
    engine = make(policy=policy)
    with engine.cache as cache:
        serve(engine, PROMPT)
        cache.evict(4)
        policy.answers["load"] = 0
        request = engine.match(PROMPT)
        assert (request.hit.device_length, request.hit.host_length) == (16, 24)
        engine.load(request)
        assert request.hit.length == 16
        assert policy.told["load"][-1] == Loading(prompt=24, device=16, host=24, budget=None)
        engine.finish(request)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("stop", RuntimeError("broken")),
        ("stop", "later"),
        ("stop", 3),
        ("load", RuntimeError("broken")),
        ("load", -1),
        ("load", "all"),
        ("load", True),
        ("write", RuntimeError("broken")),
        ("write", "sometimes"),
        ("write", ("write_through",)),
        ("write", Writes(storage="sometimes")),
        ("write", 7),
    ],
)
def test_a_failure_is_the_settings_decision(
    method: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate, policy = Gated(stored()), Logs(**{method: answer})
    with caplog.at_level(logging.WARNING, logger="hicache.policy"):
        engine, request = reading(gate, policy=policy, prefetch="wait_complete")
        with engine.cache as cache:
            assert cache.decide(request.hit) == "wait"
            assert cache.decide(request.hit) == "wait"
            gate.opened.set()
            engine.fetch(request)
            engine.load(request)
            engine.verify(request)
            assert request.hit.length == 24
            engine.finish(request)
            request = serve(engine, OTHER)
            assert cache.stats()["backed_up_pages"] == 12
            engine.check()
            assert cache.stats()["policy_failures"] == 2 == len(caplog.records)
    for record, traceback in zip(caplog.records, (True, False), strict=True):
        assert f"policy Logs: {method} failed" in record.getMessage()
        assert bool(record.exc_info) == traceback


def test_what_ends_the_program_is_not_held_up() -> None:
    engine = make(policy=Logs(load=KeyboardInterrupt()))
    request = engine.match(PROMPT)
    with pytest.raises(KeyboardInterrupt):
        engine.load(request)
    request.hit.release()
    engine.cache.close()


class Broken:
    """Its `stop` is no method."""

    stop = "wait_complete"


@pytest.mark.parametrize("policy", ["timeout", Logs, object(), Policy(), Broken(), 3])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^policy: "):
        make(policy=policy)


def test_one_method_is_enough() -> None:
    class Stops(Policy):
        def stop(self, waiting: Waiting) -> str:
            return "compute"

    inner = MemoryStore()
    engine = make(store=Shared(inner), policy=Stops())
    with engine.cache as cache:
        serve(engine, PROMPT)
        assert cache.stats()["stored_pages"] == 12
