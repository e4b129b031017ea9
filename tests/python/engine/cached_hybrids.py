"""A hybrid served from a real cache: pools, the cache over them, an engine, and how tiers are emptied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hybrids import assert_naive, pools_for

from hicache import HiCache, Host, ModelIdentity
from hicache.engines.reference import Engine, Model, Request, Result
from hicache.engines.reference.declared import declared
from hicache.engines.reference.unified import unified_pools

#: Prompts are short here: nothing is too little to fetch or to load, and all of it is waited for.
ANY_LENGTH: dict[str, Any] = {"prefetch": "wait_complete", "prefetch_threshold": 0, "load_threshold": 0}

DRAIN_S = 30.0
PAGE = 4


class Stack:
    """Use as a context manager: it closes the cache. `sizes`: slots of pages, windows and states; `host`: as
    a multiple of these. `size`: bytes of one buffer for all of the device, instead of `sizes`."""

    def __init__(
        self,
        model: Model,
        *,
        sizes: tuple[int, int, int] = (120, 120, 60),
        size: int | None = None,
        host: float | None = 2.0,
        store: Path | None = None,
        page_size: int = PAGE,
        chunk_tokens: int = 4,
        max_running: int = 4,
        layout: str = "page_unified",
        **settings: Any,
    ) -> None:
        self.model = model
        if size is None:
            self.pools = pools_for(model, sizes[0], page_size, sizes[1], sizes[2])
        else:
            self.pools = unified_pools(model.config, size=size, page_size=page_size, dtype=model.dtype)
        self.cache = HiCache(
            declared(model.config, self.pools),
            page_size,
            host=None if host is None else Host(ratio=host, layout=layout),
            storage=store,
            unified=self.pools.buffer,
            identity=ModelIdentity(model=model.config.kinds, dtype=str(model.dtype)),
            **(ANY_LENGTH | settings),
        )
        self.engine = Engine(
            model,
            self.pools,
            self.cache,
            chunk_tokens=chunk_tokens,
            max_running=max_running,
            stall_timeout=20.0,
        )

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()
        self.cache.close()

    def ask(self, prompt: list[int], new: int = 3) -> Result:
        """The answer, which must be the naive one, token by token and logit by logit."""
        request = Request(prompt, new, keep_logits=True)
        (result,) = self.engine.generate([request])
        assert_naive(self.model, request, result)
        return result

    def settle(self) -> None:
        """Backups and stores are through: what hits next does not depend on the machine's speed."""
        assert self.cache.drain(DRAIN_S)
        self.cache.check()

    def forget(self, *tiers: str) -> None:
        """Everything leaves, so that what hits next comes from the tiers below."""
        for tier in tiers:
            self.cache.evict(self.cache.stats()[f"{tier}_slots"], tier=tier)

    def forget_part(self, part: str, tier: str = "device") -> int:
        """All of a part leaves a tier. How many slots that were."""
        return len(self.cache.evict_part(part, self.cache.part_stats(part)[f"{tier}_slots"], tier=tier))

    def check_books(self) -> None:
        """Nothing runs: everything can leave, and then every slot of every tier and part is free."""
        self.settle()
        self.forget("device", "host")
        stats = [self.cache.stats(), *map(self.cache.part_stats, self.cache.parts)]
        for tier in ("device", "host"):
            assert [of[f"{tier}_free"] for of in stats] == [of[f"{tier}_slots"] for of in stats]
        assert self.cache.stats()["nodes"] == 0
        assert self.engine.running == 0

    def tensors(self, part: str) -> list[torch.Tensor]:
        """A part's tensors on the device."""
        if part == "window":
            assert self.pools.window is not None
            return [*self.pools.window.k, *self.pools.window.v]
        assert self.pools.state is not None
        return [*self.pools.state.memory, *self.pools.state.last]
