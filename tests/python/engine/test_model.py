"""The forward pass: neither chunks, nor where pages lie, nor the batch may change what comes out."""

from __future__ import annotations

import pytest
import torch

from hicache.engines.reference import KVPool, Model, ModelConfig, Span, random_weights

ROUNDING = 1e-11  # float64, activations of order 1 to 10, a few hundred operations in another order
LENGTH = 37


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(0, 256, (LENGTH,), generator=torch.Generator().manual_seed(3))


def pool_for(model: Model, page_size: int = 4, slots: int = 40) -> KVPool:
    return KVPool.create(model.config, slots=slots, page_size=page_size, dtype=model.dtype)


def shuffled(slots: int, seed: int = 5) -> torch.Tensor:
    return torch.randperm(slots, generator=torch.Generator().manual_seed(seed)).to(torch.int32)


def whole(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """Hidden states of all positions, in one pass over contiguous rows."""
    return model.hidden([Span(tokens, 0, torch.arange(40))], pool_for(model))


@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 36])
def test_chunked_prefill_equals_whole_prefill(tiny: Model, tokens: torch.Tensor, chunk: int) -> None:
    pool, table = pool_for(tiny), shuffled(40)
    parts = [
        tiny.hidden([Span(tokens[start : start + chunk], start, table)], pool)
        for start in range(0, LENGTH, chunk)
    ]
    assert (torch.cat(parts) - whole(tiny, tokens)).abs().max() < ROUNDING


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_shuffled_slots_equal_contiguous_rows(tiny: Model, tokens: torch.Tensor, page_size: int) -> None:
    paged = tiny.hidden([Span(tokens, 0, shuffled(40))], pool_for(tiny, page_size))
    assert torch.equal(paged, whole(tiny, tokens))


def test_batched_decode_equals_single_decode(tiny: Model, tokens: torch.Tensor) -> None:
    pool, table = pool_for(tiny), shuffled(40)
    tables = [table[:10], table[10:20], table[20:30]]
    lengths = [LENGTH, 11, 4]
    for length, own in zip(lengths, tables, strict=True):
        tiny.forward([Span(tokens[: length - 1], 0, own)], pool)
    spans = [
        Span(tokens[length - 1 : length], length - 1, own)
        for length, own in zip(lengths, tables, strict=True)
    ]
    batched = tiny.forward(spans, pool)
    single = torch.cat([tiny.forward([span], pool) for span in spans])
    assert (batched - single).abs().max() < ROUNDING
    for row, length in enumerate(lengths):
        alone = tiny.logits(whole(tiny, tokens[:length]))[-1]
        assert (batched[row] - alone).abs().max() < ROUNDING


def test_a_batch_may_mix_prompts_and_answers(tiny: Model, tokens: torch.Tensor) -> None:
    pool, table = pool_for(tiny), shuffled(40)
    tiny.forward([Span(tokens[:20], 0, table[:10])], pool)
    mixed = tiny.forward([Span(tokens[20:21], 20, table[:10]), Span(tokens, 0, table[10:20])], pool)
    assert (mixed[0] - tiny.logits(whole(tiny, tokens[:21]))[-1]).abs().max() < ROUNDING
    assert (mixed[1] - tiny.logits(whole(tiny, tokens))[-1]).abs().max() < ROUNDING


def test_layers_are_announced_just_before_they_read_the_pool(tiny: Model, tokens: torch.Tensor) -> None:
    """The pages of a prefix arrive layer by layer, each in the last moment."""
    pool, table = pool_for(tiny), shuffled(40)
    tiny.forward([Span(tokens[:32], 0, table)], pool)
    late, span = pool_for(tiny), Span(tokens[32:], 32, table)
    seen: list[int] = []

    def arrive(layer: int) -> None:
        seen.append(layer)
        late.k[layer].copy_(pool.k[layer])
        late.v[layer].copy_(pool.v[layer])

    expected = tiny.logits(whole(tiny, tokens))[-1]
    assert (tiny.forward([span], late, arrive)[0] - expected).abs().max() < ROUNDING
    assert seen == list(range(tiny.config.layers))
    assert (tiny.forward([span], pool_for(tiny))[0] - expected).abs().max() > 1e-3, "without the prefix"


def test_every_page_of_the_prefix_matters(tiny: Model, tokens: torch.Tensor) -> None:
    """What the exactness tests rest on: one wrong page, anywhere, is seen in the logits."""
    pool, table = pool_for(tiny), shuffled(40)
    tiny.forward([Span(tokens[:-1], 0, table)], pool)
    last = Span(tokens[-1:], LENGTH - 1, table)
    right = tiny.forward([last], pool)
    for page in range(LENGTH // 4):
        wrong = table.clone()
        wrong[page] = table[(page + 1) % (LENGTH // 4)]
        assert (tiny.forward([Span(last.tokens, last.start, wrong)], pool) - right).abs().max() > 1e-7, page


def test_random_weights_are_seeded_and_close_in_every_dtype() -> None:
    config = ModelConfig.tiny()
    double = dict(random_weights(config, seed=4, dtype=torch.float64).named())
    single = dict(random_weights(config, seed=4, dtype=torch.float32).named())
    again = dict(random_weights(config, seed=4, dtype=torch.float64).named())
    other = dict(random_weights(config, seed=5, dtype=torch.float64).named())
    assert list(double) == list(single)
    assert len(double) == 3 + 9 * config.layers
    for name, tensor in double.items():
        assert torch.equal(tensor, again[name])
        assert torch.equal(tensor.float(), single[name])
        assert not torch.equal(tensor, other[name])


def test_impossible_shapes_name_the_field() -> None:
    shape = ModelConfig.tiny().as_dict()
    for field, value in [("layers", 0), ("kv_heads", 4), ("head_dim", 7), ("vocabulary", -1)]:
        with pytest.raises(ValueError, match=field):
            ModelConfig(**{**shape, field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="slots"):
        KVPool.create(ModelConfig.tiny(), slots=0, page_size=4)
    with pytest.raises(ValueError, match="page_size"):
        KVPool.create(ModelConfig.tiny(), slots=4, page_size=0)
    with pytest.raises(ValueError, match="dtype"):
        random_weights(ModelConfig.tiny(), dtype=torch.int32)
