"""Hybrids on the cache under random schedules: pools so small that pages, windows and states leave all the
time, requests at once, parts taken away between the steps, aborts. Whoever ends has the naive answer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cached_hybrids import Stack
from hybrids import assert_naive, hybrid, pools_for, some_tokens

from hicache.engines.reference import Request
from hicache.engines.reference.parts import Needs

#: Conversations share these beginnings.
STEMS = [some_tokens(60, seed).tolist() for seed in (31, 32)]


class Storm:
    """A stack as small as its requests allow: two of them fit at once, if nothing is pinned besides."""

    def __init__(self, kinds: str, seed: int, **settings: Any) -> None:
        self.draw = random.Random(seed)
        window, chunk_tokens = self.draw.randint(1, 12), self.draw.choice([3, 8, 40])
        page_size = self.draw.choice([1, 4, 8])
        self.model = hybrid(kinds, **({"window": window} if "W" in kinds else {}))
        one = Needs(pools_for(self.model, 999, page_size, 999, 9), window, chunk_tokens).of(80)
        pages = -(-80 // page_size)
        self.stack = Stack(
            self.model,
            sizes=(3 * pages, 2 * one.get("window", 0), 2 * one.get("state", 0) + 2),
            host=self.draw.choice([0.5, 2.0]),
            page_size=page_size,
            chunk_tokens=chunk_tokens,
            max_running=3,
            **settings,
        )
        self.given: Counter[str] = Counter()

    def request(self) -> Request:
        stem = self.draw.choice(STEMS)[: self.draw.randint(0, 60)]
        prompt = stem + some_tokens(self.draw.randint(1, 12), self.draw.randint(0, 3)).tolist()
        return Request(prompt, self.draw.randint(1, 5), keep_logits=True)

    def disturb(self) -> None:
        """Something leaves."""
        cache, what = self.stack.cache, self.draw.random()
        tier = self.draw.choice(["device", "device", "host"])
        if what < 0.3:
            cache.evict_part(self.draw.choice(cache.parts), self.draw.randint(1, 6), tier=tier)
        elif what < 0.35:
            cache.evict(self.draw.randint(1, 20), tier=tier)

    def run(self, requests: int, *, aborts: int) -> None:
        engine, waiting = self.stack.engine, requests
        asked = []
        while waiting or engine.busy:
            if waiting and self.draw.random() < 0.4:
                asked.append(engine.submit(self.request()))
                waiting -= 1
            engine.step()
            self.disturb()
            if aborts and asked and self.draw.random() < 0.1:
                aborts -= 1
                engine.abort(self.draw.choice(asked))
            self.stack.cache.check()
        for sequence in asked:
            result = sequence.result
            assert result is not None
            if result.finish != "aborted":
                assert_naive(self.model, sequence.request, result)
                self.given.update(
                    device=result.device_tokens, host=result.host_tokens, storage=result.storage_tokens
                )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kinds", ["WF", "SF", "SWF", "WS"])
def test_random_schedules(kinds: str, seed: int) -> None:
    storm = Storm(kinds, seed)
    with storm.stack as stack:
        storm.run(14, aborts=5 if seed == 2 else 0)
        stack.settle()
        stack.forget("device")
        storm.run(4, aborts=0)
        stack.check_books()
    print(f"\ntokens that were not computed: {dict(storm.given)}")
    assert sum(storm.given.values()) > 0


@pytest.mark.parametrize("kinds", ["WF", "SF", "SWF", "WS"])
def test_random_schedules_over_a_store(kinds: str, tmp_path: Path) -> None:
    """Two lives of the same cache: what the second one asks first was stored by the first one."""
    for life in range(2):
        storm = Storm(kinds, 4, store=tmp_path)
        with storm.stack as stack:
            storm.run(12, aborts=3 * life)
            stack.check_books()
        print(f"\ntokens that were not computed in life {life}: {dict(storm.given)}")
        assert life == 0 or storm.given["storage"] > 0


@pytest.mark.parametrize("host", [None, 1.0])
@pytest.mark.parametrize(("window", "chunk_tokens"), [(10, 3), (10, 2), (6, 5), (1, 7), (5, 40)])
def test_a_request_alone_in_pools_of_just_its_needs(
    window: int, chunk_tokens: int, host: float | None
) -> None:
    """Behind hits too, whose windows and checkpoints are held: nobody else could give it room."""
    model, prompt = hybrid("SWF", window=window), some_tokens(43).tolist()
    needs = Needs(pools_for(model, 60, 4, 60, 60), window, chunk_tokens).of(55)
    sizes = (20, needs["window"], needs["state"])
    with Stack(model, sizes=sizes, host=host, chunk_tokens=chunk_tokens) as stack:
        given = [stack.ask(prompt[:length], 12 if length == 43 else 1) for length in (25, 43, 25, 38, 43)]
        assert sum(result.device_tokens + result.host_tokens for result in given) > 0
        stack.check_books()
