"""What is refused by name although it looks like integers, times or hits; and integers of foreign kinds."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import Engine, make

from hicache import ArgumentError, HiCache, pools

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them; EIGHT is cached, and nothing is under way."""
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


def unaligned(dtype: type) -> Any:
    """Eight integers that begin one byte behind where they could."""
    size = 8 * np.dtype(dtype).itemsize
    memory = np.zeros(size + 16, np.uint8)
    first = 1 + -memory.ctypes.data % 8
    values = memory[first : first + size].view(dtype)
    values[:] = EIGHT
    assert values.ctypes.data % 4
    return values


def lazy() -> torch.Tensor:
    """Integers whose sign is still to be turned."""
    return torch._neg_view(-torch.tensor(EIGHT))


INTEGERS = {
    "sparse": (lambda: torch.tensor(EIGHT).to_sparse(), "dense tensor, got a sparse_coo"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.tensor(EIGHT)] * 2, layout=torch.jagged),
        "dense tensor, got a nested",
    ),
    "negative-bit": (lazy, "lazy view"),
    "complex-conjugate": (
        lambda: torch.zeros(2, dtype=torch.complex64).conj(),
        "int32 or int64, got torch.complex64",
    ),
    "unaligned-int32": (lambda: unaligned(np.int32), "aligned to 4 bytes"),
    "unaligned-int64": (lambda: unaligned(np.int64), "aligned to 8 bytes"),
    "unaligned-int32-memory": (lambda: memoryview(unaligned(np.int32)), "aligned to 4 bytes"),
    "uint32-array": (lambda: np.array(EIGHT, np.uint32), "int32 or int64, got uint32"),
    "float64-array": (lambda: np.array(EIGHT, np.float64), "int32 or int64, got float64"),
    "dates": (lambda: np.array(EIGHT, "datetime64[s]"), "int32 or int64, got datetime64"),
    "0d-int32-array": (lambda: np.array(3, np.int32), "one dimension, got 0"),
    "0d-int64-array": (lambda: np.array(3), "one dimension, got 0"),
    "2d-array": (lambda: np.zeros((2, 2), np.int32), "one dimension, got 2"),
    "big-endian-array": (lambda: np.array(EIGHT, ">i8"), "byte order"),
    "uint32-ctypes": (lambda: (ctypes.c_uint32 * 8)(*EIGHT), "int32 or int64, got c_uint"),
    "int16-ctypes": (lambda: (ctypes.c_int16 * 8)(*EIGHT), "int32 or int64, got c_short"),
    "double-ctypes": (lambda: (ctypes.c_double * 8)(*EIGHT), "int32 or int64, got c_double"),
    "pointers-ctypes": (lambda: (ctypes.c_void_p * 8)(*EIGHT), "int32 or int64, got c_void_p"),
    "short-array": (lambda: array("h", EIGHT), "int32 or int64, got array of 'h'"),
    "uint32-memory": (
        lambda: memoryview(np.array(EIGHT, np.uint32)),
        "int32 or int64, got memoryview of 'I'",
    ),
    "bytes": (lambda: bytes(8), "int32 or int64, got bytes"),
    "none": (lambda: None, "int32 or int64, got NoneType"),
}


@pytest.mark.parametrize(("integers", "reason"), INTEGERS.values(), ids=INTEGERS)
@pytest.mark.usefixtures("unchanged")
def test_what_is_wrong_with_integers_is_said(engine: Engine, integers: Any, reason: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^tokens: .*{reason}"):
        engine.cache.match_prefix(integers())
    with pytest.raises(ArgumentError, match=rf"^slots: .*{reason}"):
        engine.cache.free(integers())


@pytest.mark.parametrize("kind", [ctypes.c_int32, ctypes.c_int64, ctypes.c_longlong, ctypes.c_int])
def test_arrays_of_ctypes_are_integers(engine: Engine, kind: Any) -> None:
    assert engine.cache.match_prefix((kind * 8)(*EIGHT)).device_length == 8
    slots = engine.cache.allocate(3)
    assert slots is not None
    engine.cache.free((kind * 3)(*slots.tolist()))
    engine.check()


@pytest.mark.parametrize(
    "at",
    [10**400, -(10**400), 10**5000, 1e300, -1e300, 1.1e11, float("inf"), float("nan"), True, "3", 1j],
    ids=[
        "10^400",
        "-10^400",
        "10^5000",
        "1e300",
        "-1e300",
        "1.1e11",
        "inf",
        "nan",
        "true",
        "text",
        "complex",
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_times_that_no_clock_shows_are_refused(engine: Engine, at: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^at: need a time in seconds") as refused:
        engine.cache.match_prefix(EIGHT, at=at)
    assert len(str(refused.value)) < 200
    with pytest.raises(ArgumentError, match=r"^at: need a time in seconds"):
        engine.cache.poll(at=at)


@pytest.mark.parametrize("at", [0, 1e11, 1.8e9, np.float64(3), np.float32(3), np.int64(3)])
def test_times_that_are_taken(engine: Engine, at: Any) -> None:
    assert engine.cache.match_prefix(EIGHT, at=at).device_length == 8
    engine.cache.poll(at=at)


def test_one_hit_is_no_sequence_of_hits(engine: Engine) -> None:
    hit = engine.cache.match_prefix(EIGHT)
    for hits in (hit, None, 3):
        with pytest.raises(ArgumentError, match=r"^hits: need a sequence of hits, got"):
            engine.cache.load(hits)  # type: ignore[arg-type]
    engine.cache.load([hit])
    hit.release()
    engine.check()


@pytest.mark.parametrize("kind", ["sparse", "nested", "negative-bit"])
def test_pools_are_dense(kind: str) -> None:
    plane = torch.zeros(32, 4)
    wrong = {
        "sparse": plane.to_sparse(),
        "nested": torch.nested.nested_tensor([plane, plane], layout=torch.jagged),
        "negative-bit": torch._neg_view(plane),
    }[kind]
    with pytest.raises(ArgumentError, match=r"^kv\.k_buffers\[1\]: need a .*tensor"):
        HiCache([pools.mha("kv", [plane, wrong], [plane, plane])], 2)
