"""Buffer-only mode as an engine sees it: what a hit says, slots of its own, a store that comes late."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH

from hicache import ArgumentError, HiCache, Host, ModelIdentity, pools

PAGE, PAGES = 2, 6
TOKENS = list(range(PAGE * PAGES))
#: Eight pages of staging: six for either way.
HOST = Host(tokens=8 * PAGE)


def made(store: Path | None, **options: Any) -> tuple[HiCache, torch.Tensor]:
    """A cache whose host is staging, and the only tensor of its device."""
    rows = torch.zeros(16 * PAGE, 1, 4)
    cache = HiCache(
        [pools.latent("kv", [rows])],
        PAGE,
        host=HOST,
        host_mode="buffer_only",
        storage=None if store is None else store.as_uri(),
        identity=ModelIdentity(model="m"),
        **(ANY_LENGTH | options),
    )
    return cache, rows


def of_page(rows: torch.Tensor, slot: int) -> torch.Tensor:
    return rows[slot * PAGE : (slot + 1) * PAGE]


def written(cache: HiCache, rows: torch.Tensor) -> None:
    """One request computes all; page `p` holds `p + 1` everywhere."""
    hit = cache.match_prefix(TOKENS)
    cache.load([hit]).wait()
    slots = cache.allocate(PAGES)
    assert slots is not None
    for page, slot in enumerate(slots.tolist()):
        of_page(rows, slot).fill_(page + 1)
    cache.insert(hit, TOKENS, slots)
    hit.release()
    assert cache.drain(10)


def test_what_a_hit_says(tmp_path: Path) -> None:
    cache, rows = made(tmp_path)
    with cache:
        written(cache, rows)
    cache, rows = made(tmp_path)
    with cache:
        hit = cache.match_prefix(TOKENS)
        assert cache.prefetch(hit)
        assert cache.drain(10)
        stats = cache.stats()
        assert (hit.device_length, hit.host_length, hit.storage_length) == (0, 12, 12)
        assert (stats["host_resident"], stats["host_staged_reads"], stats["host_free"]) == (0, 6, 2)
        cache.load([hit]).wait()
        assert (hit.length, hit.loaded_length) == (12, 12)
        assert [float(of_page(rows, slot).mean()) for slot in hit.slots.tolist()] == [1, 2, 3, 4, 5, 6]
        hit.release()
        assert cache.drain(10)
        assert cache.stats()["host_free"] == 8
        cache.check()


def test_slots_of_the_engines_own(tmp_path: Path) -> None:
    """Those that it gives are used in order; the rest comes back."""
    cache, rows = made(tmp_path)
    with cache:
        written(cache, rows)
    cache, rows = made(tmp_path, slots="engine")
    with cache:
        hit = cache.match_prefix(TOKENS)
        assert cache.prefetch(hit)
        assert cache.drain(10)
        given = torch.tensor([7, 3, 11, 0, 5, 2, 9, 10])
        load = cache.load([hit], given)
        load.wait()
        assert hit.slots.tolist() == given[:6].tolist()
        assert load.unused.tolist() == [9, 10]
        assert [float(of_page(rows, slot).mean()) for slot in hit.slots.tolist()] == [1, 2, 3, 4, 5, 6]
        hit.release()
        assert cache.drain(10)
        cache.check()


def test_fewer_slots_than_pages(tmp_path: Path) -> None:
    cache, rows = made(tmp_path)
    with cache:
        written(cache, rows)
    cache, rows = made(tmp_path, slots="engine")
    with cache:
        hit = cache.match_prefix(TOKENS)
        cache.prefetch(hit)
        assert cache.drain(10)
        cache.load([hit], torch.tensor([4, 1])).wait()
        assert (hit.length, hit.slots.tolist()) == (4, [4, 1])
        assert "the device is full" in str(cache.explain(hit))
        assert cache.drain(10)
        assert cache.stats()["host_staged_reads"] == 0
        hit.release()
        cache.check()


def test_a_store_that_comes_late(tmp_path: Path) -> None:
    cache, rows = made(None)
    with cache:
        written(cache, rows)
        hit = cache.match_prefix(TOKENS)
        assert not cache.prefetch(hit)
        hit.release()
        cache.attach_store(tmp_path.as_uri())
        cache.write_out(10)
        assert cache.stats()["stored_pages"] == PAGES
        cache.evict(16)
        hit = cache.match_prefix(TOKENS)
        assert cache.prefetch(hit)
        assert cache.drain(10)
        assert hit.storage_length == 12
        hit.release()
        assert cache.stats()["host_staged_reads"] == 0
        cache.check()


def test_warming_the_host_is_refused(tmp_path: Path) -> None:
    cache, rows = made(tmp_path)
    with cache:
        written(cache, rows)
        cache.evict(16)
        with pytest.raises(ArgumentError, match="device: nothing stays on the host"):
            cache.warm(TOKENS)
        warm = cache.warm(TOKENS, device=True)
        assert warm is not None
        end = time.monotonic() + 10
        while not warm.done and time.monotonic() < end:
            cache.poll()
        assert cache.drain(10)
        assert (warm.done, warm.length, warm.device_length) == (True, 12, 12)
        cache.check()
