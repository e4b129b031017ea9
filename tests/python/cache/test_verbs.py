"""Each verb's documented behaviour, one call at a time, with stamped pages."""

from __future__ import annotations

import pytest
from fake_engine import PLAIN, Engine, Request, make

from hicache import ArgumentError, HitError, Namespace, StaleCursor

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]
SALTED = Namespace(salt="s")


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them on the device and on the host; no store."""
    return make(2)


def cached(engine: Engine, tokens: list[int], namespace: Namespace = PLAIN) -> None:
    """Computes a prompt, lets it go, and waits until it is backed up."""
    engine.finish(engine.run(tokens, namespace))
    assert engine.cache.drain(10)


def lengths(request: Request) -> tuple[int, int]:
    return request.hit.device_length, request.hit.host_length


# match


@pytest.mark.parametrize("length", range(10))
def test_only_whole_pages_hit(engine: Engine, length: int) -> None:
    cached(engine, EIGHT)
    assert lengths(engine.match([*EIGHT, 9, 9][:length])) == (min(length // 2 * 2, 8),) * 2


@pytest.mark.parametrize(("limit", "hit"), [(0, 0), (1, 0), (2, 2), (7, 6), (8, 8), (99, 8), (None, 8)])
def test_limit(engine: Engine, limit: int | None, hit: int) -> None:
    cached(engine, EIGHT)
    request = engine.match(EIGHT, limit=limit)
    assert lengths(request) == (hit, hit)
    engine.load(request)
    assert request.hit.length == hit
    engine.verify(request)


def test_match_moves_nothing_and_host_pages_count_after_the_device(engine: Engine) -> None:
    cached(engine, EIGHT)
    assert len(engine.cache.evict(1)) == 1
    before = engine.cache.stats()
    request = engine.match(EIGHT)
    assert lengths(request) == (6, 8)
    after = engine.cache.stats()
    assert {key for key in after if after[key] != before[key]} <= {"requests", "matched_tokens", "nodes"}


def test_namespaces_share_nothing_in_memory(engine: Engine) -> None:
    spaces = [PLAIN, Namespace(extra_key="x"), Namespace(extra_key=""), Namespace(salt="x")]
    spaces += [Namespace(adapter="x"), Namespace(extra_key="x", salt="x")]
    for number, namespace in enumerate(spaces):
        assert [lengths(engine.match(EIGHT[:2], other)) for other in spaces[number:]] == [(0, 0)] * (
            len(spaces) - number
        )
        cached(engine, EIGHT[:2], namespace)
    for namespace in spaces:
        engine.finish(engine.run(EIGHT[:2], namespace))


def test_an_empty_salt_is_none(engine: Engine) -> None:
    cached(engine, EIGHT)
    assert lengths(engine.match(EIGHT, Namespace(salt=""))) == (8, 8)


# after


def test_continuation_counts_from_the_start_of_the_path(engine: Engine) -> None:
    cached(engine, [*EIGHT, 8, 9], SALTED)
    first = engine.run(EIGHT, SALTED)
    engine.finish(first)
    request = engine.match([8, 9, 10, 11], after=first.hit, known=EIGHT)
    assert (request.hit.namespace, first.hit.length, *lengths(request)) == (SALTED, 8, 10, 10)
    engine.load(request)
    assert request.hit.length == 10
    assert engine.compute(request)
    assert request.hit.length == 12
    engine.verify(request)
    engine.finish(request)
    assert lengths(engine.match([*EIGHT, 8, 9, 10, 11], SALTED)) == (12, 12)


def test_limit_counts_the_tokens_that_are_passed(engine: Engine) -> None:
    cached(engine, [*EIGHT, 8, 9, 10, 11])
    first = engine.run(EIGHT)
    engine.finish(first)
    assert lengths(engine.match([8, 9, 10, 11], after=first.hit, known=EIGHT, limit=3)) == (10, 10)


def test_another_namespace_than_that_of_after_is_refused(engine: Engine) -> None:
    first = engine.run(EIGHT, SALTED)
    engine.finish(first)
    with pytest.raises(ArgumentError, match=r"^namespace: "):
        engine.cache.match_prefix([8], PLAIN, after=first.hit)


def test_after_needs_a_released_hit(engine: Engine) -> None:
    with pytest.raises(HitError, match=r"^after: "):
        engine.cache.match_prefix([8], after=engine.match(EIGHT).hit)


def test_a_cursor_is_stale_when_its_page_is_nowhere(engine: Engine) -> None:
    first = engine.run(EIGHT)
    engine.finish(first)
    assert engine.cache.drain(10)
    engine.cache.evict(99)
    engine.cache.match_prefix([8], after=first.hit).release()
    engine.cache.evict(1, tier="host")
    with pytest.raises(StaleCursor, match=r"^after: "):
        engine.cache.match_prefix([8], after=first.hit)


def test_a_hit_that_lost_pages_before_its_release_continues_where_it_really_ended(engine: Engine) -> None:
    cached(engine, [0, 1, 2, 3, 8, 9])
    cached(engine, EIGHT)
    waiting = engine.match(EIGHT)
    engine.cache.evict(99)
    cached(engine, [0, 1, 2, 3, 8, 9])  # uses these again: the other branch is evicted first
    engine.cache.evict(2, tier="host")
    waiting.hit.release()
    known = EIGHT[: waiting.hit.length]
    try:
        request = engine.match([8, 9], after=waiting.hit, known=known)
    except StaleCursor:
        return
    assert request.hit.host_length <= len(request.tokens)
    engine.load(request)
    engine.verify(request)


def test_a_cursor_of_another_cache_is_refused(engine: Engine) -> None:
    """As after a restart inside the engine: its old hits name places of the old cache's tree."""
    first = engine.run(EIGHT)
    engine.finish(first)
    other = make(2)
    cached(other, [9, 9, 9, 9, 9, 9, 9, 9])
    with pytest.raises((StaleCursor, ArgumentError, HitError)):
        other.cache.match_prefix([8, 9], after=first.hit)


@pytest.mark.parametrize("verb", ["prefetch", "load", "insert", "backup"])
def test_a_hit_of_another_cache_is_refused(engine: Engine, verb: str) -> None:
    theirs, other = engine.match(EIGHT), make(2)
    ours = other.match(EIGHT)
    other.load(ours) if verb in ("insert", "backup") else None
    calls = {
        "load": lambda hit: other.cache.load([hit]),
        "insert": lambda hit: other.cache.insert(hit, [], []),
    }
    with pytest.raises((ArgumentError, HitError)):
        calls.get(verb, getattr(other.cache, verb))(theirs.hit)


# load


def test_a_batch_that_shares_a_prefix_copies_it_once(engine: Engine) -> None:
    cached(engine, [*EIGHT, 8, 8])
    cached(engine, [*EIGHT, 9, 9])
    engine.cache.evict(99)
    first, second = engine.match([*EIGHT, 8, 8]), engine.match([*EIGHT, 9, 9])
    load = engine.load(first, second)
    assert (first.hit.loaded_length, second.hit.loaded_length) == (10, 2)
    assert first.table[:4] == second.table[:4]
    for layer in range(2):
        load.wait_layer(layer)
    load.wait()
    assert load.finished
    engine.verify(first)
    engine.verify(second)
    engine.check()


def test_what_finds_no_room_is_computed() -> None:
    engine = make(2, device_pages=4)
    cached(engine, EIGHT)
    engine.cache.evict(99)
    other = engine.run([9, 9])
    request = engine.match(EIGHT)
    engine.load(request)
    assert (request.hit.length, engine.cache.stats()["load_no_room_pages"]) == (6, 1)
    assert not engine.compute(request)
    engine.verify(request)
    engine.finish(other)
    assert engine.cache.drain(10), "a backup holds its source"
    assert engine.compute(request)
    engine.verify(request)


def test_a_load_may_find_more_than_the_match(engine: Engine) -> None:
    early = engine.match(EIGHT)
    cached(engine, EIGHT)
    engine.load(early)
    assert (lengths(early), early.hit.length) == ((8, 8), 8)
    engine.verify(early)


def test_a_load_may_find_less_than_the_match(engine: Engine) -> None:
    cached(engine, EIGHT)
    early = engine.match(EIGHT)
    engine.cache.evict(2)
    engine.cache.evict(1, tier="host")
    engine.load(early)
    assert early.hit.length == 6
    engine.verify(early)


def test_an_empty_batch_loads_nothing(engine: Engine) -> None:
    load = engine.cache.load([])
    load.wait()
    assert load.finished
    assert len(load.unused) == 0


def test_pinned_pages_do_not_leave(engine: Engine) -> None:
    request = engine.run(EIGHT)
    assert engine.cache.drain(10)
    assert engine.cache.evict(99).tolist() == []
    assert len(engine.cache.evict(99, tier="host")) == 4, "host copies of pages on the device give way"
    engine.verify(request)
    engine.finish(request)
    assert sorted(engine.cache.evict(99).tolist()) == sorted(request.table)
