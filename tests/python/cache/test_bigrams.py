"""Bigram keys: pairs of neighbouring tokens are the units of pages, in memory and in storage."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from fake_engine import ANY_LENGTH

from hicache import ArgumentError, HiCache, Host, ModelIdentity, StaleCursor, WouldHit, pools


def cache_of(page_size: int, store: Path | None = None, keys: str = "bigrams") -> HiCache:
    rows = [torch.zeros(32 * page_size, 1)]
    identity = ModelIdentity(model="m") if store else None
    pool = pools.latent("kv", rows)
    return HiCache([pool], page_size, host=Host(), storage=store, identity=identity, keys=keys, **ANY_LENGTH)


def serve(cache: HiCache, tokens: list[int]) -> int:
    """A whole request; returns what it hit."""
    hit = cache.match_prefix(tokens)
    cache.prefetch(hit)
    while hit.waiting:
        cache.poll()
    cache.load([hit]).wait()
    found = hit.length
    pages = max(0, len(tokens) - 1) // cache.page_size - found // cache.page_size
    slots = cache.allocate(pages)
    assert slots is not None
    cache.free(cache.insert(hit, tokens[found:], slots).duplicates)
    hit.release()
    assert cache.drain(10)
    cache.check()
    return found


def matched(cache: HiCache, tokens: list[int]) -> int:
    hit = cache.match_prefix(tokens)
    found = hit.device_length
    hit.release()
    return found


def test_a_page_of_pairs_needs_one_token_more() -> None:
    with cache_of(64) as cache:
        tokens = list(range(100, 165))
        serve(cache, tokens)
        assert matched(cache, tokens[:64]) == 0
        assert matched(cache, tokens) == 64
        assert matched(cache, [*tokens, 1]) == 64
        assert matched(cache, []) == matched(cache, [1]) == 0
        assert cache.reader().would_hit(tokens) == WouldHit(64, 64)
        assert cache.reader().would_hit(tokens[:64]) == WouldHit(0, 0)


def test_a_pair_ends_with_the_next_pages_first_token() -> None:
    with cache_of(2) as cache:
        serve(cache, [1, 2, 3, 4, 5])
        assert matched(cache, [1, 2, 3, 4, 5]) == 4
        assert matched(cache, [1, 2, 3, 4, 9]) == 2, "the second page's last pair is (4, 9)"
        assert matched(cache, [1, 2, 9]) == 0


def test_a_conversation_continues_at_the_hits_length() -> None:
    with cache_of(2) as cache:
        tokens = [1, 2, 3, 4, 5, 6, 7]
        hit = cache.match_prefix(tokens)
        cache.load([hit])
        slots = cache.allocate(3)
        assert slots is not None
        for end in (3, 7):  # in two chunks, the second from where the hit is by then
            start = hit.length
            cache.insert(hit, tokens[start:end], slots[start // 2 : (end - 1) // 2])
        assert hit.length == 6
        hit.release()
        more = cache.match_prefix([7, 8, 9], after=hit)
        assert more.device_length == 6
        more.release()


def test_a_tail_must_begin_with_the_token_that_the_hits_last_pair_ends_with() -> None:
    with cache_of(2) as cache:
        hit = cache.match_prefix([1, 2, 3])
        cache.load([hit])
        slots = cache.allocate(3)
        assert slots is not None
        cache.insert(hit, [1, 2, 3], slots[:1])
        with pytest.raises(ArgumentError, match=r"^tokens: "):
            cache.insert(hit, [8, 4, 5], slots[1:2])
        assert hit.length == 2
        cache.insert(hit, [3, 4, 5], slots[1:2])
        cache.free(slots[2:])
        hit.release()
        with pytest.raises(StaleCursor):
            cache.match_prefix([9, 5, 6, 7], after=hit)
        assert matched(cache, [1, 2, 3, 4, 9, 5, 6, 7]) == 2
        assert matched(cache, [1, 2, 3, 4, 5, 6]) == 4
        cache.check()


def test_what_is_stored_comes_back_and_plain_keys_do_not_find_it(tmp_path: Path) -> None:
    tokens = [5, 6, 7, 8, 9]
    with cache_of(2, tmp_path) as cache:
        assert serve(cache, tokens) == 0
    with cache_of(2, tmp_path) as cache:
        assert serve(cache, tokens) == 4
        assert cache.stats()["hit_storage_tokens"] == 4
    with cache_of(2, tmp_path, keys="tokens") as cache:
        assert serve(cache, tokens) == 0


def test_no_plain_key_is_a_pair(tmp_path: Path) -> None:
    """A page of P pairs is hashed as 2·P words: a page of so many plain tokens that are the same words is
    another one, in the same store and of pages of the same size in bytes; and pairs of other pages' sizes
    are others, too."""
    pairs = [5, 6, 7, 8, 9]
    words = [word for pair in itertools.pairwise(pairs) for word in pair]
    with cache_of(2, tmp_path) as cache:
        serve(cache, pairs)
        assert cache.stats()["stored_pages"] == 2
    others: list[tuple[int, str, list[int]]] = [
        (4, "tokens", words),
        (2, "tokens", words),
        (2, "tokens", pairs),
        (1, "tokens", words),
        (1, "bigrams", pairs),
        (4, "bigrams", pairs),
    ]
    for page_size, keys, tokens in others:
        with cache_of(page_size, tmp_path, keys) as cache:
            hit = cache.match_prefix(tokens)
            cache.prefetch(hit)
            assert cache.drain(10)
            assert (hit.host_length, cache.stats()["prefetched_pages"]) == (0, 0), (page_size, keys)
            hit.release()
    with cache_of(2, tmp_path) as cache:
        assert serve(cache, pairs) == 4


def test_an_identity_says_which_keys_it_has(tmp_path: Path) -> None:
    """Not their digests alone tell pages of both kinds apart: they are of two identities."""
    names = []
    for keys in ("bigrams", "tokens", "bigrams"):
        cache_of(2, tmp_path, keys).close()
        names.append({entry.name for entry in (tmp_path / "identities").iterdir()})
    assert len(names[1] - names[0]) == 1
    assert names[2] == names[1]


@pytest.mark.parametrize("count", range(2, 12))
def test_what_is_kept_of_pairs_is_what_can_be_asked_for(tmp_path: Path, count: int) -> None:
    """The same prompt finds as much as it stored, whatever its length is: no page is written that needs a
    token more than whoever asks for it has."""
    tokens = list(range(100, 100 + count))
    with cache_of(2, tmp_path) as cache:
        assert serve(cache, tokens) == 0
        written = cache.stats()["stored_pages"]
    with cache_of(2, tmp_path) as cache:
        assert serve(cache, tokens) == 2 * written == (count - 1) // 2 * 2
        assert cache.stats()["prefetched_pages"] == written


def test_bad_keys_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^keys: "):
        cache_of(2, keys="trigrams")
    with cache_of(2) as cache, pytest.raises(ArgumentError, match=r"^tokens: "):
        cache.match_prefix([1, -2, 3])
