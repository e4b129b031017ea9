"""The stack of `demo` and `bench` with a hybrid: three tiers, and the answers of a stack with one."""

from __future__ import annotations

from pathlib import Path

import torch

from hicache.cli.stack import Tiers, serving, warm_up
from hicache.engines.reference import Model, ModelConfig, Request, Result, random_weights


def model_of(kinds: str) -> Model:
    shape = ModelConfig.tiny().as_dict() | {"layers": len(kinds), "kinds": kinds, "window": 20}
    config = ModelConfig(**(shape | {"state_heads": 3, "state_key": 5, "state_value": 7}))  # type: ignore[arg-type]
    return Model(config, random_weights(config, seed=5, dtype=torch.float64))


def conversation(model: Model, tiers: Tiers) -> list[Result]:
    """Four clients take three turns each, all at once; more than the device holds."""
    results: list[Result] = []
    histories = [torch.randint(0, 256, (30,), generator=torch.Generator().manual_seed(n)) for n in range(4)]
    with serving(model, "hybrid", tiers, chunk_tokens=16, max_running=2) as stack:
        for _ in range(3):
            answers = stack.engine.generate([Request(history, 6) for history in histories])
            histories = [
                torch.cat([history, torch.tensor(answer.tokens), history[:8]])
                for history, answer in zip(histories, answers, strict=True)
            ]
            results += answers
            assert stack.cache.drain(30)
            stack.cache.check()
    return results


def test_a_hybrid_is_served_from_three_tiers(tmp_path: Path) -> None:
    model = model_of("SWFW")
    warm_up(model, 16)
    alone = conversation(model, Tiers(page_size=4, device=400))
    tight = Tiers(page_size=4, device=40, host=60, store=tmp_path)
    for again in (False, True):
        served = conversation(model, tight)
        assert [result.tokens for result in served] == [result.tokens for result in alone]
        host, stored = (sum(getattr(r, f"{tier}_tokens") for r in served) for tier in ("host", "storage"))
        print(f"\nfrom the host: {host}, from storage: {stored}")
        assert host + stored > 0
        assert stored > 0 or not again, "the store knew all of it"
