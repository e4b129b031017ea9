"""Addresses of every layout against NumPy's: an array with its axes, transposed to a common order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import ArgumentError, _hicache

LAYERS, SLOTS = 3, 5


def expected(layout: str, page: int, heads: int, groups: int, size: int, roles: int) -> np.ndarray[Any, Any]:
    """Byte addresses as an array (layer, role, slot, row, head), by transposing the layout's own array."""
    inner = heads // groups
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "layer_first": ("rlnth", (roles, LAYERS, SLOTS, page, heads)),
        "page_first": ("rntlh", (roles, SLOTS, page, LAYERS, heads)),
        "page_first_direct": ("rnlth", (roles, SLOTS, LAYERS, page, heads)),
        "page_head": ("rnhtl", (roles, SLOTS, heads, page, LAYERS)),
        "page_unified": ("nglrth", (SLOTS, groups, LAYERS, roles, page, inner)),
    }
    order, shape = shapes[layout]
    at = np.arange(math.prod(shape)).reshape(shape) * size
    if layout == "page_unified":
        payload = math.prod(shape[1:]) * size
        at = at + np.arange(SLOTS).reshape(-1, 1, 1, 1, 1, 1) * (-payload % 32)
        # (n, g, l, r, t, h) → (l, r, n, t, g, h), whose last two are the heads.
        return at.transpose(2, 3, 0, 4, 1, 5).reshape(LAYERS, roles, SLOTS, page, heads)
    return at.transpose([order.index(axis) for axis in "lrnth"])


@pytest.mark.parametrize(
    "layout", ["layer_first", "page_first", "page_first_direct", "page_head", "page_unified"]
)
@settings(max_examples=40, deadline=None)
@given(
    page=st.integers(1, 7),
    groups=st.integers(1, 3),
    inner=st.integers(1, 3),
    size=st.integers(1, 70),
    roles=st.integers(1, 2),
)
def test_addresses_are_numpys(layout: str, page: int, groups: int, inner: int, size: int, roles: int) -> None:
    heads = groups * inner
    planes = [(layer, role, heads * size) for layer in range(LAYERS) for role in range(roles)]
    pool = ("kv", planes, (heads, groups), False, "", 0)
    got = _hicache.Layout(layout, pool, page, SLOTS)
    split = groups if layout == "page_unified" else 1
    want = expected(layout, page, heads, split, size, roles)
    for at, address in np.ndenumerate(want):
        layer, role, slot, row, head = at
        assert got.address(layer, role, slot, row, head) == address, (layout, at)
    # A page's runs, one after the other, are its elements in the order (layer, role, row, head).
    for slot in range(SLOTS):
        starts = want[:, :, slot].reshape(-1, 1) + np.arange(size)
        runs = np.concatenate([np.arange(start, start + length) for start, length in got.runs(slot)])
        assert np.array_equal(starts.reshape(-1), runs)
    assert got.page_bytes == math.prod(want.shape) // SLOTS * size
    assert sum(length for _, length in got.pieces(2**30)) == got.bytes


def test_rows_of_pages_have_one_row() -> None:
    pool = ("index", [(0, 0, 24), (1, 0, 24)], (1, 1), True, "", 0)
    layout = _hicache.Layout("page_first_direct", pool, 64, SLOTS)
    # (N, L, 1, bytes)
    want = np.arange(SLOTS * 2).reshape(SLOTS, 2) * 24
    assert [
        [layout.address(layer, 0, slot, 0, 0) for layer in (0, 1)] for slot in range(SLOTS)
    ] == want.tolist()
    with pytest.raises(ArgumentError, match=r"^layout: "):
        layout.address(0, 0, 0, 1, 0)


def test_what_is_not_there_has_no_address() -> None:
    pool = ("kv", [(0, 0, 8)], (2, 2), False, "", 0)
    layout = _hicache.Layout("page_unified", pool, 4, SLOTS)
    assert layout.window(1, 1, 0, 1) == (1 * 32 + 16, 16)
    for wrong in [(1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, SLOTS, 0, 0), (0, 0, 0, 4, 0), (0, 0, 0, 0, 2)]:
        with pytest.raises(ArgumentError, match=r"^layout: "):
            layout.address(*wrong)
    with pytest.raises(ArgumentError, match=r"^layout: "):
        layout.window(0, 2, 0, 1)
    with pytest.raises(ArgumentError, match=r"^layout: "):
        layout.runs(SLOTS)
