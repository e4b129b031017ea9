"""What the engine knows of one request on its way.

    position   0 ........ hit.length .......... computed ............. reserved end
    KV         | the tree's | ours, written     | ours, not yet written |
    slot of    | hit.slots  | page_table[hit.length / page_size :]      |
    freed by   | nobody     | us at the end, but for what an insert gave to the tree

For: `path.py`, `admission.py` and `engine.py`, which move it along.
Assumes: `hit` is set from the first find to the end; `page_table` is filled from admission on.
Refuses to know: how anything is found, loaded or computed.
On error: none; it only keeps books.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hicache.engines.reference.request import Finish, Request, Result
from hicache.engines.reference.span import Span

if TYPE_CHECKING:
    from torch import Tensor

    from hicache.engines.reference.parts import Parts


@dataclass(slots=True)
class Clock:
    """Seconds of one request: readings of the engine's clock, and durations up to `first`."""

    arrived: float
    first: float | None = None  # when its first token was there
    asked: float | None = None  # when its prefetch began to keep it waiting
    restoring: float = 0.0
    computing: float = 0.0

    def count(self, *, restoring: float, computing: float = 0.0) -> None:
        """Counts durations, until the first token is there."""
        if self.first is None:
            self.restoring += restoring
            self.computing += computing


@dataclass(slots=True, eq=False)
class Sequence:
    """A request and where it stands. `result` is set once, at the end."""

    request: Request
    tokens: Tensor  # (prompt + max_new_tokens,) int64, filled up to `length`
    prompt: int
    length: int  # prompt tokens and generated ones
    clock: Clock
    computed: int = 0  # tokens whose KV is in the pool
    hit: Any = None
    page_table: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int32))
    parts: Parts | None = None  # its slots in the other pools of a hybrid model
    checkpoint: int | None = None  # position where a state would help the next request
    restored: int = 0  # tokens that the hit gave at admission; of these:
    from_host: int = 0
    from_storage: int = 0
    logits: list[Tensor] = field(default_factory=list)
    result: Result | None = None

    @classmethod
    def of(cls, request: Request, prompt: Tensor, arrived: float) -> Sequence:
        """A sequence that has just arrived. `prompt` is 1-D int64, checked."""
        tokens = torch.zeros(len(prompt) + request.max_new_tokens, dtype=torch.int64)
        tokens[: len(prompt)] = prompt
        length = len(prompt)
        return cls(request=request, tokens=tokens, prompt=length, length=length, clock=Clock(arrived))

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV it needs at most: the last generated token never gets any."""
        return len(self.tokens) - 1

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return self.length - self.prompt

    def step(self, most: int) -> int:
        """Tokens of the prompt to compute next: as many as there are, or up to where a checkpoint would help,
        since one is made where a step ends."""
        tokens = min(self.prompt - self.computed, most)
        if self.checkpoint is not None and self.computed < self.checkpoint:
            tokens = min(tokens, self.checkpoint - self.computed)
        return tokens

    def span(self, tokens: int) -> Span:
        """The next `tokens` tokens to compute."""
        start, end = self.computed, self.computed + tokens
        if self.parts is None:
            return Span(self.tokens[start:end], start, self.page_table)
        window, state = self.parts.window_table, self.parts.state_use(start, end)
        return Span(self.tokens[start:end], start, self.page_table, window, state)

    def append(self, token: int, now: float) -> Finish | None:
        """Takes the next generated token; says how the answer ends, if it does."""
        if self.clock.first is None:
            self.clock.first = now
        self.tokens[self.length] = token
        self.length += 1
        if token in self.request.stop:
            return "stop"
        return "length" if self.length == len(self.tokens) else None

    def finish(self, how: Finish, now: float) -> None:
        """Writes the result."""
        clock = self.clock
        until = (now if clock.first is None else clock.first) - clock.arrived
        self.result = Result(
            tokens=self.tokens[self.prompt : self.length].tolist(),
            logits=torch.stack(self.logits) if self.logits else None,
            finish=how,
            prompt_tokens=self.prompt,
            device_tokens=self.restored - self.from_host - self.from_storage,
            host_tokens=self.from_host,
            storage_tokens=self.from_storage,
            computed_tokens=self.prompt - self.restored,
            first_token_s=None if clock.first is None else until,
            restoring_s=clock.restoring,
            queued_s=max(0.0, until - clock.restoring - clock.computing),
            computing_s=clock.computing,
            total_s=now - clock.arrived,
        )
