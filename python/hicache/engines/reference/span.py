"""What the model is told of the tokens to compute: where they stand, and where their past lies.

    pool     the past of a span that starts at position s, in a model with a window of W tokens
    kv       every position before s
    window   the last W - 1 positions before s
    state    one state: that after position s - 1

For: `model.py`, which computes spans, and `sequence.py`, which makes them.
Assumes: nothing.
Refuses to know: who owns the slots.
On error: `StateUse` refuses what would change a shared state or start from nowhere, with a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

NO_SLOT = -1  # in a window's table: this page has fallen out of the window, or was never there


@dataclass(frozen=True, slots=True)
class StateUse:
    """Slots of the state pool for one span.

    source:     where the state before the span's first token lies: a shared checkpoint, which is read only,
                or `own`; None at position 0, where it is zero
    own:        the request's private slot: gets the state after the span's last token
    checkpoint: (position, slot): the state after the tokens before `position`, a page boundary in the span
                (start < position <= end), is written there too; None for none
    """

    source: int | None
    own: int
    checkpoint: tuple[int, int] | None = None

    def at(self, frames: Tensor) -> StateUse:
        """The same with frames for slots."""
        source = None if self.source is None else int(frames[self.source])
        checkpoint = self.checkpoint and (self.checkpoint[0], int(frames[self.checkpoint[1]]))
        return StateUse(source, int(frames[self.own]), checkpoint)

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.checkpoint[1] in (self.source, self.own):
            raise ValueError(f"checkpoint: slot {self.checkpoint[1]} is in use by the same span")


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence to compute now.

    tokens:       (n,) int64, n >= 1
    start:        position of the first one; what is before it is in the pools
    page_table:   (pages,) int, the kv slot of each page, at least up to position start + n
    window_table: (pages,) int, the same in the window pool; `NO_SLOT` where the window has passed
    state:        slots of the recurrent state
    """

    tokens: Tensor
    start: int
    page_table: Tensor
    window_table: Tensor | None = None
    state: StateUse | None = None

    def at(self, frames: Mapping[str, Tensor]) -> Span:
        """The same where pools are indexed by frames. `frames`: of "kv" and "state", (slots + 2,) by slot."""
        state = None if self.state is None else self.state.at(frames["state"])
        return replace(self, page_table=frames["kv"][self.page_table.long()], state=state)

    @property
    def end(self) -> int:
        """Position just after the last token."""
        return self.start + len(self.tokens)
