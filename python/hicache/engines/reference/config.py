"""The shape of a model: llama-family, Gemma 3, or a hybrid of layers that remember differently.

    layer   remembers                                                   pool
    F       K and V of every token (full attention)                     kv
    W       K and V of the last `window` tokens (sliding window)        window
    S       one state that sums up all tokens (gated linear attention)  state

For: everything that must agree before a weight or a KV byte means anything.
Assumes: nothing.
Refuses to know: values of weights, devices, pages.
On error: an impossible shape is a `ValueError` that names the field.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

FULL, WINDOW, STATE = "F", "W", "S"
FAMILIES = ("llama", "gemma3")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes are in elements, `max_positions` and `window` in tokens.

    family:           "llama": SwiGLU, interleaved rotary pairs (see `rope.py`). "gemma3": GeGLU, half-split
                      rotary pairs, embeddings times sqrt(hidden), norms of each head's Q and K, norms behind
                      attention and FFN too. (Gemma 3 caps no logits.)
    kinds:            a letter for each layer, as above; "" stands for F in all of them
    window:           tokens that a W layer's token sees, itself included
    window_rope_base: rotary base of the W layers; 0 stands for `rope_base`
    state_*:          heads of an S layer, and the two sides of each head's state
    """

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
    family: str = "llama"
    kinds: str = ""
    window: int = 0
    window_rope_base: float = 0.0
    state_heads: int = 0
    state_key: int = 0
    state_value: int = 0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        if self.kinds and (len(self.kinds) != self.layers or set(self.kinds) - {FULL, WINDOW, STATE}):
            raise ValueError(f"kinds must be {self.layers} letters of FWS (or empty), got {self.kinds!r}")
        unused = {"window_rope_base"}
        unused |= set() if WINDOW in self.kinds else {"window"}
        unused |= set() if STATE in self.kinds else {"state_heads", "state_key", "state_value"}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (bool, str)) or (field.name in unused and value == 0):
                continue
            if value <= 0:
                raise ValueError(f"{field.name} must be positive, got {value}")
        if self.query_heads % self.kv_heads:
            raise ValueError(
                f"query_heads ({self.query_heads}) must be a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even: rotary positions turn pairs")

    @property
    def layer_kinds(self) -> str:
        """A letter for each layer."""
        return self.kinds or FULL * self.layers

    def places(self) -> list[tuple[str, int]]:
        """For each layer its kind, and which of its kind it is: its number in its pool."""
        kinds = self.layer_kinds
        return [(kind, kinds[:number].count(kind)) for number, kind in enumerate(kinds)]

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of K and V that one token leaves in the KV pools, all attention layers together."""
        return 2 * (self.layers - self.layer_kinds.count(STATE)) * self.kv_heads * self.head_dim

    def as_dict(self) -> dict[str, int | float | bool | str]:
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
