"""Who waits for storage, in the engine: it asks each step, for those who could run, and tells its steps."""

from __future__ import annotations

from collections.abc import Callable

from hicache.engines.reference import Engine, KVPool, Model, Request, Result
from hicache.engines.reference.uncached import Uncached, UncachedHit

Tokens = list[int]


class Deciding(Uncached):
    """All wait, until each was asked about three times."""

    def __init__(self, slots: int, page_size: int) -> None:
        super().__init__(slots, page_size)
        self.asked: dict[int, list[int]] = {}
        self.steps: list[tuple[int, float, int]] = []
        self._hits: list[UncachedHit] = []  # alive, so that each has an id of its own

    def match_prefix(self, *args: object, **options: object) -> UncachedHit:
        self._hits.append(UncachedHit(self, waiting=True))
        return self._hits[-1]

    def decide(self, hit: UncachedHit, others: int) -> str:
        asked = self.asked.setdefault(id(hit), [])
        asked.append(others)
        if len(asked) < 3:
            return "skip" if others else "wait"
        hit.waiting = False
        return "compute"

    def stepped(self, tokens: int, seconds: float, *, ahead: int) -> None:
        self.steps.append((tokens, seconds, ahead))


def test_each_is_asked_until_it_runs(
    tiny: Model,
    random_prompts: Callable[[int, int, int], list[Tokens]],
    alone: Callable[[Model, Request], Result],
) -> None:
    requests = [Request(prompt, max_new_tokens=4) for prompt in random_prompts(3, 20, 30)]
    pool = KVPool.create(tiny.config, slots=64, page_size=4, dtype=tiny.dtype)
    cache = Deciding(64, 4)
    engine = Engine(tiny, pool, cache, max_running=2, chunk_tokens=16)
    results = engine.generate(requests)
    assert [result.tokens for result in results] == [alone(tiny, request).tokens for request in requests]
    assert all(len(asked) == 3 for asked in cache.asked.values())
    # Two can run at once. The third wasn't asked about while it couldn't, and then not alone.
    assert [asked[0] for asked in cache.asked.values()][:2] == [0, 0]
    assert max(cache.asked.values(), key=sum) == list(cache.asked.values())[-1]
    tokens, seconds, ahead = zip(*cache.steps, strict=True)
    assert sum(tokens) == sum(len(request.tokens) for request in requests)
    assert min(seconds) > 0
    assert ahead[-1] == 0 < max(ahead)
    assert cache.free_slots == 64
