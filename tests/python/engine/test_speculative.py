"""Draft state: with its rows from any tier a draft guesses what it would have guessed, to the last token.

Tokens alone would prove nothing: whatever a draft guesses, they are the model's. So the tests compare how
many guesses were accepted in every pass, and are shown that this tells when a draft reads rows that are not
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from speculated import KINDS, NAMES, Arrange, Stack, found, random_prompts, same

from hicache.engines.reference import Engine, KVPool, Model, Request, Result, Span
from hicache.engines.reference.draft import first_layers
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.speculative import Answer

NEW = 16


@pytest.fixture(scope="module")
def draft(tiny: Model) -> Model:
    return first_layers(tiny, 2)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return random_prompts()


@pytest.fixture(scope="module")
def uncached(tiny: Model, draft: Model) -> Callable[[int, list[int]], Answer]:
    """(ahead, prompt): the same engine without a cache."""
    known: dict[tuple[int, tuple[int, ...]], Answer] = {}

    def answer(ahead: int, prompt: list[int]) -> Answer:
        key = (ahead, tuple(prompt))
        if key not in known:
            with Stack(tiny, draft, Drafted.sidecar, ahead, cached=False) as stack:
                known[key] = stack.ask(prompt, NEW)
        return known[key]

    return answer


def hit(prompt: list[int], ahead: int) -> int:
    """Tokens that a prompt hits that is known: whole pages, but for what both models must compute."""
    return (len(prompt) - 1 - ahead) // 4 * 4


@pytest.mark.parametrize("ahead", [0, 1])
def test_the_answer_is_the_models_own(
    alone: Callable[[Model, Request], Result],
    tiny: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    ahead: int,
) -> None:
    for prompt in prompts:
        answer = uncached(ahead, prompt)
        assert answer.result.tokens == alone(tiny, Request(prompt, NEW)).tokens
        assert 0 < sum(answer.accepted) < sum(answer.guessed)
        assert max(answer.accepted) > 1, "or nothing depends on rows that guesses wrote"
        assert sum(answer.accepted) + len(answer.accepted) == NEW


@pytest.mark.parametrize(("arrange", "ahead"), KINDS, ids=NAMES)
def test_the_same_guesses_are_accepted_from_every_tier(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    tmp_path: Path,
    arrange: Arrange,
    ahead: int,
) -> None:
    """Twice: the next turn sends the answer back and goes on, so that rows hit which a pass of guesses
    wrote."""
    turns = [prompt + uncached(ahead, prompt).result.tokens + prompts[0][:7] for prompt in prompts]
    with Stack(tiny, draft, arrange, ahead, store=tmp_path) as stack:
        for prompt, turn in zip(prompts, turns, strict=True):
            assert same(stack.ask(prompt, NEW), uncached(ahead, prompt))
            again = stack.ask(prompt, NEW)
            assert same(again, uncached(ahead, prompt))
            assert found(again)[:3] == (hit(prompt, ahead), 0, 0)
            after = stack.ask(turn, NEW)
            assert same(after, uncached(ahead, turn))
            assert found(after)[0] > len(prompt), "some of the answer, too"
        for history in (*prompts, *turns):
            stack.leave("device")
            restored = stack.ask(history, NEW)
            assert same(restored, uncached(ahead, history))
            assert found(restored)[:3] == (0, hit(history, ahead), 0)
        stack.check_books()
    with Stack(tiny, draft, arrange, ahead, store=tmp_path) as stack:
        for history in (*prompts, *turns):
            stack.leave("device", "host")
            fetched = stack.ask(history, NEW)
            assert same(fetched, uncached(ahead, history))
            assert found(fetched)[:3] == (0, 0, hit(history, ahead))
        stack.check_books()


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_draft_without_its_rows_would_be_seen(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    ahead: int,
) -> None:
    """The test of these tests: a draft that is left out of the cache reads what others wrote. The tokens are
    right, and less is accepted."""

    def forgotten(both: Drafted) -> Drafted:
        return replace(both, declared=both.declared[:1])

    accepted = {"with": 0, "without": 0}
    with Stack(tiny, draft, Drafted.sidecar, ahead, declare=forgotten) as stack:
        for prompt in prompts:
            assert same(stack.ask(prompt, NEW), uncached(ahead, prompt))
            stack.leave("device")
            answer = stack.ask(prompt, NEW)
            assert answer.result.tokens == uncached(ahead, prompt).result.tokens
            assert not same(answer, uncached(ahead, prompt))
            accepted["without"] += sum(answer.accepted)
            accepted["with"] += sum(uncached(ahead, prompt).accepted)
    assert accepted["without"] < accepted["with"]


@pytest.mark.parametrize("keys", ["bigrams", "tokens"])
def test_a_row_that_depends_on_the_next_token_needs_pairs(
    tiny: Model, draft: Model, prompts: list[list[int]], keys: str
) -> None:
    """Two prompts share two pages and nothing more: the last row of the second page is another one's."""
    first = prompts[0]
    second = [*first[:8], (first[8] + 1) % 256, *first[9:]]
    with Stack(tiny, draft, Drafted.sidecar, 1, cached=False) as stack:
        stack.engine.generate(Request(second, 1))
        right = stack.pools.draft.k[-1][: len(second) - 2].clone()  # slots are handed out in order
    with Stack(tiny, draft, Drafted.sidecar, 1, keys=keys) as stack:
        stack.ask(first, 1)
        assert found(stack.ask(second, 1))[0] == (4 if keys == "bigrams" else 8)
        rows = stack.draft_rows(second)
    same_rows = torch.isclose(rows, right[: len(rows)]).flatten(1).all(1).tolist()
    if keys == "bigrams":
        assert all(same_rows)
    else:
        assert same_rows[:8] == [True] * 7 + [False], "and what is computed from it is wrong as well"


@pytest.mark.parametrize(("arrange", "ahead"), KINDS, ids=NAMES)
def test_only_what_was_accepted_is_cached(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    arrange: Arrange,
    ahead: int,
) -> None:
    """With pages of a token the index has exactly the history, but for what has no row in both pools; and
    everything that the request had besides is free again."""
    for prompt in prompts:
        with Stack(tiny, draft, arrange, ahead, page_size=1, slots=60) as stack:
            answer = stack.ask(prompt, NEW)
            assert sum(answer.guessed) > sum(answer.accepted)
            history = prompt + answer.result.tokens
            whole = stack.cache.reader().would_hit(history).device_length
            assert stack.cached() == whole
            # The draft has no row for the last guess of a pass if all were right.
            assert len(history) - 1 - ahead - 1 <= whole <= len(history) - 1
            told = history[ahead : ahead + whole]
            alone = KVPool.create(draft.config, slots=60, page_size=1, dtype=draft.dtype)
            draft.forward([Span(torch.tensor(told), 0, torch.arange(60))], alone)
            assert torch.allclose(stack.draft_rows(history), alone.k[-1][:whole]), (
                "every row is the history's"
            )
            stack.check_books()


def test_a_lost_page_of_the_host_is_lost_for_both(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
) -> None:
    prompt = prompts[2]
    with Stack(tiny, draft, Drafted.sidecar) as stack:
        stack.ask(prompt, 1)
        stack.leave("device")
        assert len(stack.cache.evict(2, tier="host")) == 2, "of nine"
        answer = stack.ask(prompt, NEW)
        assert found(answer)[:3] == (0, 28, 0)
        assert same(answer, uncached(0, prompt))


@pytest.mark.parametrize("arrange", [Drafted.sidecar, Drafted.packed, Drafted.fused])
def test_a_page_whose_draft_is_damaged_in_the_store_is_a_miss_for_both(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    tmp_path: Path,
    arrange: Arrange,
) -> None:
    """One byte of the draft's last row of the third page, in the file that has it."""
    prompt = prompts[2]
    with Stack(tiny, draft, arrange, store=tmp_path) as stack:
        stack.ask(prompt, 1)
        row = stack.draft_rows(prompt)[11].numpy().tobytes()
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file() and row in path.read_bytes()]
    damaged = bytearray(file.read_bytes())
    damaged[damaged.index(row)] ^= 1
    file.write_bytes(damaged)
    with Stack(tiny, draft, arrange, store=tmp_path) as stack:
        answer = stack.ask(prompt, NEW)
        assert found(answer)[:3] == (0, 0, 8)
        assert same(answer, uncached(0, prompt))


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_answer_may_end_within_the_guesses(
    tiny: Model,
    draft: Model,
    prompts: list[list[int]],
    uncached: Callable[[int, list[int]], Answer],
    ahead: int,
) -> None:
    """Each token of an answer once as the one that ends it, so also one that was guessed, and not the
    last."""
    prompt = prompts[0]
    answer = uncached(ahead, prompt).result.tokens
    for stop in dict.fromkeys(answer):
        with Stack(tiny, draft, Drafted.sidecar, ahead, page_size=1, slots=60) as stack:
            ended = stack.ask(prompt, NEW, stop=frozenset({stop})).result
            expected = answer[: answer.index(stop) + 1]
            assert (ended.tokens, ended.finish) == (expected, "stop")
            history = prompt + ended.tokens
            assert stack.cached() == stack.cache.reader().would_hit(history).device_length
            stack.check_books()


def test_the_plain_engine_finds_what_a_speculative_one_kept(
    tiny: Model, draft: Model, prompts: list[list[int]], alone: Callable[[Model, Request], Result]
) -> None:
    """The target's rows are those of a model without a draft."""
    prompt = prompts[0]
    with Stack(tiny, draft, Drafted.sidecar) as stack:
        turn = prompt + stack.ask(prompt, NEW).result.tokens
        plain = Engine(tiny, stack.pools.target, stack.cache).generate([Request(turn, NEW)])[0]
        assert plain.device_tokens > len(prompt)
        assert plain.tokens == alone(tiny, Request(turn, NEW)).tokens
