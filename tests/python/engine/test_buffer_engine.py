"""Buffer-only mode with the reference engine: the host is a pool of a few windows, and holds no page.

Answers are the oracle's, token by token, whatever came from where; what one cache stored serves the next one,
or another process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conversations import Script, Turn, script

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.engines.reference import Engine, KVPool, Model, Request

PAGE = 4
DEVICE_TOKENS = 208  # two or three of the longest requests
WINDOW = 96  # tokens of staging: less than the longest request has
DRAIN_S = 30.0


@pytest.fixture(scope="module")
def rounds(tiny: Model, alone: Any) -> Script:
    return script(tiny, alone)


class Stack:
    """A pool, a cache whose host is staging, and an engine on both. Use as a context manager."""

    def __init__(
        self,
        model: Model,
        store: Path,
        host_tokens: int = WINDOW,
        layout: str = "page_unified",
        **settings: Any,
    ) -> None:
        pool = KVPool.create(model.config, slots=DEVICE_TOKENS // PAGE, page_size=PAGE, dtype=model.dtype)
        self.cache = HiCache(
            pools=[pools.mha("kv", pool.k, pool.v)],
            page_size=PAGE,
            host=Host(tokens=host_tokens, layout=layout),
            host_mode="buffer_only",
            storage=store.as_uri(),
            identity=ModelIdentity(model="tiny, seed 11", dtype=str(model.dtype)),
            **({"prefetch": "wait_complete", "prefetch_threshold": 0, "load_threshold": 0} | settings),
        )
        self.engine = Engine(model, pool, self.cache, chunk_tokens=48, max_running=4)

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()
        self.cache.close()

    def play(self, turns: list[Turn]) -> Counter[str]:
        """All at once; prompt tokens by where they came from."""
        results = self.engine.generate([Request(turn.prompt, len(turn.answer)) for turn in turns])
        given: Counter[str] = Counter()
        for turn, result in zip(turns, results, strict=True):
            assert result.tokens == turn.answer, f"client {turn.client}, {result}"
            for tier in ("device", "host", "storage", "computed"):
                given[tier] += getattr(result, f"{tier}_tokens")
        stats = self.cache.stats()
        assert (stats["host_resident"], given["host"]) == (0, 0)
        return given

    def settle(self) -> None:
        """Everything is written: what can be found next doesn't depend on the disk's speed."""
        assert self.cache.drain(DRAIN_S)
        self.cache.check()

    def check_books(self) -> None:
        self.settle()
        self.cache.evict(self.cache.stats()["device_slots"])
        stats = self.cache.stats()
        assert (stats["device_free"], stats["host_free"]) == (stats["device_slots"], stats["host_slots"])
        assert self.engine.running == 0


@pytest.mark.parametrize("layout", ["page_unified", "layer_first"])
@pytest.mark.parametrize("prefetch", ["wait_complete", "timeout", "best_effort"])
def test_tokens_equal_the_oracles(
    tiny: Model, rounds: Script, tmp_path: Path, prefetch: str, layout: str
) -> None:
    given: Counter[str] = Counter()
    with Stack(tiny, tmp_path, layout=layout, prefetch=prefetch) as stack:
        for turns in rounds:
            given += stack.play(turns)
            stack.settle()
        stack.check_books()
    assert given["device"] > 0
    assert given["storage"] > 0 or prefetch == "best_effort"


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_tokens_equal_under_each_policy_of_writes(
    tiny: Model, rounds: Script, tmp_path: Path, policy: str
) -> None:
    with Stack(tiny, tmp_path, write_storage=policy) as stack:
        for turns in rounds:
            stack.play(turns)
            stack.settle()
        assert stack.cache.stats()["stored_pages"] > 0
        stack.check_books()


def test_another_cache_is_served_from_storage(tiny: Model, rounds: Script, tmp_path: Path) -> None:
    """One request at a time, through a pool that holds two of five, and one that holds all of it."""
    with Stack(tiny, tmp_path) as stack:
        for turns in rounds[:2]:
            stack.play(turns)
            stack.settle()
    for host_tokens in (WINDOW // 2, 2 * DEVICE_TOKENS):
        with Stack(tiny, tmp_path, host_tokens) as again:
            for turn in rounds[1]:
                given = again.play([turn])
                again.settle()
                again.cache.evict(again.cache.stats()["device_slots"])
                whole = (len(turn.prompt) - 1) // PAGE * PAGE
                fits = again.cache.stats()["host_slots"] * 4 // 5 * PAGE
                assert given["storage"] == min(whole, fits), (turn.client, given)
            again.check_books()


WORKER = """
import json, sys
from pathlib import Path
import torch
from hicache.engines.reference import Model, ModelConfig, random_weights
sys.path.insert(0, sys.argv[1])
from test_buffer_engine import Stack
from conversations import Turn
asked = json.load(sys.stdin)
config = ModelConfig.tiny()
model = Model(config, random_weights(config, seed=11, dtype=torch.float64))
with Stack(model, Path(asked["store"])) as stack:
    turns = [Turn(0, prompt, answer) for prompt, answer in asked["turns"]]
    given = [stack.play([turn]) for turn in turns]
    stack.check_books()
json.dump(given, sys.stdout)
"""


def test_another_process_is_served_from_storage(tiny: Model, rounds: Script, tmp_path: Path) -> None:
    with Stack(tiny, tmp_path) as stack:
        stack.play(rounds[0])
        stack.settle()
    turns = [(turn.prompt, turn.answer) for turn in rounds[0]]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(Path(__file__).parent)],
        input=json.dumps({"store": str(tmp_path), "turns": turns}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout)
    whole = (len(turns[0][0]) - 1) // PAGE * PAGE
    assert given[0]["storage"] == whole, "all of the first prompt but its last page"
    assert all(one["computed"] <= PAGE for one in given), given
