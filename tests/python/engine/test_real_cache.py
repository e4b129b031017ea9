"""The real model in float32 in every configuration of the cache: logits within the bound of those without."""

from __future__ import annotations

import inspect
import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.engines.reference import Engine, KVPool, Model, Request, Result
from hicache.engines.reference.smollm2 import SmolLM2

QUESTIONS = ["What is this?", "Name a function."]
DOCUMENT_TOKENS = 64
NEW_TOKENS = 3
PAGE_SIZE = 16
DEVICE_PAGES = 10  # one request and little more
HOST_PAGES = 15  # two of the three documents
LAYOUTS = ("page_unified", "layer_first")
TIERS = ("device", "host", "storage")
CONFIGURATIONS = [
    ("device", "page_unified"),
    *(("host", layout) for layout in LAYOUTS),
    *(("storage", layout) for layout in LAYOUTS),
]


@dataclass(frozen=True)
class Asked:
    """A request, and the oracle's answer to it."""

    request: Request
    alone: Result


@pytest.fixture(scope="module")
def script(real: SmolLM2, alone: Callable[[Model, Request], Result]) -> list[Asked]:
    """Three documents with the first question, then with the second one in reverse order: the last document
    is still on the device, the one before it on the host, and the first one has left both.

    The documents are source files of the standard library, so that every machine has them.
    """
    texts = [
        real.tokenizer.decode(real.tokenizer.encode(inspect.getsource(module))[:DOCUMENT_TOKENS])
        for module in (json, textwrap, inspect)
    ]
    asked = []
    for question, documents in zip(QUESTIONS, (texts, texts[::-1]), strict=True):
        for text in documents:
            prompt = real.tokenizer.chat([{"role": "user", "content": f"{text}\n\n{question}"}])
            request = Request(prompt, max_new_tokens=NEW_TOKENS, keep_logits=True)
            asked.append(Asked(request, alone(real.model, request)))
    return asked


class Served:
    """The real model on a cache with the tiers up to `tier`; tokens by tier, and how far logits lay apart."""

    def __init__(self, model: Model, tier: str, layout: str, store: Path) -> None:
        pool = KVPool.create(model.config, slots=DEVICE_PAGES, page_size=PAGE_SIZE)
        self.cache = HiCache(
            pools=[pools.mha("kv", pool.k, pool.v)],
            page_size=PAGE_SIZE,
            host=None if tier == "device" else Host(tokens=HOST_PAGES * PAGE_SIZE, layout=layout),
            storage=store if tier == "storage" else None,
            identity=ModelIdentity.of(model.config.as_dict(), model.weights.named()),
            prefetch="wait_complete",
            prefetch_threshold=0,
        )
        self._engine = Engine(model, pool, self.cache, chunk_tokens=48)

    def ask(self, script: list[Asked], compare: Callable[[Result, Result], Any]) -> dict[str, int]:
        """Prompt tokens that each tier gave; `compare` sees every answer beside the oracle's."""
        given = dict.fromkeys((*TIERS, "computed"), 0)
        for asked in script:
            ours = self._engine.generate([asked.request])[0]
            assert self.cache.drain(30.0)
            compare(ours, asked.alone)
            for tier in given:
                given[tier] += getattr(ours, f"{tier}_tokens")
        self.cache.check()
        return given


@pytest.fixture
def close_enough(
    agreement: Callable[[Result, Result, float], Any], logit_bound: float
) -> Callable[[Result, Result], None]:
    """Tokens are equal (or at a near tie), and no logit is further away than rounding takes it."""

    def compare(ours: Result, oracle: Result) -> None:
        assert agreement(ours, oracle, logit_bound).difference < logit_bound

    return compare


@pytest.mark.parametrize(("tier", "layout"), CONFIGURATIONS)
def test_real_activations_survive_every_tier(
    real: SmolLM2,
    script: list[Asked],
    close_enough: Callable[[Result, Result], None],
    tmp_path: Path,
    tier: str,
    layout: str,
) -> None:
    store = tmp_path / "store"
    served = Served(real.model, tier, layout, store)
    with served.cache:
        given = served.ask(script, close_enough)
        there = TIERS[: TIERS.index(tier) + 1]
        assert {name for name in given if given[name]} == {*there, "computed"}, given
        if tier == "storage" and layout == LAYOUTS[0]:
            shutil.rmtree(store)
            lost = served.ask(script[:3], close_enough)
            assert (lost["storage"], min(lost["device"], lost["host"]) > 0) == (0, True), lost
