"""A hybrid computed naively: all tokens of one sequence at once, no pools, states token by token.

It shares no line with the engine's model but the weights: loops where that has matrices, full score matrices
where that gathers rows, rotary positions as complex numbers.
"""

from __future__ import annotations

import math

import torch

from hicache.engines.reference import Model, ModelConfig


def logits(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """(n, vocabulary) of every position of `tokens` (n,)."""
    config, weights = model.config, model.weights
    gemma = config.family == "gemma3"
    x = weights.embedding[tokens] * (math.sqrt(config.hidden) if gemma else 1)
    for kind, layer in zip(config.kinds or "F" * config.layers, weights.layers, strict=True):
        normed = norm(config, x, layer.attn_norm)
        seen = recurrent(config, layer, normed) if kind == "S" else attention(config, layer, normed, kind)
        x = x + (norm(config, seen, layer.post_attention_norm) if gemma else seen)
        normed = norm(config, x, layer.ffn_norm)
        gate = normed @ layer.ffn_gate.T
        gate = torch.nn.functional.gelu(gate, approximate="tanh") if gemma else gate * torch.sigmoid(gate)
        out = (gate * (normed @ layer.ffn_up.T)) @ layer.ffn_down.T
        x = x + (norm(config, out, layer.post_ffw_norm) if gemma else out)
    return norm(config, x, weights.output_norm) @ weights.head.T


def greedy(model: Model, prompt: list[int], new: int) -> tuple[list[int], torch.Tensor]:
    """Tokens and their logits; everything is computed anew for every token."""
    tokens, rows = list(prompt), []
    for _ in range(new):
        rows.append(logits(model, torch.tensor(tokens))[-1])
        tokens.append(int(rows[-1].argmax()))
    return tokens[len(prompt) :], torch.stack(rows)


def norm(config: ModelConfig, x: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * weight


def rotate(config: ModelConfig, x: torch.Tensor, base: float) -> torch.Tensor:
    """x (n, heads, head_dim) as complex pairs, turned by exp(i * position * frequency)."""
    half = config.head_dim // 2
    split = config.family == "gemma3"
    pairs = torch.complex(x[..., :half], x[..., half:]) if split else torch.complex(x[..., ::2], x[..., 1::2])
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(len(x), dtype=torch.float64).unsqueeze(1) * frequency
    turned = pairs * torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
    parts = [turned.real, turned.imag]
    return torch.cat(parts, -1) if split else torch.stack(parts, -1).flatten(-2)


def attention(config: ModelConfig, layer: object, x: torch.Tensor, kind: str) -> torch.Tensor:
    n, group = len(x), config.query_heads // config.kv_heads
    q, k, v = ((x @ w.T).view(n, -1, config.head_dim) for w in (layer.attn_q, layer.attn_k, layer.attn_v))  # type: ignore[attr-defined]
    if config.family == "gemma3":
        q, k = norm(config, q, layer.attn_q_norm), norm(config, k, layer.attn_k_norm)  # type: ignore[attr-defined]
    base = config.window_rope_base or config.rope_base if kind == "W" else config.rope_base
    q, k = rotate(config, q, base), rotate(config, k, base)
    out = torch.zeros_like(q)
    for token in range(n):
        first = max(0, token - config.window + 1) if kind == "W" else 0
        for head in range(config.query_heads):
            keys, values = k[first : token + 1, head // group], v[first : token + 1, head // group]
            weight = torch.softmax(keys @ q[token, head] / math.sqrt(config.head_dim), 0)
            out[token, head] = weight @ values
    return out.flatten(1) @ layer.attn_output.T  # type: ignore[attr-defined,no-any-return]


def recurrent(config: ModelConfig, layer: object, x: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(config.state_heads, config.state_key, config.state_value, dtype=x.dtype)
    before, outs = torch.zeros_like(x[0]), []
    for token in x:
        mixed = token + layer.state_mix * (before - token)  # type: ignore[attr-defined]
        q, k, v = (
            (w @ mixed).view(config.state_heads, -1)
            for w in (layer.state_q, layer.state_k, layer.state_v)  # type: ignore[attr-defined]
        )
        decay = torch.sigmoid(layer.state_gate @ mixed) ** (1 / 16)  # type: ignore[attr-defined]
        added = torch.einsum("hk,hv->hkv", k / math.sqrt(config.state_key), v)
        memory = memory * decay.view(-1, 1, 1) + added
        outs.append(norm(config, torch.einsum("hk,hkv->hv", q, memory), 1.0).flatten())
        before = token
    return torch.stack(outs) @ layer.state_output.T  # type: ignore[attr-defined,no-any-return]
