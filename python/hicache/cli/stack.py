"""A model, a KV pool, the cache over it and the engine on top: what `demo` and `bench` run.

For: commands that need a whole serving stack in one process.
Assumes: sizes were checked by the command that asks.
Refuses to know: workloads, and what is printed.
On error: `MissingPackage` where the real model's package is not installed; an `OSError` or a `HiCacheError`
for a store directory that cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.engines.reference import Engine, KVPool, Model, ModelConfig, Request, random_weights, smollm2

#: Of the random model: elements of a head, query heads to a KV head, and token ids.
HEAD, GROUP, VOCABULARY = 32, 2, 4096
DRAIN_S = 60.0
#: Tokens of a short piece of a prompt, such as a question.
SHORT = 24


@dataclass(frozen=True)
class Tiers:
    """Sizes in pages. No host: no host tier; no store: no storage tier."""

    page_size: int
    device: int
    host: int | None = None
    store: Path | None = None


@dataclass(frozen=True)
class Stack:
    """An engine and the cache that it runs on."""

    engine: Engine
    cache: HiCache


@contextmanager
def serving(model: Model, name: str, tiers: Tiers, *, chunk_tokens: int, max_running: int) -> Iterator[Stack]:
    """A stack with empty pools, which is closed at the end: what is on its way to the store gets there."""
    pool = KVPool.create(model.config, slots=tiers.device, page_size=tiers.page_size, dtype=model.dtype)
    host = None if tiers.host is None else Host(tokens=tiers.host * tiers.page_size)
    identity = ModelIdentity.of(
        model.config.as_dict(), model.weights.named(), model=name, dtype=str(model.dtype)
    )
    with HiCache(
        pools=[pools.mha("kv", pool.k, pool.v)],
        page_size=tiers.page_size,
        host=host,
        storage=None if tiers.store is None else tiers.store.resolve().as_uri(),
        identity=identity,
    ) as cache:
        engine = Engine(model, pool, cache, chunk_tokens=chunk_tokens, max_running=max_running)
        yield Stack(engine, cache)
        engine.close()
        cache.drain(DRAIN_S)


def random_model(
    layers: int, hidden: int, seed: int, dtype: torch.dtype, vocabulary: int = VOCABULARY
) -> Model:
    """Seeded random weights; `hidden` is a multiple of `HEAD * GROUP`."""
    heads = hidden // HEAD
    config = ModelConfig(
        layers=layers,
        hidden=hidden,
        query_heads=heads,
        kv_heads=heads // GROUP,
        head_dim=HEAD,
        ffn=hidden * 11 // 4,
        vocabulary=vocabulary,
    )
    return Model(config, random_weights(config, seed=seed, dtype=dtype))


def real_model() -> smollm2.SmolLM2:
    """SmolLM2-135M-Instruct and its tokenizer."""
    return smollm2.load()


def warm_up(model: Model, tokens: int) -> None:
    """Computes a long piece, a short one and a token, without the cache: the first passes are slow."""
    prompt = torch.arange(tokens + SHORT) % model.config.vocabulary
    pool = KVPool.create(model.config, slots=len(prompt) + 2, page_size=1, dtype=model.dtype)
    Engine(model, pool, chunk_tokens=tokens).generate([Request(prompt, max_new_tokens=2)])
