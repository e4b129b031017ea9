"""The engine on the cache: with any tiers, layout and page size, the tokens are the oracle's, exactly.

Pools are so small that pages leave the device and the host all the time, and the tests also ask that hits
came from each tier that there is: were nothing ever restored, equal tokens would prove nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conversations import Script, Turn, script

from hicache import HiCache, Host, ModelIdentity, Namespace, pools
from hicache.engines.reference import Engine, KVPool, Model, Request, Result

DEVICE_TOKENS = 208  # two or three of the longest requests; six conversations grow to about 650 tokens
HOST_TOKENS = 416
DRAIN_S = 30.0
TIERS = ["device", "host", "storage"]
LAYOUTS = ["page_unified", "layer_first"]
EVERY_CONFIGURATION = [("device", "page_unified")] + [
    (tier, layout) for tier in TIERS[1:] for layout in LAYOUTS
]


@pytest.fixture(scope="module")
def rounds(tiny: Model, alone: Callable[[Model, Request], Result]) -> Script:
    return script(tiny, alone)


class Stack:
    """A pool, a cache over it and an engine on both. Use as a context manager: it closes the cache."""

    def __init__(
        self,
        model: Model,
        *,
        page_size: int,
        host_tokens: int | None = None,
        layout: str = "page_unified",
        store: Path | None = None,
        weights_name: str = "seed 11",
        weights_epoch: int = 0,
        device_tokens: int = DEVICE_TOKENS,
    ) -> None:
        slots = device_tokens // page_size
        self.pool = KVPool.create(model.config, slots=slots, page_size=page_size, dtype=model.dtype)
        self.cache = HiCache(
            pools=[pools.mha("kv", self.pool.k, self.pool.v)],
            page_size=page_size,
            host=None if host_tokens is None else Host(tokens=host_tokens, layout=layout),
            storage=None if store is None else store.as_uri(),
            identity=ModelIdentity(
                model=f"tiny, {weights_name}", dtype=str(model.dtype), weights_epoch=weights_epoch
            ),
            write="write_through",
            prefetch="wait_complete",
            prefetch_threshold=0,
            load_threshold=0,
            eviction="lru",
        )
        self.engine = Engine(model, self.pool, self.cache, chunk_tokens=48, max_running=4)

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()
        self.cache.close()

    def settle(self) -> None:
        """Wait for backups and stores, so that what can be found next does not depend on the disk's speed."""
        assert self.cache.drain(DRAIN_S)

    def forget(self, *tiers: str) -> None:
        """Evict everything, so that what comes next must come from the tiers below."""
        for tier in tiers:
            self.cache.evict(self.cache.stats()[f"{tier}_slots"], tier=tier)

    def check_books(self) -> None:
        """Nothing runs: everything can be evicted, and then every slot of every tier is free."""
        self.settle()
        self.forget("device", "host")
        self.cache.poll()
        stats = self.cache.stats()
        assert (stats["device_free"], stats["host_free"]) == (stats["device_slots"], stats["host_slots"])
        assert self.engine.running == 0


def stack_of(model: Model, tier: str, layout: str, page_size: int, folder: Path) -> Stack:
    """Device only, device and host, or all three tiers."""
    return Stack(
        model,
        page_size=page_size,
        host_tokens=None if tier == "device" else HOST_TOKENS,
        layout=layout,
        store=folder / "store" if tier == "storage" else None,
    )


def request_of(turn: Turn) -> Request:
    """Clients 2 and 3 are in a namespace of their own."""
    namespace = Namespace(salt="apart") if turn.client // 2 == 1 else None
    return Request(turn.prompt, max_new_tokens=len(turn.answer), namespace=namespace)


def play(stack: Stack, turns: list[Turn]) -> Counter[str]:
    """One round, all clients at once: answers must be the oracle's. Prompt tokens by where they came from."""
    results = stack.engine.generate([request_of(turn) for turn in turns])
    for turn, result in zip(turns, results, strict=True):
        assert result.tokens == turn.answer, f"client {turn.client}, {result}"
    sums: Counter[str] = Counter()
    for result in results:
        tiers = {tier: getattr(result, f"{tier}_tokens") for tier in (*TIERS, "computed")}
        assert sum(tiers.values()) == result.prompt_tokens
        assert min(tiers.values()) >= 0
        assert tiers["computed"] >= 1
        sums.update(tiers)
    return sums


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(("tier", "layout"), EVERY_CONFIGURATION)
def test_tokens_equal_the_oracles(
    tiny: Model, rounds: Script, tmp_path: Path, tier: str, layout: str, page_size: int
) -> None:
    given: Counter[str] = Counter()
    with stack_of(tiny, tier, layout, page_size, tmp_path) as stack:
        for number, turns in enumerate(rounds):
            given += play(stack, turns)
            stack.settle()
            stack.forget(*{1: ["device"], 2: ["device", "host"]}.get(number, []))
        print(f"\nprompt tokens by tier: {dict(given)}")
        present = TIERS[: TIERS.index(tier) + 1]
        for name in TIERS:
            assert (given[name] > 0) == (name in present), f"hits from {name}: {given}"
            assert (stack.cache.stats()[f"hit_{name}_tokens"] > 0) == (name in present)
        stack.check_books()


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_storage_restores_what_the_other_tiers_lost(
    tiny: Model, rounds: Script, tmp_path: Path, page_size: int
) -> None:
    """After a restart only the store knows anything: the last round comes from it, all but the new words."""
    with stack_of(tiny, "storage", "page_unified", page_size, tmp_path) as stack:
        for turns in rounds:
            play(stack, turns)
            stack.settle()
    with stack_of(tiny, "storage", "layer_first", page_size, tmp_path) as again:
        one_by_one = []
        for turn in rounds[-1]:
            one_by_one.append(play(again, [turn]))
            # Pages whose backup is under way make no room: a request that finds none looks again, and what it
            # fetched is on the host by then.
            again.settle()
        assert one_by_one[0]["device"] == one_by_one[0]["host"] == 0
        for turn, given, earlier in zip(rounds[-1], one_by_one, rounds[-2], strict=True):
            known = (len(earlier.prompt) + len(earlier.answer) - 1) // page_size * page_size
            assert given["device"] + given["host"] + given["storage"] >= known, (turn.client, given)
            assert given["storage"] > 0
        again.check_books()


def test_other_weights_find_nothing_in_the_store(tiny: Model, rounds: Script, tmp_path: Path) -> None:
    with stack_of(tiny, "storage", "page_unified", 4, tmp_path) as stack:
        play(stack, rounds[0])
        stack.settle()
    store = tmp_path / "store"
    with Stack(tiny, page_size=4, host_tokens=HOST_TOKENS, store=store, weights_name="others") as other:
        assert play(other, rounds[0][:1]) == Counter(computed=len(rounds[0][0].prompt))
    with Stack(tiny, page_size=4, host_tokens=HOST_TOKENS, store=store) as same:
        assert play(same, rounds[0][:1])["storage"] > 0, "the store was not empty"


@pytest.mark.parametrize("folder_too", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_store_may_vanish_between_rounds(
    tiny: Model, rounds: Script, tmp_path: Path, layout: str, folder_too: bool
) -> None:
    """With its pages, or with its folder: what the other tiers have lost as well is computed again."""
    store, given = tmp_path / "store", Counter[str]()
    with stack_of(tiny, "storage", layout, 4, tmp_path) as stack:
        for number, turns in enumerate(rounds):
            given += play(stack, turns)
            stack.settle()
            if number != 1:
                continue
            assert any(path.is_file() for path in store.rglob("*"))
            shutil.rmtree(store)
            if not folder_too:
                store.mkdir()
            stack.forget("device", "host")
            first = rounds[2][0]
            assert play(stack, [first]) == Counter(computed=len(first.prompt))
        stack.check_books()
    assert given["host"] > 0


def test_namespaces_share_nothing(tiny: Model, rounds: Script) -> None:
    turn = rounds[0][0]
    answers, new = turn.answer, len(turn.answer)
    spaces = [
        None,
        Namespace(salt="a"),
        Namespace(extra_key="a"),
        Namespace(adapter="a"),
        Namespace(salt="b"),
    ]
    with Stack(tiny, page_size=1, host_tokens=HOST_TOKENS) as stack:
        for again in (False, True):
            for space in spaces if not again else spaces[-1:]:
                result = stack.engine.generate([Request(turn.prompt, new, namespace=space)])[0]
                assert result.tokens == answers
                assert (result.computed_tokens < len(turn.prompt)) == again, space


def test_overwritten_pages_would_be_seen(tiny: Model, rounds: Script) -> None:
    """The test of these tests: with wrong bytes behind its hits, the engine gives other tokens."""
    with Stack(tiny, page_size=4, device_tokens=1024) as stack:
        play(stack, rounds[0])
        for tensor in (*stack.pool.k, *stack.pool.v):
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
        results = stack.engine.generate([request_of(turn) for turn in rounds[1]])
        assert all(result.device_tokens > 0 for result in results)
        assert all(result.tokens != turn.answer for result, turn in zip(results, rounds[1], strict=True))


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_abort_in_any_state_leaks_nothing(
    tiny: Model, rounds: Script, tmp_path: Path, steps: int, page_size: int
) -> None:
    """Aborted while waiting, prefetching, loading, computing, answering; then the round is played again."""
    with stack_of(tiny, "storage", "page_unified", page_size, tmp_path) as stack:
        for turns in rounds[:3]:
            play(stack, turns)
        sequences = [stack.engine.submit(request_of(turn)) for turn in rounds[3]]
        for _ in range(steps):
            stack.engine.step()
        for sequence in sequences:
            stack.engine.abort(sequence)
        assert not stack.engine.busy
        stack.check_books()
        play(stack, rounds[3])
        stack.check_books()


def test_concurrent_equal_prompts_share_pages(tiny: Model, rounds: Script) -> None:
    """Four requests compute the same pages at once: the tree keeps one copy, duplicates are given back."""
    turn = rounds[0][0]
    with Stack(tiny, page_size=4, device_tokens=512) as stack:
        play(stack, [turn] * 4)
        stats = stack.cache.stats()
        pages = (len(turn.prompt) + len(turn.answer) - 1) // 4
        assert stats["device_slots"] - stats["device_free"] == pages
        stack.check_books()
