"""What the verbs refuse (right class, the argument's name in front, nothing changed) and what they take."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import Engine, make

from hicache import ArgumentError

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]
REFUSED = (ArgumentError, TypeError)


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them; EIGHT is cached on both tiers, and nothing is under way."""
    engine = make(2)
    engine.finish(engine.run(EIGHT))
    assert engine.cache.drain(10)
    return engine


@pytest.fixture
def unchanged(engine: Engine) -> Iterator[None]:
    """Books and counters are the same before and after."""
    before = engine.cache.stats()
    yield
    engine.check()
    assert engine.cache.stats() == before


TOKENS = {
    "negative": [1, -1],
    "negative-int32": torch.tensor([1, -1], dtype=torch.int32),
    "int64-min": [-(2**63)],
    "beyond-int64": [2**63],
    "below-int64": [-(2**63) - 1],
    "float-list": [1.0, 2.0],
    "text-list": ["1"],
    "none-list": [None],
    "nested-list": [[1, 2]],
    "text": "12",
    "bytes": b"12",
    "number": 3,
    "none": None,
    "range": range(4),
    "float-tensor": torch.tensor([1.0, 2.0]),
    "bool-tensor": torch.tensor([True, False]),
    "int16-tensor": torch.tensor([1, 2], dtype=torch.int16),
    "uint8-tensor": torch.tensor([1, 2], dtype=torch.uint8),
    "empty-float-tensor": torch.tensor([]),
    "2d-tensor": torch.zeros(2, 2, dtype=torch.int64),
    "0d-tensor": torch.tensor(1),
    "strided-tensor": torch.arange(8)[::2],
    "column-tensor": torch.zeros(4, 2, dtype=torch.int32)[:, 0],
    "uint64-array": np.array([1, 2], dtype=np.uint64),
    "uint32-array": np.array([1, 2], dtype=np.uint32),
    "int16-array": np.array([1, 2], dtype=np.int16),
    "bool-array": np.array([True, False]),
    "float-array": np.array([1.0, 2.0]),
    "object-array": np.array([1, 2], dtype=object),
    "2d-array": np.zeros((2, 2), dtype=np.int64),
    "strided-array": np.arange(8)[::2],
    "reversed-array": np.arange(8)[::-1],
    "big-endian-array": np.arange(8, dtype=">i4"),
    "double-array": array("d", [1.0]),
    "short-array": array("h", [1]),
}


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
@pytest.mark.usefixtures("unchanged")
def test_tokens_that_are_refused(engine: Engine, tokens: Any) -> None:
    with pytest.raises(REFUSED, match=r"^tokens: "):
        engine.cache.match_prefix(tokens)


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_tokens_that_insert_refuses(engine: Engine, tokens: Any) -> None:
    request = engine.run(EIGHT)
    before = engine.cache.stats()
    with pytest.raises(REFUSED, match=r"^tokens: "):
        engine.cache.insert(request.hit, tokens, [])
    engine.check()
    assert (engine.cache.stats(), request.hit.length) == (before, 8)


ACCEPTED = {
    "int64-tensor": torch.tensor(EIGHT),
    "int32-tensor": torch.tensor(EIGHT, dtype=torch.int32),
    "slice-of-tensor": torch.tensor([9, *EIGHT, 9])[1:9],
    "row-of-tensor": torch.tensor([EIGHT, EIGHT])[1],
    "int64-array": np.array(EIGHT, dtype=np.int64),
    "int32-array": np.array(EIGHT, dtype=np.int32),
    "read-only-array": np.frombuffer(np.array(EIGHT, dtype=np.int32).tobytes(), dtype=np.int32),
    "array-i": array("i", EIGHT),
    "array-q": array("q", EIGHT),
    "array-l": array("l", EIGHT),
    "memoryview": memoryview(array("q", EIGHT)),
    "list": EIGHT,
    "tuple": tuple(EIGHT),
    "numpy-integers": list(np.array(EIGHT)),
}


@pytest.mark.parametrize("tokens", ACCEPTED.values(), ids=ACCEPTED)
def test_tokens_that_are_taken(engine: Engine, tokens: Any) -> None:
    assert engine.cache.match_prefix(tokens).device_length == 8


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        (),
        torch.tensor(EIGHT)[:0],
        torch.tensor(EIGHT, dtype=torch.int32)[:0],
        np.empty(0, np.int32),
        array("q"),
    ],
    ids=["list", "tuple", "int64-tensor", "int32-tensor", "array", "array-q"],
)
def test_no_tokens_are_taken(engine: Engine, tokens: Any) -> None:
    request = engine.match(tokens)
    engine.load(request)
    assert engine.cache.insert(request.hit, tokens, tokens).length == 0
    engine.cache.free(tokens)
    engine.finish(request)
    engine.check()


def test_wide_tokens_are_told_apart(engine: Engine) -> None:
    wide = [2**63 - 1, 2**32, 2**32 + 1, 2**31]
    engine.finish(engine.run(wide))
    assert engine.match(wide).hit.device_length == 4
    assert engine.match([2**63 - 1, 2**32, 1, 2**31]).hit.device_length == 2
    assert engine.match(torch.tensor(wide)).hit.device_length == 4


SLOTS = {
    "negative": [-1, 5],
    "twice": [5, 5],
    "free": [5, 9],
    "of-a-cached-page": [5, 0],
    "out-of-range": [5, 16],
    "beyond-uint32": [5, 2**32 + 6],
    "float": torch.tensor([5.0, 6.0]),
    "int16": torch.tensor([5, 6], dtype=torch.int16),
    "text": ["5", "6"],
    "strided": torch.tensor([5, 5, 6, 6])[::2],
}


@pytest.mark.parametrize("slots", SLOTS.values(), ids=SLOTS)
@pytest.mark.parametrize("verb", ["insert", "free"])
def test_slots_that_are_refused(engine: Engine, verb: str, slots: Any) -> None:
    """4 pages are cached in slots 0 to 3, slots 4 to 7 are ours, those after them free."""
    request = engine.run(EIGHT)
    ours = engine.cache.allocate(4)
    assert ours is not None
    assert (sorted(request.table), ours.tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7])
    before = engine.cache.stats()
    arguments = (slots,) if verb == "free" else (request.hit, [8, 8, 9, 9], slots)
    with pytest.raises(REFUSED, match=r"^slots: ") as refused:
        getattr(engine.cache, verb)(*arguments)
    assert isinstance(refused.value, ArgumentError) or not isinstance(slots, list)
    engine.cache.check()
    assert engine.cache.stats() == before
    engine.cache.free([4, 5, 6, 7])


@pytest.mark.parametrize(
    ("tokens", "slots"), [([8, 8, 9, 9], [4]), ([8, 8], [4, 5]), ([8], [4, 5]), ([8, 8], []), ([], [4])]
)
def test_one_slot_a_page_and_one_for_a_partial_page(
    engine: Engine, tokens: list[int], slots: list[int]
) -> None:
    request = engine.run(EIGHT)
    engine.cache.allocate(4)
    before = engine.cache.stats()
    with pytest.raises(ArgumentError, match=r"^slots: "):
        engine.cache.insert(request.hit, tokens, slots)
    engine.cache.check()
    assert engine.cache.stats() == before
    assert engine.cache.insert(request.hit, [8, 8, 9], [4, 5]).length == 10


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", 2**70, float("nan")])
@pytest.mark.parametrize("argument", ["limit", "pages-to-allocate", "pages-to-evict"])
@pytest.mark.usefixtures("unchanged")
def test_numbers_that_are_refused(engine: Engine, argument: str, value: Any) -> None:
    calls = {
        "limit": lambda: engine.cache.match_prefix(EIGHT, limit=value),
        "pages-to-allocate": lambda: engine.cache.allocate(value),
        "pages-to-evict": lambda: engine.cache.evict(value),
    }
    with pytest.raises(ArgumentError, match=rf"^{argument.split('-')[0]}: "):
        calls[argument]()


@pytest.mark.usefixtures("unchanged")
def test_unknown_tiers_are_refused(engine: Engine) -> None:
    for tier in ("disk", "", None, 0, "Device"):
        with pytest.raises(ArgumentError, match=r"^tier: "):
            engine.cache.evict(1, tier=tier)  # type: ignore[arg-type]


@pytest.mark.usefixtures("unchanged")
def test_the_wrong_kind_of_argument_is_refused(engine: Engine) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("namespace", lambda: engine.cache.match_prefix(EIGHT, "tenant")),  # type: ignore[arg-type]
        ("after", lambda: engine.cache.match_prefix(EIGHT, after=3)),  # type: ignore[arg-type]
        ("at", lambda: engine.cache.match_prefix(EIGHT, at="x")),  # type: ignore[arg-type]
        ("hit", lambda: engine.cache.load(["hit"])),  # type: ignore[list-item]
        ("hit", lambda: engine.cache.prefetch(None)),  # type: ignore[arg-type]
        ("limits", lambda: engine.cache.poll((1, 2))),  # type: ignore[arg-type]
        ("limits", lambda: engine.cache.poll((-1, 0, 0, 0, 0))),
        ("limits", lambda: engine.cache.poll(3)),  # type: ignore[arg-type]
    ]
    for name, call in calls:
        with pytest.raises(ArgumentError, match=f"^{name}: "):
            call()


@pytest.mark.parametrize("timeout", [float("inf"), 1e18])
def test_a_very_patient_close_closes(engine: Engine, timeout: float) -> None:
    engine.cache.close(timeout)
    with pytest.raises(Exception, match="closed"):
        engine.cache.match_prefix(EIGHT)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
@pytest.mark.parametrize("verb", ["drain", "close"])
@pytest.mark.usefixtures("unchanged")
def test_waits_that_are_refused(engine: Engine, verb: str, timeout: Any) -> None:
    with pytest.raises(REFUSED, match=r"^timeout: "):
        getattr(engine.cache, verb)(timeout)
    assert not engine.cache.closed
