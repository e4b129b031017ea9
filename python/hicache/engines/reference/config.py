"""The shape of a llama-family model.

For: everything that must agree before a weight or a KV byte means anything.
Assumes: nothing.
Refuses to know: values of weights, devices, pages.
On error: an impossible shape is a `ValueError` that names the field.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes are in elements, `max_positions` in tokens. Rotary pairs are interleaved (see `rope.py`)."""

    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5
    max_positions: int = 8192
    tied_embeddings: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value <= 0 and not isinstance(value, bool):
                raise ValueError(f"{field.name} must be positive, got {value}")
        if self.query_heads % self.kv_heads:
            raise ValueError(
                f"query_heads ({self.query_heads}) must be a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even: rotary positions turn pairs")

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of K and V that one token leaves in the pool, all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def as_dict(self) -> dict[str, int | float | bool]:
        """Every field by name, for an identity or a report."""
        return asdict(self)

    @classmethod
    def tiny(cls) -> ModelConfig:
        """Milliseconds a step in float64: for tests that run hundreds of requests."""
        return cls(layers=3, hidden=48, query_heads=6, kv_heads=2, head_dim=8, ffn=96, vocabulary=256)

    @classmethod
    def small(cls) -> ModelConfig:
        """About 5 million weights: for benches, where the compute of a token must cost something."""
        return cls(layers=6, hidden=256, query_heads=8, kv_heads=4, head_dim=32, ffn=704, vocabulary=4096)

    @classmethod
    def smollm2_135m(cls) -> ModelConfig:
        """SmolLM2-135M: 46,080 bytes of KV a token in float32."""
        return cls(
            layers=30,
            hidden=576,
            query_heads=9,
            kv_heads=3,
            head_dim=64,
            ffn=1536,
            vocabulary=49_152,
            rope_base=100_000.0,
            tied_embeddings=True,
        )
