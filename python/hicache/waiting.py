"""Between a match and a forward: a request fetches what storage has, waits or doesn't, and is loaded.

On error: `ArgumentError` names the argument, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hicache import _hicache, tensors
from hicache.config import whole_number
from hicache.hit import Hit, Load
from hicache.policy import Asked
from hicache.pools import Pool
from hicache.quantities import not_negative
from hicache.stream import Stream
from hicache.tensors import Slots

#: Tokens: more than any engine computes.
_MOST = 2**48


class Decision(str):
    """What a waiting request does in a step: "compute", "wait", "skip", or "part" with the `tokens` that it
    computes from the front meanwhile. Equal to that word."""

    __slots__ = ("tokens",)
    #: Only of "part".
    tokens: int | None

    def __new__(cls, word: str, tokens: int | None = None) -> Decision:
        decision = super().__new__(cls, word)
        decision.tokens = tokens
        return decision


class WithWaiting:
    """The verbs of `HiCache` for requests that wait."""

    _core: _hicache.Cache
    _pools: list[Pool]
    _stream: Stream
    _load_deadline: float
    _asked: Asked | None
    page_size: int

    def prefetch(self, hit: Hit) -> bool:
        """Storage → host for the rest of the hit's tokens; returns at once whether anything was asked for.
        The hit is `waiting` until polls have applied all of it, or the deadline has passed."""
        return self._core.prefetch(self._number(hit))

    def decide(self, hit: Hit, others: int = 0) -> Decision:
        """What a request does in this step: ask for each that waits and that you could run now, before you
        load. `others`: how many other requests could run in this step. The answer is one of

        - "compute": load it and run it; what hasn't come by then isn't waited for. Always the answer where
          nothing is undecided (`hit.waiting` is false).
        - "wait": nobody else can run either: poll again soon.
        - "skip": leave it out of this step; others run.
        - "part": compute `tokens` tokens from the front while the rest is read. No built-in policy says so.

        The time that `prefetch="timeout"` allows begins with the first such question. Nothing is ended by it:
        `load` ends the wait. Costs no walk through the index."""
        number, others = self._number(hit), whole_number("others", others, least=0)
        if self._asked is not None and (word := self._asked.stop(self._core, number, others)) is not None:
            return Decision(word)
        word, tokens = self._core.decide(number, others)
        return Decision(word, tokens if word == "part" else None)

    def stepped(self, tokens: int, seconds: float, *, ahead: int = 0) -> None:
        """Tells policies of a step that has ended: prompt tokens that it computed, the seconds it took, and
        the prompt tokens of requests that could run and wait for their turn (`ahead`). The built-in policies
        don't need it."""
        tokens = whole_number("tokens", tokens, least=0, most=_MOST)
        ahead = whole_number("ahead", ahead, least=0, most=_MOST)
        self._core.stepped(tokens, not_negative("seconds", seconds), ahead)

    def load(self, hits: Sequence[Hit], slots: Slots | None = None, *, budget: int | None = None) -> Load:
        """Host → device for all requests of a forward; returns at once. Pins the hits' pages and fixes
        their `length`, which may be less or more than the match found. What finds no room is computed, and so
        is what `load_threshold` says isn't worth a copy.

        `slots`: device slots for it, from an engine that owns them; the rest is in `Load.unused`. `budget`:
        device tokens at most that the load may make unavailable, of pages that it copies and of pages that
        are there and held by nobody; hits whose copies don't fit end with what is on the device
        (`load_declined_pages`)."""
        given = None if slots is None else self._slots(slots)
        pages = None if budget is None else whole_number("budget", budget, least=0) // self.page_size
        numbers = self._numbers(hits)
        self._stream.follow(self._core)
        if self._asked is not None and self._asked.loads:
            # A load that is refused is no decision yet: the policy is asked once per request.
            self._core.check_load(numbers, given)
            for number in numbers:
                self._asked.load(self._core, number, self.page_size, budget)
        load, unused = self._core.load(numbers, given, pages)
        return Load(load, tensors.slots(unused), self._load_deadline, self._stream, self._pools)

    if TYPE_CHECKING:

        def _slots(self, slots: Slots) -> Any: ...

        def _numbers(self, hits: Sequence[Hit]) -> list[int]: ...

        def _number(self, hit: Hit) -> int: ...
