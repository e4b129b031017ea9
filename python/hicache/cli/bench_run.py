"""Runs the multi-turn workload on the reference engine, with real bytes.

For: `bench.py`.
Assumes: one process, one engine at a time.
Refuses to know: what is printed.
On error: `MissingPackage` where the real model's package is not installed; a `HiCacheError` of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from hicache.cli.bench_plan import CONFIGURATIONS, Sizes, Workload
from hicache.cli.bench_report import TIERS, Outcome, Round
from hicache.cli.stack import PLAIN, Stack, Tiers, Ways, random_model, real_model, serving, warm_up
from hicache.engines.reference import Model, Request, Result, Sequence

CHUNK_TOKENS = 512
IDLE_S = 0.0005  # pause after a step that could only wait for transfers


@dataclass(frozen=True)
class ModelChoice:
    """Which model: the real one in float32, or random weights in float64, whose answers cannot depend on
    rounding."""

    real: bool
    layers: int
    hidden: int
    kinds: str
    seed: int

    def load(self) -> Model:
        """The model, ready to run at full speed."""
        if self.real:
            model = real_model().model
        else:
            model = random_model(self.layers, self.hidden, self.seed, torch.float64, kinds=self.kinds)
        warm_up(model, CHUNK_TOKENS)
        return model


def run(
    model: Model,
    workload: Workload,
    configuration: str,
    sizes: Sizes,
    running: int,
    store: Path,
    advance: Callable[[], None],
    ways: Ways = PLAIN,
) -> Outcome:
    """One configuration from empty pools (and an empty store) to the last answer.

    `running`: most requests in flight. `advance` is called after each request.
    """
    host = None if configuration == "device" else sizes.host
    tiers = Tiers(workload.page_size, sizes.device, host, store if configuration == "storage" else None)
    outcome = Outcome(CONFIGURATIONS[configuration], sizes.device, host)
    with serving(model, "bench", tiers, chunk_tokens=CHUNK_TOKENS, max_running=running, ways=ways) as stack:
        started = time.perf_counter()
        for number, prompts in _rounds(workload, model.config.vocabulary, outcome):
            figures = Round(number)
            outcome.rounds.append(figures)
            answers = _round(stack, prompts, workload.output, running, advance)
            for client, (result, waited) in enumerate(answers):
                _count(figures, workload, result, waited)
                outcome.generated[client, number] = result.tokens
        outcome.wall_s = time.perf_counter() - started
        outcome.stats = stack.cache.stats()
    return outcome


def _rounds(workload: Workload, vocabulary: int, outcome: Outcome) -> Iterator[tuple[int, list[list[int]]]]:
    """Prompts of all clients, round after round; a round's answers must be in `outcome` before the next."""
    generator = torch.Generator().manual_seed(workload.seed)
    histories: list[list[int]] = [[] for _ in range(workload.clients)]
    for number in range(workload.rounds):
        for client, history in enumerate(histories):
            history += outcome.generated.get((client, number - 1), [])
            history += torch.randint(vocabulary, (workload.input,), generator=generator).tolist()
        yield number, histories


def _round(
    stack: Stack, prompts: list[list[int]], output: int, running: int, advance: Callable[[], None]
) -> Iterator[tuple[Result, float]]:
    """All clients ask at once; `running` of them are in flight. Results in the clients' order, each with the
    seconds that its request had to wait until it was its turn."""
    engine, started = stack.engine, time.perf_counter()
    turns: list[tuple[Sequence, float]] = []
    for prompt in prompts:
        while sum(turn.result is None for turn, _ in turns) >= running:
            _step(stack)
        turns.append((engine.submit(Request(prompt, output)), time.perf_counter() - started))
    for turn, waited in turns:
        yield _result(stack, turn), waited
        advance()


def _result(stack: Stack, turn: Sequence) -> Result:
    while turn.result is None:
        _step(stack)
    return turn.result


def _step(stack: Stack) -> None:
    if not stack.engine.step():
        time.sleep(IDLE_S)


def _count(figures: Round, workload: Workload, result: Result, waited: float) -> None:
    figures.prompt_tokens += result.prompt_tokens
    figures.ceiling_tokens += workload.ceiling_tokens(figures.round)
    figures.computed_tokens += result.computed_tokens
    figures.first_token_s.append(waited + (result.first_token_s or 0.0))
    for tier in TIERS:
        figures.hit_tokens[tier] += getattr(result, f"{tier}_tokens")
