"""What the engine's tests share: small random models, the real one, and how answers are compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from hicache.engines.reference import (
    Engine,
    KVPool,
    Model,
    ModelConfig,
    Request,
    Result,
    random_weights,
    smollm2,
)

Tokens = list[int]

# Over products as small as the tiny model's, two threads mostly wait for each other: beside other work the
# tests took sixty times as long with two as with one. Set here, so that fixtures of every scope run with it.
ALL_THREADS = torch.get_num_threads()
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """All threads for the real model, one for everything else (see below, where one is made the rule)."""
    if "real" in request.fixturenames:
        torch.set_num_threads(ALL_THREADS)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Model:
    """A random model in float64: rounding (1e-14) is far below any gap of the two best logits."""
    config = ModelConfig.tiny()
    return Model(config, random_weights(config, seed=11, dtype=torch.float64))


@pytest.fixture(scope="session")
def random_prompts() -> Callable[[int, int, int], list[Tokens]]:
    """(count, shortest, seed) -> prompts of growing, uneven lengths over the tiny model's vocabulary."""

    def draw(count: int, shortest: int, seed: int) -> list[Tokens]:
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.randint(0, 256, (shortest + 7 * number,), generator=generator).tolist()
            for number in range(count)
        ]

    return draw


@pytest.fixture(scope="session")
def alone() -> Callable[[Model, Request], Result]:
    """The oracle: one request, no cache, one forward pass for the whole prompt, a pool of its own."""

    def run(model: Model, request: Request) -> Result:
        tokens = len(list(request.tokens)) + request.max_new_tokens
        pool = KVPool.create(model.config, slots=tokens, page_size=1, dtype=model.dtype)
        return Engine(model, pool, chunk_tokens=tokens).generate([request])[0]

    return run


def _skip_loudly(why: str) -> None:
    print(f"\nSKIPPED, and it should not be: {why}")
    pytest.skip(why)


@pytest.fixture(scope="session")
def real() -> smollm2.SmolLM2:
    """SmolLM2-135M-Instruct in float32."""
    try:
        return smollm2.load()
    except smollm2.MissingPackage as error:
        _skip_loudly(str(error))
        raise


@pytest.fixture(scope="session")
def logit_bound() -> float:
    """How far logits of the real model in float32 may lie apart: see `test_smollm2.py` for the reasons."""
    return 1e-3


@pytest.fixture(scope="session")
def as_transformers() -> Callable[[Model], Any]:
    """The same weights in transformers' LlamaForCausalLM: an implementation that shares no line with ours."""
    if importlib.util.find_spec("transformers") is None:
        _skip_loudly("the package transformers is not installed: pip install transformers")
    return _as_transformers


def _as_transformers(model: Model) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config, weights = model.config, model.weights
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.query_heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.norm_eps,
            max_position_embeddings=config.max_positions,
            rope_theta=config.rope_base,
            tie_word_embeddings=config.tied_embeddings,
        )
    )
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.output_norm,
        "lm_head.weight": weights.head,
    }
    for number, layer in enumerate(weights.layers):
        state |= {
            f"model.layers.{number}.{theirs_name}.weight": tensor
            for theirs_name, tensor in {
                "input_layernorm": layer.attn_norm,
                "self_attn.q_proj": _half_split(layer.attn_q, config.head_dim),
                "self_attn.k_proj": _half_split(layer.attn_k, config.head_dim),
                "self_attn.v_proj": layer.attn_v,
                "self_attn.o_proj": layer.attn_output,
                "post_attention_layernorm": layer.ffn_norm,
                "mlp.gate_proj": layer.ffn_gate,
                "mlp.up_proj": layer.ffn_up,
                "mlp.down_proj": layer.ffn_down,
            }.items()
        }
    theirs = theirs.to(model.dtype)
    theirs.load_state_dict(state, strict=True)
    return theirs.eval()


def _half_split(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of each head from interleaved rotary pairs (x0, x1), (x2, x3) to (x0, x_{d/2}), (x1, ...)."""
    heads = rows.view(-1, head_dim // 2, 2, rows.shape[1])
    return heads.transpose(1, 2).reshape(rows.shape)


@dataclass(frozen=True)
class Agreement:
    """Steps compared, largest difference of a logit, and near ties that went the other way."""

    steps: int
    difference: float
    near_ties: int


@pytest.fixture(scope="session")
def agreement() -> Callable[[Result, Result, float], Agreement]:
    """Compares answers with logits up to the first different token: after it the texts are different ones.

    A different token is an error unless the two best logits are closer than `bound`.
    """

    def compare(ours: Result, oracle: Result, bound: float) -> Agreement:
        assert ours.logits is not None
        assert oracle.logits is not None
        difference = 0.0
        for step, (mine, its) in enumerate(zip(ours.tokens, oracle.tokens, strict=False)):
            difference = max(difference, float((ours.logits[step] - oracle.logits[step]).abs().max()))
            if mine != its:
                best, second = oracle.logits[step].topk(2).values.tolist()
                assert best - second < bound, (
                    f"step {step}: token {mine} instead of {its}, by {best - second}"
                )
                return Agreement(step + 1, difference, 1)
        assert len(ours.tokens) == len(oracle.tokens)
        return Agreement(len(ours.tokens), difference, 0)

    return compare
