"""What the tests of speculative decoding share: a model and its draft over a cache, in every arrangement of
pools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from hicache import HiCache, Host, ModelIdentity
from hicache.engines.reference import KVPool, Model, Request
from hicache.engines.reference.draft import Draft
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.speculative import Answer, Speculative

Arrange = Callable[..., Drafted]

#: Arrangements of the pools, each with drafts that go by one token and by pairs.
KINDS = [
    (Drafted.sidecar, 0),
    (Drafted.packed, 0),
    (Drafted.fused, 0),
    (Drafted.sidecar, 1),
    (Drafted.packed, 1),
    (Drafted.fused, 1),
]
NAMES = [f"{arrange.__name__}{'-pairs' if ahead else ''}" for arrange, ahead in KINDS]
TIERS = ("device", "host", "storage", "computed")


def random_prompts() -> list[list[int]]:
    """For the tiny model. Of uneven lengths, so that pages end with the prompt and elsewhere; of those seeds
    whose answers have passes with none, some and all guesses accepted."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 256, (count,), generator=generator).tolist() for count in (30, 33, 36)]


def found(answer: Answer) -> tuple[int, ...]:
    """Prompt tokens by tier: device, host, storage, computed."""
    return tuple(getattr(answer.result, f"{tier}_tokens") for tier in TIERS)


def same(answer: Answer, oracle: Answer) -> bool:
    """The same tokens, and the same guesses accepted in every pass."""
    ours, its = ((a.result.tokens, a.guessed, a.accepted) for a in (answer, oracle))
    return ours == its


class Stack:
    """Pools, a cache over them, and an engine on both. Use as a context manager: it closes the cache."""

    def __init__(
        self,
        model: Model,
        draft: Draft,
        arrange: Arrange,
        ahead: int = 0,
        *,
        page_size: int = 4,
        slots: int = 40,
        cached: bool = True,
        store: Path | None = None,
        keys: str | None = None,
        declare: Callable[[Drafted], Drafted] = lambda pools: pools,
    ) -> None:
        self.page_size = page_size
        self.pools = declare(
            arrange(model.config, draft.config, slots=slots, page_size=page_size, dtype=model.dtype)
        )
        self.cache = HiCache(
            self.pools.declared,
            page_size,
            host=Host(tokens=2 * slots * page_size),
            storage=store,
            identity=ModelIdentity(model="target and draft", dtype=str(model.dtype)),
            keys=keys or ("bigrams" if ahead else "tokens"),
            # Prompts are short here: nothing is too little to fetch or to load, and all of it is waited for.
            prefetch="wait_complete",
            prefetch_threshold=0,
            load_threshold=0,
            host_copies="keep",
        )
        self.engine = Speculative(model, draft, self.pools, self.cache if cached else None, ahead=ahead)

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *error: object) -> None:
        self.cache.close()

    def ask(self, tokens: list[int], new: int, stop: frozenset[int] = frozenset()) -> Answer:
        """One request; its backups and stores have landed when it returns, and nothing is out."""
        answer = self.engine.generate(Request(tokens, new, stop=stop))
        assert self.cache.drain(30.0)
        self.cache.check()
        return answer

    def leave(self, *tiers: str) -> None:
        """Everything leaves these tiers, and what was on the device is overwritten as others would."""
        for tier in tiers:
            self.cache.evict(self.cache.stats()[f"{tier}_slots"], tier=tier)
        if "device" in tiers:
            self.spoil(self.pools.target, self.pools.draft)

    def spoil(self, *pools: KVPool) -> None:
        """Other numbers in all rows."""
        generator = torch.Generator().manual_seed(1)
        for pool in pools:
            for tensor in (*pool.k, *pool.v):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))

    def draft_rows(self, tokens: list[int]) -> torch.Tensor:
        """K of the draft's last layer for what the device has of a history, (tokens, kv_heads, head_dim)."""
        hit = self.cache.match_prefix(tokens)
        self.cache.load([hit]).wait()
        rows = self.pools.draft.rows(hit.slots, hit.length)
        hit.release()
        return self.pools.draft.k[-1][rows]

    def cached(self) -> int:
        """Pages on the device."""
        stats = self.cache.stats()
        return stats["device_slots"] - stats["device_free"]

    def check_books(self) -> None:
        """Nothing runs: everything can be evicted, and then every slot of every tier is free."""
        self.leave("device", "host")
        self.cache.poll()
        stats = self.cache.stats()
        assert (stats["device_free"], stats["host_free"]) == (stats["device_slots"], stats["host_slots"])
