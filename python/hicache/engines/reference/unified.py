"""KV of full attention and recurrent states in one buffer, where either has what the other leaves.

    page     a page's frame in the buffer holds row after row, each with K and V of all F layers
    state    a state's frame holds all S layers' tensors
    frames   `cache.frames()` by slot: slots are names, and pages move; so a span's tables are looked up
             before each forward pass (`Span.at`), and the pools below are indexed by frames

For: whoever makes an `Engine` and a `HiCache(..., unified=pools.buffer)` for a model of layers F and S.
Assumes: no verb is called while the model runs; the engine's step keeps to that.
Refuses to know: which frame is whose.
On error: `ValueError` for other models, and for a buffer in which no request could run.
"""

from __future__ import annotations

import torch

from hicache import unified
from hicache.engines.reference.config import FULL, STATE, ModelConfig
from hicache.engines.reference.declared import in_one_buffer
from hicache.engines.reference.parts import STATES
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.pools import Pools, StatePool


def unified_pools(
    config: ModelConfig, *, size: int, page_size: int, dtype: torch.dtype = torch.float32
) -> Pools:
    """Pools in one zeroed buffer of `size` bytes. Their sizes are the most that a request alone may have:
    pages beside the states of one, and states in all of it."""
    if set(config.layer_kinds) != {FULL, STATE}:
        raise ValueError(f"config: one buffer is for layers F and S, not for {config.layer_kinds}")
    kv, state = in_one_buffer(config, size, page_size, dtype)
    page, entry = kv.page_bytes(page_size), state.page_bytes(page_size)
    sink = -(-max(page, entry) // entry)  # in states: padded accesses go there
    pages, states = size // page - -(-(sink + STATES) * entry // page), size // entry - sink
    if pages < 1 or states < STATES:
        raise ValueError(f"size: {size} bytes hold no page of {page} bytes beside {STATES} states of {entry}")
    buffer = torch.zeros(size, dtype=torch.uint8)
    planes = unified.views(buffer, [kv, state], page_size)
    rows = [plane.view(-1, *plane.shape[2:]) for plane in planes["kv"]]
    entries = [plane[:, 0] for plane in planes["state"]]
    return Pools(
        kv=KVPool(k=rows[0::2], v=rows[1::2], slots=pages, page_size=page_size),
        state=StatePool(memory=entries[0::2], last=entries[1::2], slots=states),
        buffer=buffer,
    )
