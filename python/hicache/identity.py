"""What tells this model's pages from any other's.

The core turns these fields, the page size and the pools' geometry into one fingerprint, which is in every
stored page and its directory's name. Adapters belong to a request's namespace, not here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hicache.config import text, whole_number
from hicache.errors import ArgumentError

if TYPE_CHECKING:
    import torch

#: Elements of each weight that `ModelIdentity.of` reads.
SAMPLES = 64
#: Fields that say where in the grid of ranks this process is.
COORDINATES = ("rank", "world")
#: More axes than any grid of ranks has, and more ranks along one.
MOST_AXES, MOST_RANKS = 8, 2**31
#: Settings of positions, beside all whose names contain "rope" or "rotary".
POSITIONS = ("max_position_embeddings", "original_max_position_embeddings", "position_embedding_type")


@dataclass(frozen=True)
class ModelIdentity:
    """Fields that change the bytes of a page or their meaning.

    `model`: name of the weights. `config`, `weights`: digests, as `of` computes them. `rank` and `world`:
    this process's coordinates in the grid of ranks and the grid's size, such as (tensor, pipeline). `rope`:
    digest of the settings of positions, in case the model's are overridden.
    Names and digests are text that UTF-8 can encode.
    """

    model: str = ""
    revision: str = ""
    dtype: str = ""
    quantization: str = ""
    config: str = ""
    weights: str = ""
    rope: str = ""
    weights_epoch: int = 0
    rank: tuple[int, ...] = (0,)
    world: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in ("model", "revision", "dtype", "quantization", "config", "weights", "rope"):
            text(f"identity: {name}", getattr(self, name))
        epoch = whole_number("identity: weights_epoch", self.weights_epoch, least=0)
        object.__setattr__(self, "weights_epoch", epoch)
        for name in COORDINATES:
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
        """Computed from a model's configuration (JSON-like values; its RoPE settings also by themselves) and
        its named weights, of which name, shape, dtype and a sample of evenly spaced elements count.
        `ArgumentError` for a value whose text is another one in each process."""
        digest = hashlib.sha256()
        for name, tensor in sorted(weights, key=lambda item: item[0]):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
            digest.update(_sample(tensor))
        fields.setdefault("rope", rope_digest(config))
        return cls(model=model, config=_digest(config), weights=digest.hexdigest(), **fields)

    def fields(self) -> tuple[list[tuple[str, str]], list[int], list[int]]:
        """Name and text of every field, rank and world: for the core's fingerprint."""
        fields = [(name, str(value)) for name, value in vars(self).items() if name not in COORDINATES]
        return fields, list(self.rank), list(self.world)


def rope_digest(config: Mapping[str, Any]) -> str:
    """Digest of the settings by which a model rotates positions, wherever in its configuration they are
    (also in "text_config" and the like); the empty text if there are none."""
    found = sorted(_positions(config, ""))
    return _digest(found) if found else ""


def _positions(config: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        at = f"{path}/{name}"
        if any(word in str(name).lower() for word in ("rope", "rotary")) or name in POSITIONS:
            yield at, json.dumps(value, sort_keys=True, default=_plain)
        elif isinstance(value, Mapping):
            yield from _positions(value, at)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_plain).encode()).hexdigest()


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
        axes = tuple(whole_number(f"identity: {name}", value, least=0, most=MOST_RANKS) for value in values)
    except TypeError:
        raise ArgumentError(f"identity: {name} must be a sequence of numbers, got {values!r}") from None
    if len(axes) > MOST_AXES:
        raise ArgumentError(f"identity: {name} has more than {MOST_AXES} axes: {values!r}")
    return axes


def _sample(tensor: torch.Tensor) -> bytes:
    import torch

    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // SAMPLES)
    return flat[::step][:SAMPLES].cpu().contiguous().view(torch.uint8).numpy().tobytes()
