"""Hits from match to release, in every state; and what is left of a closed cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_engine import Engine, Shape, make

from hicache import ArgumentError, ClosedError, HitError

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them on the device and on the host; no store."""
    return make(2)


def cached(engine: Engine, tokens: list[int]) -> None:
    """Computes a prompt, lets it go, and waits until it is backed up."""
    engine.finish(engine.run(tokens))
    assert engine.cache.drain(10)


def test_a_second_release_raises_and_changes_nothing(engine: Engine) -> None:
    other = engine.run(EIGHT)
    request = engine.run(EIGHT)
    engine.finish(request)
    before = engine.cache.stats()
    with pytest.raises(HitError, match=r"^hit: was released"):
        request.hit.release(generated=3)
    assert engine.cache.stats() == before
    engine.check()
    assert engine.cache.evict(99).tolist() == [], "the other's pin is gone"
    engine.verify(other)


@pytest.mark.parametrize(
    "use", ["device_length", "host_length", "loaded_length", "storage_length", "waiting"]
)
def test_a_released_hit_only_knows_where_it_ended(engine: Engine, use: str) -> None:
    request = engine.run(EIGHT)
    engine.finish(request)
    with pytest.raises(HitError, match=r"^hit: was released"):
        getattr(request.hit, use)
    with pytest.raises(HitError):
        _ = request.hit.slots
    assert (request.hit.released, request.hit.length) == (True, 8)
    assert "8" in repr(request.hit)


@pytest.mark.parametrize("verb", ["prefetch", "backup", "load", "insert"])
def test_no_verb_takes_a_released_hit(engine: Engine, verb: str) -> None:
    request = engine.run(EIGHT)
    engine.finish(request)
    hit = request.hit
    arguments = {"load": ([hit],), "insert": (hit, [], [])}.get(verb, (hit,))
    with pytest.raises(HitError, match=r"^hit: was released"):
        getattr(engine.cache, verb)(*arguments)


def test_before_the_load_there_is_no_length_and_no_insert(engine: Engine) -> None:
    hit = engine.match(EIGHT).hit
    for use in (lambda: hit.length, lambda: hit.slots, lambda: engine.cache.backup(hit)):
        with pytest.raises(HitError, match=r"^hit: "):
            use()
    with pytest.raises(HitError, match="load it before"):
        engine.cache.insert(hit, [], [])


def test_a_hit_is_loaded_once_and_prefetched_before(engine: Engine) -> None:
    request = engine.run(EIGHT)
    with pytest.raises(HitError, match="loaded already"):
        engine.cache.load([request.hit])
    with pytest.raises(HitError, match="prefetch comes before"):
        engine.cache.prefetch(request.hit)
    fresh = engine.match(EIGHT).hit
    with pytest.raises(ArgumentError, match=r"^hits: "):
        engine.cache.load([fresh, fresh])
    assert fresh.device_length == 8
    with pytest.raises(HitError):
        engine.cache.load([fresh, request.hit])
    engine.cache.load([fresh])


def test_a_forgotten_hit_warns_and_the_next_poll_lets_it_go(engine: Engine) -> None:
    requests = [engine.run(EIGHT)]
    with pytest.warns(ResourceWarning, match="without release"):
        requests.clear()  # nothing else names it
    assert engine.cache.evict(99).tolist() == []
    engine.cache.poll()
    engine.check()
    assert engine.cache.drain(10)
    assert len(engine.cache.evict(99)) == 4


def test_generated_tokens_are_counted(engine: Engine) -> None:
    for generated in (3, 0, 4):
        engine.match(EIGHT).hit.release(generated=generated)
    engine.cache.match_prefix(EIGHT).release()
    assert engine.cache.stats()["generated_tokens"] == 7


@pytest.mark.parametrize("generated", [-1, 2**70, 1.5])
def test_a_wrong_count_of_generated_tokens_leaves_the_hit(engine: Engine, generated: object) -> None:
    request = engine.run(EIGHT)
    with pytest.raises((ArgumentError, TypeError), match="generated"):
        request.hit.release(generated=generated)  # type: ignore[arg-type]
    assert request.hit.length == 8
    engine.finish(request)


# waiting for layers


@pytest.mark.parametrize("layer", [-1, -5, 2**40, 1.5])
def test_layers_that_can_not_be_meant_are_refused(engine: Engine, layer: Any) -> None:
    """-1 is no way to say the last layer: it may not return before anything has arrived."""
    request = engine.run(EIGHT)
    assert request.load is not None
    with pytest.raises((ArgumentError, TypeError), match="layer"):
        request.load.wait_layer(layer)


@pytest.mark.parametrize("deadline", [1e19, 1e300])
def test_a_load_may_be_given_all_the_time_in_the_world(deadline: float) -> None:
    engine = make(16, 64, 64, shape=Shape(heads=64, k_size=64, v_size=64), load_deadline=deadline)
    tokens = list(range(16 * 64))
    engine.finish(engine.run(tokens))
    assert engine.cache.drain(10)
    for _ in range(3):
        engine.cache.evict(64)
        request = engine.match(tokens)
        engine.load(request).wait()
        assert engine.cache.drain(10)
        engine.finish(request)


# close


@pytest.mark.parametrize(
    "verb", ["match_prefix", "prefetch", "load", "allocate", "insert", "backup", "evict", "ready", "poll"]
)
def test_closed_caches_say_so(engine: Engine, verb: str) -> None:
    matched, loaded = engine.match(EIGHT), engine.run([9, 9])
    engine.cache.close()
    engine.cache.close()
    assert engine.cache.closed
    arguments = {"match_prefix": (EIGHT,), "prefetch": (matched.hit,), "load": ([matched.hit],)}
    arguments |= {"allocate": (1,), "insert": (loaded.hit, [], []), "backup": (loaded.hit,), "evict": (1,)}
    if verb == "ready":
        assert engine.cache.ready() == (0, 0, 0, 0, 0)
    else:
        with pytest.raises(ClosedError, match="closed"):
            getattr(engine.cache, verb)(*arguments.get(verb, ()))
    matched.hit.release()
    loaded.hit.release(generated=1)
    engine.cache.check()


def test_loads_in_flight_when_closed_still_arrive(engine: Engine) -> None:
    cached(engine, EIGHT)
    engine.cache.evict(99)
    request = engine.match(EIGHT)
    engine.load(request)
    engine.cache.close()
    engine.verify(request)
    request.hit.release()


def test_a_context_manager_closes_also_on_an_error() -> None:
    engine = make(2)
    with pytest.raises(ArgumentError), engine.cache as cache:
        cache.allocate(-1)
    assert engine.cache.closed


def test_without_a_host_tier_the_device_is_a_cache() -> None:
    for shape in (Shape(latent=True, layers=1), Shape(latent=True), Shape()):
        engine = make(2, host_pages=0, shape=shape)
        cached(engine, EIGHT)
        request = engine.run(EIGHT)
        assert request.hit.loaded_length == 0
        engine.finish(request)
        assert engine.cache.stats()["hit_device_tokens"] == 8
        assert isinstance(engine.cache.evict(9), torch.Tensor)
        assert engine.match(EIGHT).hit.device_length == 0
