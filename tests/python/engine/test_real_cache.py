"""The real model on the cache, in float32: logits within the bound of those without a cache."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.engines.reference import Engine, KVPool, Model, Request, Result
from hicache.engines.reference.smollm2 import SmolLM2

QUESTIONS = ["What is this code for?", "Name one function that is defined here."]
DOCUMENT_TOKENS = 300
PAGE_SIZE = 16


def _prompts(real: SmolLM2) -> list[list[list[int]]]:
    """By question, then document: source files of the standard library, so that every machine has them."""
    documents = [
        real.tokenizer.decode(real.tokenizer.encode(inspect.getsource(module))[:DOCUMENT_TOKENS])
        for module in (json, textwrap, inspect)
    ]
    return [
        [real.tokenizer.chat([{"role": "user", "content": f"{text}\n\n{question}"}]) for text in documents]
        for question in QUESTIONS
    ]


def test_real_activations_survive_every_tier(
    real: SmolLM2,
    alone: Callable[[Model, Request], Result],
    agreement: Callable[[Result, Result, float], Any],
    logit_bound: float,
    tmp_path: Path,
) -> None:
    model = real.model
    pool = KVPool.create(model.config, slots=26, page_size=PAGE_SIZE)  # one request and little more
    given = {"device": 0, "host": 0, "storage": 0, "computed": 0}
    compared = []
    with HiCache(
        pools=[pools.mha("kv", pool.k, pool.v)],
        page_size=PAGE_SIZE,
        host=Host(tokens=45 * PAGE_SIZE),  # two of the three documents
        storage=(tmp_path / "store").as_uri(),
        identity=ModelIdentity.of(model.config.as_dict(), model.weights.named()),
        write="write_through",
        prefetch="wait_complete",
        eviction="lru",
    ) as cache:
        engine = Engine(model, pool, cache, chunk_tokens=128)
        prompts = _prompts(real)
        # The second question in reverse order: the last document is still on the device, the one before it on
        # the host, and the first one has left both.
        for prompt in [*prompts[0], *reversed(prompts[1])]:
            request = Request(prompt, max_new_tokens=6, keep_logits=True)
            ours = engine.generate([request])[0]
            assert cache.drain(30.0)
            compared.append(agreement(ours, alone(model, request), logit_bound))
            for tier in given:
                given[tier] += getattr(ours, f"{tier}_tokens")
    print(f"\nprompt tokens by tier: {given}")
    difference, ties = max(one.difference for one in compared), sum(one.near_ties for one in compared)
    print(f"largest difference of a logit: {difference:.1e}, bound {logit_bound:.0e}")
    print(f"answers with another token at a near tie: {ties} of {len(compared)}")
    assert min(given.values()) > 0, given
    assert difference < logit_bound
