"""The engine: one step after the other over all requests, on whatever cache it is given.

A step, in order (the verbs are in `path.py`):

    poll      finished transfers come back
    find      requests that arrived: match, prefetch
    admit     those that are decided and have room: one load for all of them, slots
    compute   one forward pass: a token of every answer, and as much of the prompts as `chunk_tokens` allows
    keep      insert what was computed
    sample    greedily; end those that are done
    deliver   on_token callbacks, last, when the books are in order

For: the demo, the bench, the tests, and readers.
Assumes: one thread; nobody else allocates from the cache or writes to the pool.
Refuses to know: tiers.
On error: a request that can never run is refused by `submit`. Where nothing moves for `stall_timeout`
seconds, `step` raises `EngineStalled`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hicache.engines.reference import path
from hicache.engines.reference.admission import Admission
from hicache.engines.reference.model import Model
from hicache.engines.reference.parts import Needs, Parts
from hicache.engines.reference.pools import Pools
from hicache.engines.reference.sequence import Sequence
from hicache.engines.reference.span import Span
from hicache.engines.reference.submit import checked
from hicache.engines.reference.uncached import Uncached
from hicache.engines.reference.verbs import HybridCache, UnifiedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from hicache.engines.reference.pool import KVPool
    from hicache.engines.reference.request import Finish, Request, Result
    from hicache.engines.reference.verbs import Cache, Load

IDLE_S = 0.0005  # pause of `run` after a step that could only wait for transfers


class EngineStalled(RuntimeError):
    """Nothing moved for `stall_timeout` seconds though requests are waiting."""


class Engine:
    """Runs requests on `model`, with KV in `pool`; `cache` was made over the same pool, or is None.

    A hybrid model needs `Pools`, and a cache that has slots for all of them (`verbs.HybridCache`); pools
    in one buffer (`unified.py`) need one that says where they are in it (`verbs.UnifiedCache`).

    chunk_tokens:  most tokens of a forward pass (but every running answer gets its one token)
    max_running:   most requests that run at once
    stall_timeout: seconds without any progress until `EngineStalled`
    clock:         seconds, monotonic
    """

    def __init__(
        self,
        model: Model,
        pool: KVPool | Pools,
        cache: Cache | None = None,
        *,
        chunk_tokens: int = 512,
        max_running: int = 16,
        stall_timeout: float = 60.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        for name, value in (("chunk_tokens", chunk_tokens), ("max_running", max_running)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.pools = Pools.of(pool)
        self.pools.check(model.config)
        self.model = model
        self.pool = self.pools.kv
        self.cache: Cache = _uncached(self.pools) if cache is None else cache
        self._hybrid = _hybrid(self.cache, self.pools)
        self._unified = _unified(self.cache, self.pools)
        self._needs = Needs(self.pools, model.config.window, chunk_tokens)
        self._chunk_tokens = chunk_tokens
        self._stall_timeout = stall_timeout
        self._clock = clock
        self._admission = Admission(self.cache, self._needs, max_running, clock)
        self._running: list[Sequence] = []
        self._loads: list[Load] = []  # issued and not waited for yet
        self._moved_at = clock()

    # -- from outside --

    def submit(self, request: Request) -> Sequence:
        """Queue a request. Raises `RequestTooLarge` or `ValueError` for one that can never run."""
        prompt = checked(request, self.model.config, self._needs)
        sequence = Sequence.of(request, prompt, self._clock())
        if self._hybrid is not None:
            sequence.parts = Parts(self._hybrid, self._needs, sequence.kv_tokens)
        if not self.busy:
            self._moved_at = sequence.clock.arrived
        self._admission.waiting.append(sequence)
        return sequence

    def generate(self, requests: Iterable[Request]) -> list[Result]:
        """Submit all and run until everything has ended; results in the order of the requests."""
        sequences = [self.submit(request) for request in requests]
        self.run()
        return [sequence.result for sequence in sequences if sequence.result is not None]

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.busy:
            if not self.step():
                time.sleep(IDLE_S)

    @property
    def busy(self) -> bool:
        """True while requests wait or run."""
        return bool(self._admission.waiting or self._running)

    @property
    def running(self) -> int:
        """Requests that own slots now."""
        return len(self._running)

    def abort(self, sequence: Sequence) -> None:
        """End a request in any state and give back all that it holds. No-op once it has ended."""
        if sequence.result is None:
            self._end(sequence, "aborted")

    def close(self) -> None:
        """Abort everything. The cache stays open: it is not ours."""
        for sequence in [*self._admission.waiting, *self._running]:
            self.abort(sequence)

    # -- one step --

    def step(self) -> bool:
        """One scheduler step; False if nothing could be computed (transfers or room are waited for)."""
        self.cache.poll()
        self._admission.find()
        load = self._admission.admit(self._running)
        if load is not None:
            self._loads.append(load)
        batch = self._schedule()
        if not batch:
            self._check_stalled()
            return False
        started = self._clock()
        logits = self._compute(batch)
        prompts = sum(len(span.tokens) for sequence, span in batch if sequence.computed < sequence.prompt)
        for sequence, span in batch:
            sequence.computed = span.end
            path.keep(self.cache, sequence, self.pool)
        self.cache.stepped(prompts, self._clock() - started, ahead=self._ahead())
        self._deliver(self._sample(batch, logits))
        return True

    def _ahead(self) -> int:
        """Prompt tokens of running requests that wait for their turn."""
        return sum(max(sequence.prompt - sequence.computed, 0) for sequence in self._running)

    def _schedule(self) -> list[tuple[Sequence, Span]]:
        """A token of each answer, then prompts, the oldest first, as far as the step allows."""
        answering = [sequence for sequence in self._running if sequence.computed >= sequence.prompt]
        prompting = [sequence for sequence in self._running if sequence.computed < sequence.prompt]
        batch = [(sequence, sequence.span(1)) for sequence in answering if path.reach(sequence, 1)]
        left = max(self._chunk_tokens - len(answering), 1)  # a prompt moves on however many answers there are
        for sequence in prompting:
            tokens = sequence.step(left)
            if tokens and path.reach(sequence, tokens):
                batch.append((sequence, sequence.span(tokens)))
                left -= tokens
        return batch

    def _compute(self, batch: list[tuple[Sequence, Span]]) -> Tensor:
        """The forward pass, which waits for every outstanding load just before the layer it concerns.

        Every one, not only those of this batch: an insert may have pointed a page table to pages that a load
        for another request is still filling.
        """
        waited = 0.0

        def before_layer(layer: int) -> None:
            nonlocal waited
            started = self._clock()
            for load in self._loads:
                load.wait_layer(layer)
            waited += self._clock() - started

        started = self._clock()
        spans = self._placed([span for _, span in batch])
        logits = self.model.forward(spans, self.pools, before_layer if self._loads else None)
        self._loads.clear()
        self._moved_at = self._clock()
        for sequence, _ in batch:
            sequence.clock.count(restoring=waited, computing=self._moved_at - started - waited)
        return logits

    def _placed(self, spans: list[Span]) -> list[Span]:
        """The spans with frames for slots, where all pools are one buffer: as they are in this pass."""
        if self._unified is None:
            return spans
        frames = {"kv": self._unified.frames(), "state": self._unified.frames("state")}
        return [span.at(frames) for span in spans]

    def _sample(self, batch: list[tuple[Sequence, Span]], logits: Tensor) -> list[tuple[Sequence, int]]:
        """The best token of each sequence whose last known token was computed; ends those that are done."""
        sampled: list[tuple[Sequence, int]] = []
        best = logits.argmax(dim=-1).tolist()
        for row, (sequence, span) in enumerate(batch):
            if span.end < sequence.length:
                continue  # a prompt with more to come
            if sequence.request.keep_logits:
                sequence.logits.append(logits[row].clone())
            sampled.append((sequence, best[row]))
            ending = sequence.append(best[row], self._clock())
            if ending is not None:
                self._end(sequence, ending)
        return sampled

    def _end(self, sequence: Sequence, how: Finish) -> None:
        path.give_back(self.cache, sequence, self.pool)
        if sequence in self._running:
            self._running.remove(sequence)
            self._admission.crowded = False
        else:
            self._admission.waiting.remove(sequence)
        sequence.finish(how, self._clock())

    @staticmethod
    def _deliver(sampled: list[tuple[Sequence, int]]) -> None:
        for sequence, token in sampled:
            if sequence.request.on_token is not None:
                sequence.request.on_token(token)

    def _check_stalled(self) -> None:
        waiting, stalled = self._admission.waiting, self._clock() - self._moved_at
        if stalled <= self._stall_timeout:
            return
        if self._running:
            raise EngineStalled(
                f"no progress for {stalled:.0f} s: no room in the window pool for the next step"
            )
        if waiting:
            need = self.pool.pages_for(waiting[0].kv_tokens)
            raise EngineStalled(
                f"no progress for {stalled:.0f} s: {len(waiting)} requests wait and none runs; "
                f"the first needs {need} of {self.pool.slots} pages"
            )


def _uncached(pools: Pools) -> Uncached:
    return Uncached(
        pools.kv.slots,
        pools.kv.page_size,
        window_slots=0 if pools.window is None else pools.window.slots,
        state_slots=0 if pools.state is None else pools.state.slots,
    )


def _hybrid(cache: Cache, pools: Pools) -> HybridCache | None:
    """The cache, where its verbs for windows and states are needed."""
    if pools.window is None and pools.state is None:
        return None
    if not isinstance(cache, HybridCache):
        raise ValueError(f"cache: {type(cache).__name__} has no slots for windows and states (HybridCache)")
    return cache


def _unified(cache: Cache, pools: Pools) -> UnifiedCache | None:
    """The cache, where it says in which frame a slot is."""
    if pools.buffer is None:
        return None
    if not isinstance(cache, UnifiedCache):
        raise ValueError(f"cache: {type(cache).__name__} doesn't say where the slots of one buffer are")
    return cache
