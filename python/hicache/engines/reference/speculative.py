"""Speculative decoding: a draft guesses the next tokens, the model computes them all in one pass, and those
are kept that it would have said itself. The answer is the model's own, greedily; the draft only makes it come
sooner.

    position     0 ........... n-1 | n ......... n+k-1
    token        known             | guessed
    target       computes the last known one and all guesses in one pass: n+a+1 tokens are known then
    draft        has rows up to the last but one guess

    keep         pages whose rows *both* have written, of tokens that were accepted: no others enter the tree
    reject       rows of rejected tokens are in slots of ours, and what comes instead is written over them

With `ahead=1` row i of the draft is made of token i + 1, as EAGLE's is: it belongs to a pair of tokens. Its
pages are right only for whoever has the same next token, so the cache needs `keys="bigrams"`, and an insert
is told one token more than it has rows for.

For: the tests, and readers: one request at a time.
Assumes: one thread; a cache over `Drafted.declared`, or none.
Refuses to know: tiers; how the draft guesses.
On error: as `Engine`: a request that can't run is refused, `EngineStalled` where room doesn't come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hicache.engines.reference import path
from hicache.engines.reference.draft import Draft
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.engine import IDLE_S, EngineStalled
from hicache.engines.reference.model import Model
from hicache.engines.reference.parts import Needs
from hicache.engines.reference.pools import Pools
from hicache.engines.reference.request import Finish, Request, Result
from hicache.engines.reference.sequence import Sequence
from hicache.engines.reference.span import Span
from hicache.engines.reference.submit import checked
from hicache.engines.reference.uncached import Uncached
from hicache.engines.reference.verbs import Cache, Load


@dataclass(frozen=True, slots=True)
class Answer:
    """result: as of an `Engine`. guessed, accepted: of each pass of the model."""

    result: Result
    guessed: list[int]
    accepted: list[int]


@dataclass(slots=True)
class _Progress:
    """A request under way: beside what an engine knows of it, tokens whose rows the draft has."""

    sequence: Sequence
    load: Load
    drafted: int
    guessed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


class Speculative:
    """Answers requests with a model and a draft, whose rows are in `pools`.

    guesses: most of a pass
    ahead:   1: row i of the draft is made of token i + 1; 0: of token i
    """

    def __init__(
        self,
        model: Model,
        draft: Draft,
        pools: Drafted,
        cache: Cache | None = None,
        *,
        guesses: int = 3,
        ahead: int = 0,
        stall_timeout: float = 60.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if guesses < 1:
            raise ValueError(f"guesses must be at least 1, got {guesses}")
        if ahead not in (0, 1):
            raise ValueError(f"ahead must be 0 or 1, got {ahead}")
        self._model, self._draft, self._pools = model, draft, pools
        self._pool = pools.target
        self._cache: Cache = Uncached(self._pool.slots, self._pool.page_size) if cache is None else cache
        self._needs = Needs(Pools.of(self._pool), 0, 1)
        self._guesses, self._ahead = guesses, ahead
        self._stall_timeout, self._clock = stall_timeout, clock

    def generate(self, request: Request) -> Answer:
        """Runs a request to its end. Both models compute something of every prompt, or there would be nothing
        to guess and nothing to say from; so at most the rest of it hits."""
        prompt = checked(request, self._model.config, self._needs)
        if len(prompt) <= self._ahead:
            raise ValueError(f"tokens: need more than {self._ahead}, or the draft has none to begin with")
        sequence = Sequence.of(request, prompt, self._clock())
        ending: Finish = "aborted"
        try:
            progress = self._admit(sequence)
            while (said := self._step(progress)) is None:
                pass
            ending = said
        finally:
            path.give_back(self._cache, sequence, self._pool)
            sequence.finish(ending, self._clock())
        assert sequence.result is not None
        return Answer(sequence.result, progress.guessed, progress.accepted)

    def _admit(self, sequence: Sequence) -> _Progress:
        """Finds, fetches and loads; with slots for all that is to come, also for guesses."""
        until = self._clock() + self._stall_timeout
        while True:
            self._cache.poll()
            if sequence.hit is None:
                path.find(self._cache, sequence, self._clock, computed=1 + self._ahead)
            if path.decided(self._cache, sequence, 0, self._clock):
                load = path.load(self._cache, [sequence], self._clock)
                if path.allocate(self._cache, sequence, self._pool):
                    return _Progress(sequence, load, drafted=sequence.computed)
                path.give_back(self._cache, sequence, self._pool)
            if self._clock() > until:
                raise EngineStalled(f"no room or no answer for {self._stall_timeout:.0f} s")
            time.sleep(IDLE_S)

    def _step(self, progress: _Progress) -> Finish | None:
        """One pass of the model; how the answer ends, if it does."""
        self._cache.poll()
        sequence, started = progress.sequence, self._clock()
        guesses = self._guess(progress)
        said = self._verify(progress, guesses)
        accepted = int((guesses == said[:-1]).long().cumprod(0).sum())
        sequence.clock.count(restoring=0.0, computing=self._clock() - started)
        progress.guessed.append(len(guesses))
        progress.accepted.append(accepted)
        ending = None
        for token in said[: accepted + 1].tolist():  # the guesses that were right, and what comes after them
            ending = sequence.append(token, self._clock())
            if ending is not None:
                break
        # Of the last token nobody has a row. What the draft has behind it, if anything, is of rejected ones.
        sequence.computed = sequence.length - 1
        progress.drafted = min(progress.drafted, sequence.computed - self._ahead)
        both = min(sequence.computed, progress.drafted)
        path.keep(self._cache, sequence, self._pool, both, ahead=self._ahead)
        return ending

    def _guess(self, progress: _Progress) -> torch.Tensor:
        """(guesses,) tokens: as many as are allowed and still of use; the last token needs no guess."""
        sequence = progress.sequence
        wanted = min(self._guesses, len(sequence.tokens) - sequence.length - 1)
        told = sequence.tokens[self._ahead : sequence.length]
        guesses: list[int] = []
        # The first one also where no guess is wanted: it gives rows to tokens that were accepted meanwhile.
        for _ in range(max(wanted, 1)):
            span = Span(told[progress.drafted :], progress.drafted, sequence.page_table)
            best = self._draft.forward([span], self._pools.draft, progress.load.wait_layer).argmax(dim=-1)
            progress.drafted = len(told)
            told = torch.cat([told, best])
            guesses.append(int(best))
        return torch.tensor(guesses[: max(wanted, 0)], dtype=torch.int64)

    def _verify(self, progress: _Progress, guesses: torch.Tensor) -> torch.Tensor:
        """(guesses + 1,) tokens: what the model says at each guess, and behind the last."""
        sequence, first = progress.sequence, self._pools.target_first
        tokens = torch.cat([sequence.tokens[sequence.computed : sequence.length], guesses])
        span = Span(tokens, sequence.computed, sequence.page_table)
        hidden = self._model.hidden([span], self._pool, lambda layer: progress.load.wait_layer(first + layer))
        return self._model.logits(hidden[-1 - len(guesses) :]).argmax(dim=-1)
