"""Bytes that go to the host and back are the same, in every layout, by every way; nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device import engine, finish, stream
from pool import BLANK, EMULATED_TOO_LARGE, LAYOUTS, MHA, MLA, SMALL, Geometry, Pool

#: Run threshold, staging: by kernels alone, by the copy engine alone, staged where a page is dense.
ROUTES = {"kernel": (1 << 62, 0), "engine": (1, 0), "staged": (1 << 62, 1)}
GEOMETRIES = [*SMALL, MHA, MLA]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: g.name)
def test_pages_come_back(geometry: Geometry, layout: str, route: str) -> None:
    if geometry in EMULATED_TOO_LARGE:
        pytest.skip("too large for an emulation")
    pool = Pool(geometry, layout, 7, 6)
    threshold, stages = ROUTES[route]
    # Room for two and a half pages in each half, so that halves change.
    staging = stages * 5 * (pool.page_stride + 256)
    gpu = engine(
        geometry.layers, run=min(threshold, pool.page_stride) if stages else threshold, staging=(staging,) * 2
    )
    # Pieces that pages cross: the copy engine's runs must be cut, or the driver refuses them.
    pool.register(gpu, piece=max(8192, pool.bytes // 16 // 4096 * 4096))
    pool.randomise(1)
    before, host_before = pool.device_pages(), pool.host.clone()

    out = [(5, 0), (1, 2), (3, 5), (6, 3), (0, 4)]
    move(pool, gpu, "out", out)
    for device, host in out:
        assert torch.equal(pool.host[host], before[device]), f"slot {device} to {host}"
    assert torch.equal(pool.host[1], host_before[1]), "a host slot that nobody named was written"
    assert torch.equal(pool.device_pages(), before), "a backup wrote to the device"
    check_padding(pool)

    pool.forget()
    back = [(slot, host) for (_, host), slot in zip(out, (2, 6, 0, 4, 1), strict=True)]
    move(pool, gpu, "in", back)
    wanted = torch.full_like(before, BLANK)
    for (slot, _), (device, _) in zip(back, out, strict=True):
        wanted[slot] = before[device]
    assert torch.equal(pool.device_pages(), wanted)
    gpu.unregister(pool.slab.data_ptr())


def move(pool: Pool, gpu: Any, way: str, pages: list[tuple[int, int]]) -> None:
    gpu.fence(way, stream())
    pool.copy(gpu, way, pages, "auto")
    gpu.record_done(way, 1)
    finish(gpu, way, 1)


def check_padding(pool: Pool) -> None:
    """Between pages of page_unified."""
    if pool.layout.startswith("page_unified"):
        used = pool.geometry.page_bytes
        pages = pool.slab[: 6 * pool.page_stride].view(6, pool.page_stride)
        assert bool((pages[:, used:] == BLANK).all()), "padding was written"


def test_many_pages_need_large_parameters() -> None:
    """216 pages fit into 4 KB of kernel parameters, 3584 into 31 KB; more need several launches."""
    for count in (216, 217, 3584, 5000):
        pool = Pool(Geometry("small pages", 1, 1, 1, 1, 48), "page_unified", count, count)
        gpu = engine(run=1 << 62)
        pool.register(gpu)
        pool.randomise(count)
        pages = [(slot, count - 1 - slot) for slot in range(count)]
        pool.copy(gpu, "out", pages, "kernel")
        gpu.record_done("out", 1)
        finish(gpu, "out", 1)
        assert torch.equal(pool.host.flip(0), pool.device_pages())
        gpu.unregister(pool.slab.data_ptr())


def test_what_is_not_registered_is_refused() -> None:
    pool = Pool(SMALL[1], "page_unified", 4, 4)
    gpu = engine()
    with pytest.raises(RuntimeError, match="refused"):
        pool.copy(gpu, "in", [(0, 0)], "auto")
    pool.register(gpu)
    with pytest.raises(RuntimeError, match="refused"):
        pool.copy(gpu, "in", [(0, 1000)], "auto")
