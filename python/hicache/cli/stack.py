"""A model, its pools, the cache over them and the engine on top: what `demo` and `bench` run.

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

from hicache import HiCache, Host, ModelIdentity
from hicache import storage as stores
from hicache.engines.reference import Engine, Model, ModelConfig, Pools, Request, random_weights, smollm2
from hicache.engines.reference.config import STATE, WINDOW
from hicache.engines.reference.declared import declared
from hicache.engines.reference.parts import STATES
from hicache.storage import Storage
from hicache.testing.throttled import Throttled

#: Of the random model: elements of a head, query heads to a KV head, and token ids.
HEAD, GROUP, VOCABULARY = 32, 2, 4096
#: Tokens that its sliding windows see.
SLIDING = 128
DEFAULT_WRITE = "write_through"
DRAIN_S = 60.0
#: Seconds that a throttled store may take, for a batch and for all that waits for it.
SLOW_S = 600.0
#: Of a hybrid: pages of the device to a state that is kept.
PAGES_A_STATE = 4
#: Tokens of a short piece of a prompt, such as a question.
SHORT = 24


@dataclass(frozen=True)
class Tiers:
    """Sizes in pages. No host: no host tier; no store: no storage tier. A hybrid's windows have as many pages
    as full attention; there is a state for every fourth page, besides those of running requests."""

    page_size: int
    device: int
    host: int | None = None
    store: Path | None = None


@dataclass(frozen=True)
class Ways:
    """When pages are written and waited for. `throttle`: MB (10^6 bytes) a second that the store carries,
    None for all it can. `host_mode`: "buffer_only" where the host keeps no page; `write` then says when pages
    go to the store."""

    write: str = DEFAULT_WRITE
    # Prompts are short here, and what is shown is what each tier has, whatever the disk's speed.
    prefetch: str = "wait_complete"
    throttle: float | None = None
    host_mode: str = "cache"

    @property
    def staging(self) -> bool:
        """Whether pages only pass through the host."""
        return self.host_mode == "buffer_only"

    @property
    def patience(self) -> float:
        """Seconds until what goes to the store must be there."""
        return DRAIN_S if self.throttle is None else SLOW_S

    def storage(self, directory: Path | None) -> Storage | None:
        """The store in a directory."""
        if directory is None:
            return None
        url = directory.resolve().as_uri()
        if self.throttle is None:
            return url
        # Pages are verified behind it.
        return stores.served(Throttled(stores.open(url), self.throttle * 1e6), verify=False, timeout=SLOW_S)


#: As the demo and the benchmark have it unless they are told otherwise.
PLAIN = Ways()


@dataclass(frozen=True)
class Stack:
    """An engine and the cache that it runs on."""

    engine: Engine
    cache: HiCache


@contextmanager
def serving(
    model: Model, name: str, tiers: Tiers, *, chunk_tokens: int, max_running: int, ways: Ways = PLAIN
) -> Iterator[Stack]:
    """A stack with empty pools, which is closed at the end: what is on its way to the store gets there."""
    states = tiers.device // PAGES_A_STATE + STATES * max_running
    pools = pools_of(model, tiers.device, tiers.page_size, states)
    host = None if tiers.host is None else Host(tokens=tiers.host * tiers.page_size)
    identity = ModelIdentity.of(
        model.config.as_dict(), model.weights.named(), model=name, dtype=str(model.dtype)
    )
    with HiCache(
        pools=declared(model.config, pools),
        page_size=tiers.page_size,
        host=host,
        storage=ways.storage(tiers.store),
        identity=identity,
        prefetch=ways.prefetch,
        host_mode=ways.host_mode,
        # Without a host tier nothing is written there.
        write=DEFAULT_WRITE if ways.staging or host is None else ways.write,
        write_storage=ways.write if ways.staging else DEFAULT_WRITE,
        # What it shows is what each tier has.
        host_copies="give_way" if ways.staging else "keep",
        prefetch_threshold=0,
        load_threshold=0,
        prefetch_deadline=ways.patience,
        store_deadline=ways.patience,
    ) as cache:
        engine = Engine(model, pools, cache, chunk_tokens=chunk_tokens, max_running=max_running)
        yield Stack(engine, cache)
        engine.close()
        cache.drain(ways.patience)


def pools_of(model: Model, pages: int, page_size: int, states: int) -> Pools:
    """Pools of so many pages each, and of states, as the model needs them."""
    kinds = model.config.layer_kinds
    return Pools.create(
        model.config,
        slots=pages,
        page_size=page_size,
        window_slots=pages if WINDOW in kinds else 0,
        state_slots=states if STATE in kinds else 0,
        dtype=model.dtype,
    )


def random_model(
    layers: int,
    hidden: int,
    seed: int,
    dtype: torch.dtype,
    vocabulary: int = VOCABULARY,
    kinds: str = "",
) -> Model:
    """Seeded random weights; `hidden` is a multiple of `HEAD * GROUP`. `kinds`: of its layers, "" for full
    attention in all of them."""
    heads = hidden // HEAD
    states = (heads, HEAD, HEAD) if STATE in kinds else (0, 0, 0)
    config = ModelConfig(
        layers=layers,
        hidden=hidden,
        query_heads=heads,
        kv_heads=heads // GROUP,
        head_dim=HEAD,
        ffn=hidden * 11 // 4,
        vocabulary=vocabulary,
        kinds=kinds,
        window=SLIDING if WINDOW in kinds else 0,
        state_heads=states[0],
        state_key=states[1],
        state_value=states[2],
    )
    return Model(config, random_weights(config, seed=seed, dtype=dtype))


def real_model() -> smollm2.SmolLM2:
    """SmolLM2-135M-Instruct and its tokenizer."""
    return smollm2.load()


def warm_up(model: Model, tokens: int) -> None:
    """Computes a long piece, a short one and a token, without the cache: the first passes are slow."""
    prompt = torch.arange(tokens + SHORT) % model.config.vocabulary
    pools = pools_of(model, len(prompt) + 2, 1, STATES)
    Engine(model, pools, chunk_tokens=tokens).generate([Request(prompt, max_new_tokens=2)])
