"""Rewinding a hit: what an engine does that inserted drafts before it knew whether they are accepted."""

from __future__ import annotations

import pytest
import torch

from hicache import ArgumentError, HiCache, Hit, HitError, Host, pools

P = 4
ACCEPTED = list(range(12))
DRAFTED = [*range(10), 90, 91, 92, 93, 94, 95]  # ten tokens of the history, and six that are rejected


def cache_of(slots: int = 16, keys: str = "tokens") -> tuple[HiCache, torch.Tensor]:
    rows = torch.zeros(slots * P, 1)
    return HiCache([pools.latent("kv", [rows])], P, host=Host(), keys=keys), rows


def write(rows: torch.Tensor, slots: torch.Tensor, tokens: list[int], start: int) -> None:
    """Each token's row is its number."""
    for at, token in enumerate(tokens, start):
        rows[int(slots[at // P]) * P + at % P] = token


def read(rows: torch.Tensor, hit: Hit) -> list[int]:
    return [int(rows[int(slot) * P + at]) for slot in hit.slots for at in range(P)]


def test_drafts_that_were_inserted_are_taken_back() -> None:
    cache, rows = cache_of()
    with cache:
        hit = cache.match_prefix(ACCEPTED)
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        write(rows, slots, DRAFTED, 0)
        cache.insert(hit, DRAFTED, slots)
        assert hit.length == 16
        # Ten were accepted: the third page is partly right. Its rows go to a slot of ours, then the hit goes
        # back.
        fresh = cache.allocate(1)
        assert fresh is not None
        rows[int(fresh) * P : int(fresh) * P + 2] = rows[int(slots[2]) * P : int(slots[2]) * P + 2].clone()
        hit.rewind(8)
        assert (hit.length, hit.slots.tolist()) == (8, slots[:2].tolist())
        table = torch.cat([slots[:2], fresh])
        write(rows, table, ACCEPTED[10:], 10)
        done = cache.insert(hit, ACCEPTED[8:], fresh)
        assert (hit.length, done.slots.tolist(), len(done.duplicates)) == (12, fresh.tolist(), 0)
        assert read(rows, hit) == ACCEPTED
        hit.release()
        cache.check()
        # Both are right for their tokens.
        for tokens in (ACCEPTED, DRAFTED):
            other = cache.match_prefix(tokens)
            cache.load([other]).wait()
            assert read(rows, other) == tokens
            other.release()
        assert cache.drain(10)
        cache.evict(16)
        assert cache.stats()["device_free"] == 16


def test_what_was_taken_back_makes_room() -> None:
    cache, _ = cache_of(slots=4)
    with cache:
        hit = cache.match_prefix(ACCEPTED)
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        cache.insert(hit, DRAFTED, slots)
        assert cache.drain(10)
        assert cache.allocate(1) is None, "all of it is held"
        hit.rewind(8)
        more = cache.allocate(2)
        assert more is not None
        assert cache.allocate(1) is None, "what is left is the hit's"
        cache.free(more)
        hit.release()
        cache.check()


def test_pairs_go_back_and_on() -> None:
    cache, _ = cache_of(keys="bigrams")
    with cache:
        hit = cache.match_prefix(ACCEPTED)
        cache.load([hit])
        slots = cache.allocate(3)
        assert slots is not None
        cache.insert(hit, DRAFTED[:13], slots)
        hit.rewind(8)
        with pytest.raises(ArgumentError, match=r"^tokens: "):
            cache.insert(hit, [7, 9, 10, 11, 12], slots[2:])
        other = cache.allocate(1)
        assert other is not None
        cache.insert(hit, [*ACCEPTED[8:], 12], other)
        assert hit.length == 12
        hit.release()
        assert cache.reader().would_hit([*ACCEPTED, 12]).device_length == 12
        assert cache.reader().would_hit(DRAFTED[:13]).device_length == 12
        cache.check()


def test_what_can_not_be_is_refused_by_name() -> None:
    cache, _ = cache_of()
    with cache:
        hit = cache.match_prefix(ACCEPTED)
        with pytest.raises(HitError, match="not loaded"):
            hit.rewind(0)
        cache.load([hit])
        slots = cache.allocate(3)
        assert slots is not None
        cache.insert(hit, ACCEPTED, slots)
        for length in (-4, 3, 16, 2**70, 1.5, "8", None, True):
            with pytest.raises(ArgumentError, match=r"^length: "):
                hit.rewind(length)  # type: ignore[arg-type]
            assert hit.length == 12
        hit.rewind(12)
        assert hit.length == 12
        hit.rewind(0)
        assert (hit.length, len(hit.slots)) == (0, 0)
        hit.release()
        with pytest.raises(HitError, match="released"):
            hit.rewind(0)
        cache.check()
