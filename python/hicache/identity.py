"""What tells this model's pages from any other's.

The core turns these fields, the page size and the pools' geometry into one fingerprint, which is in every
stored page and its directory's name. Adapters belong to a request's namespace, not here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hicache.config import text, whole_number
from hicache.errors import ArgumentError

if TYPE_CHECKING:
    import torch

#: Elements of each weight that `ModelIdentity.of` reads.
SAMPLES = 64


@dataclass(frozen=True)
class ModelIdentity:
    """Fields that change the bytes of a page or their meaning.

    `model`: name of the weights. `config`, `weights`: digests, as `of` computes them. `rank` and `world`:
    this process's coordinates in the grid of ranks and the grid's size, such as (tensor, pipeline).
    Names and digests are text that UTF-8 can encode.
    """

    model: str = ""
    revision: str = ""
    dtype: str = ""
    quantization: str = ""
    config: str = ""
    weights: str = ""
    weights_epoch: int = 0
    rank: tuple[int, ...] = (0,)
    world: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in ("model", "revision", "dtype", "quantization", "config", "weights"):
            text(f"identity: {name}", getattr(self, name))
        epoch = whole_number("identity: weights_epoch", self.weights_epoch, least=0)
        object.__setattr__(self, "weights_epoch", epoch)
        for name in ("rank", "world"):
            object.__setattr__(self, name, _coordinates(name, getattr(self, name)))
        if not (self.model or self.weights):
            raise ArgumentError("identity: needs the model's name, or a digest of its weights")
        inside = all(0 <= at < size for at, size in zip(self.rank, self.world, strict=False))
        if len(self.rank) != len(self.world) or not inside:
            raise ArgumentError(f"identity: rank {self.rank} is not in a world of {self.world}")

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        weights: Iterable[tuple[str, torch.Tensor]],
        *,
        model: str = "",
        **fields: Any,
    ) -> ModelIdentity:
        """Computed from a model's configuration (RoPE settings included, JSON-like values) and its named
        weights, of which name, shape, dtype and a sample of evenly spaced elements count.
        `ArgumentError` for a value whose text is another one in each process."""
        plain = json.dumps(config, sort_keys=True, default=_plain)
        digest = hashlib.sha256()
        for name, tensor in sorted(weights, key=lambda item: item[0]):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
            digest.update(_sample(tensor))
        config_digest = hashlib.sha256(plain.encode()).hexdigest()
        return cls(model=model, config=config_digest, weights=digest.hexdigest(), **fields)

    def fields(self) -> list[tuple[str, str]]:
        """Name and value of every field, for the core's fingerprint."""
        return [(name, str(value)) for name, value in vars(self).items()]


def _plain(value: Any) -> Any:
    """What JSON doesn't know, such as a dtype, by its text. Not where that says where an object lies: another
    process would compute another identity, and never find what this one stored."""
    if isinstance(value, (set, frozenset)):
        return sorted(str(_plain(item)) for item in value)
    said = str(value)
    if re.search(r"\bat 0x[0-9a-fA-F]+", said):
        raise ArgumentError(
            f"identity: config: {said} is another one in each process: say it in plain values"
        )
    return said


def _coordinates(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(whole_number(f"identity: {name}", value, least=0) for value in values)
    except TypeError:
        raise ArgumentError(f"identity: {name} must be a sequence of numbers, got {values!r}") from None


def _sample(tensor: torch.Tensor) -> bytes:
    import torch

    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // SAMPLES)
    return flat[::step][:SAMPLES].cpu().contiguous().view(torch.uint8).numpy().tobytes()
