"""What goes into the engine and what comes out.

For: callers of the engine: the demo, the bench, tests.
Assumes: nothing.
Refuses to know: slots, hits, batches.
On error: values are checked by `Engine.submit`, which knows the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

Finish = Literal["length", "stop", "aborted"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how far to answer it, greedily.

    tokens:         the prompt, token ids; at least one
    max_new_tokens: at least 1
    namespace:      a `hicache.Namespace`, or None for the common one; passed on unread
    stop:           token ids after which the answer ends (the id itself is part of the answer)
    keep_logits:    keep the logits of each generated token in the result
    on_token:       called with each generated token id, at the end of the step that made it; what it raises
                    comes out of that step, with the engine in good order
    """

    tokens: Iterable[int] | Tensor
    max_new_tokens: int
    namespace: Any = None
    stop: frozenset[int] = frozenset()
    keep_logits: bool = False
    on_token: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a request. Token counts add up: device + host + storage + computed = prompt.

    tokens:            generated token ids
    logits:            (len(tokens), vocabulary), or None unless asked for
    finish:            "length", "stop" or "aborted"
    prompt_tokens:     length of the prompt
    device_tokens:     prompt tokens whose KV was on the device when the request was admitted
    host_tokens:       ... was copied from host, and was there when the request arrived
    storage_tokens:    ... was copied from host, where this request's prefetch had brought it from storage
    computed_tokens:   ... was computed
    first_token_s:     seconds from submit to the first generated token (None if there was none)
    restoring_s:       of these, in match, prefetch (waiting for it) and load (waiting for layers)
    queued_s:          of these, waiting for room or for its share of a step
    computing_s:       of these, in forward passes that computed this request's tokens
    total_s:           seconds from submit to the end
    """

    tokens: list[int]
    logits: Tensor | None
    finish: Finish
    prompt_tokens: int
    device_tokens: int
    host_tokens: int
    storage_tokens: int
    computed_tokens: int
    first_token_s: float | None
    restoring_s: float
    queued_s: float
    computing_s: float
    total_s: float
