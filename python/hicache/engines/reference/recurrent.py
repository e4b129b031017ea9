"""Gated linear attention: a layer that remembers its past as one state.

    S_t = a_t S_{t-1} + k_t v_t'      o_t = q_t S_t      a_t in (0, 1), one a head and token

Source: Yang et al., Gated Linear Attention Transformers (2023), with a gate per head as in Mamba-2 (Dao and
Gu, 2024). The input is mixed with that of the token before (token shift, as in RWKV), so that a state has a
second part of another shape.

For: `model.py`, once per S layer.
Assumes: the slot that a span starts from holds the state after the token before it.
Refuses to know: pages, who else reads a slot.
On error: none of its own. A state is read, never advanced where it lies: new ones are returned, and `Pending`
writes them when the whole forward pass is through, so that one that fails has changed no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from hicache.engines.reference.config import ModelConfig
from hicache.engines.reference.pools import StatePool
from hicache.engines.reference.span import Span, StateUse
from hicache.engines.reference.weights import StateLayerWeights

STRETCH = 64  # tokens whose mutual products are computed at once
CALM = 16.0  # the gate's logarithm is divided by it: a token is remembered for tens of tokens


@dataclass(frozen=True, slots=True)
class State:
    """After some token: memory (heads, key, value), and the layer's input at that token (hidden,)."""

    memory: Tensor
    last: Tensor

    @classmethod
    def read(cls, pool: StatePool, layer: int, slot: int | None) -> State:
        """The state in a slot; zeros for None, before the first token. Nobody writes to what it shares."""
        if slot is None:
            return cls(torch.zeros_like(pool.memory[layer][0]), torch.zeros_like(pool.last[layer][0]))
        return cls(pool.memory[layer][slot], pool.last[layer][slot])


@dataclass(slots=True)
class Pending:
    """States that a forward pass has computed and not yet written."""

    pool: StatePool | None
    _states: list[tuple[int, int, State]] = field(default_factory=list)

    def put(self, layer: int, slot: int, state: State) -> None:
        """`state` goes to `slot` in the end."""
        self._states.append((layer, slot, state))

    def write(self) -> None:
        """The pass is through."""
        for layer, slot, state in self._states:
            assert self.pool is not None
            self.pool.memory[layer][slot].copy_(state.memory)
            self.pool.last[layer][slot].copy_(state.last)


def remember(
    config: ModelConfig,
    weights: StateLayerWeights,
    layer: int,
    x: Tensor,
    spans: Sequence[Span],
    pool: StatePool,
    pending: Pending,
) -> Tensor:
    """The layer's output (n, hidden) for normed inputs x (n, hidden) of all spans' tokens, in their order.

    layer: its number among the S layers. The states go to `pending`, for the slots that the spans name.
    """
    outputs = []
    for span, own in zip(spans, torch.split(x, [len(span.tokens) for span in spans]), strict=True):
        use = state_use(span)
        state = State.read(pool, layer, use.source)
        cut = len(own) if use.checkpoint is None else use.checkpoint[0] - span.start
        out, state = _advance(config, weights, own[:cut], state)
        outputs.append(out)
        if use.checkpoint is not None:
            pending.put(layer, use.checkpoint[1], state)
        if cut < len(own):
            out, state = _advance(config, weights, own[cut:], state)
            outputs.append(out)
        pending.put(layer, use.own, state)
    return torch.cat(outputs)


def state_use(span: Span) -> StateUse:
    """A span's state slots, checked: from nowhere only at the start, a checkpoint inside only."""
    use = span.state
    if use is None:
        raise ValueError("span: a model with recurrent state needs its slots")
    if (use.source is None) != (span.start == 0):
        raise ValueError(f"span: state from slot {use.source} for a span that starts at {span.start}")
    if use.checkpoint is not None and not span.start < use.checkpoint[0] <= span.end:
        raise ValueError(f"span: checkpoint at {use.checkpoint[0]} outside {span.start} to {span.end}")
    return use


def _advance(
    config: ModelConfig, weights: StateLayerWeights, x: Tensor, state: State
) -> tuple[Tensor, State]:
    """Outputs (n, hidden) for inputs (n, hidden), and the state after them."""
    before = torch.cat([state.last.unsqueeze(0), x[:-1]])
    mixed = torch.lerp(x, before, weights.state_mix)
    heads = (len(x), config.state_heads, -1)
    q = F.linear(mixed, weights.state_q).view(heads)
    k = F.linear(mixed, weights.state_k).view(heads) * config.state_key**-0.5
    v = F.linear(mixed, weights.state_v).view(heads)
    gate = F.logsigmoid(F.linear(mixed, weights.state_gate)) / CALM
    memory, seen = state.memory, []
    for stretch in range(0, len(x), STRETCH):
        part = slice(stretch, stretch + STRETCH)
        out, memory = _stretch(memory, q[part], k[part], v[part], gate[part])
        seen.append(out)
    normed = F.rms_norm(torch.cat(seen), (config.state_value,), None, config.norm_eps)
    return F.linear(normed.flatten(1), weights.state_output), State(memory, x[-1])


def _stretch(memory: Tensor, q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """What q (n, heads, key) reads, (n, heads, value), and the memory after k (n, heads, key) and v
    (n, heads, value); gate (n, heads) is log a. All n tokens at once: n * n products a head."""
    fading = gate.cumsum(0).T  # (heads, n): log of what is left, after each token, of the memory before all
    between = fading.unsqueeze(2) - fading.unsqueeze(1)
    future = torch.ones(between.shape[1:], dtype=torch.bool).triu(1)
    left = between.masked_fill(future, -torch.inf).exp()
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    out = (q @ k.transpose(1, 2) * left) @ v + fading.exp().unsqueeze(2) * (q @ memory)
    kept = (k * left[:, -1].unsqueeze(2)).transpose(1, 2) @ v
    return out.transpose(0, 1), fading[:, -1].exp().view(-1, 1, 1) * memory + kept
