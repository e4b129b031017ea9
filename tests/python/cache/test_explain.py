"""Explanations: every token is of one tier or has a reason; also after the release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_engine import PLAIN, make

from hicache import ArgumentError, HitError, Namespace

EIGHT = list(range(8))


def test_tokens_by_tier_and_reasons_for_the_rest(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    engine.finish(engine.run(EIGHT))
    assert engine.cache.drain(10)
    engine.cache.evict(2)
    engine.cache.evict(1, "host")
    request = engine.match([*EIGHT, 90, 91, 92])
    assert engine.cache.explain(request.hit).loaded is False
    engine.fetch(request)
    engine.load(request)
    told = engine.cache.explain(request.hit)
    assert (told.tokens, told.device, told.host, told.storage, told.computed) == (11, 4, 2, 2, 3)
    assert [(reason.tokens, reason.code) for reason in told.reasons] == [
        (2, "not_stored"),
        (1, "partial_page"),
    ]
    assert str(told) == "11 tokens: 4 device, 2 host, 2 storage, 3 computed (2 not stored, 1 no whole page)"
    engine.finish(request)
    assert engine.cache.explain(request.hit) == told, "a released hit is explained as it was"
    stats = engine.cache.stats()
    assert (stats["loaded_requests"], stats["missed_tokens"]) == (2, 8 + 3)


def test_what_left_says_when_and_for_what() -> None:
    engine = make(2)
    engine.finish(engine.run(EIGHT))
    assert engine.cache.drain(10)
    engine.cache.evict(1)
    engine.cache.evict(1, "host")
    hit = engine.cache.match_prefix(EIGHT, PLAIN)
    (reason,) = engine.cache.explain(hit).reasons
    assert reason.code == "evicted"
    assert re.fullmatch(r"evicted from the host at tick \d+ by the engine", reason.text)
    hit.release()
    other = engine.cache.match_prefix(EIGHT, Namespace(adapter="x"))
    assert [reason.code for reason in engine.cache.explain(other).reasons] == [
        "other_namespace",
        "never_seen",
    ]
    other.release()


def test_what_cannot_be_explained() -> None:
    engine, other = make(2), make(2)
    first = engine.cache.match_prefix(EIGHT)
    with pytest.raises(ArgumentError, match="hit: belongs to another cache"):
        other.cache.explain(first)
    with pytest.raises(ArgumentError, match="hit: need a hit"):
        engine.cache.explain(7)  # type: ignore[arg-type]
    first.release()
    for _ in range(256):
        engine.cache.match_prefix(EIGHT).release()
    with pytest.raises(HitError, match="released long ago"):
        engine.cache.explain(first)
