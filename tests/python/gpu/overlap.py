"""A load beside a model, layer by layer: what it adds to the time that the model needs anyway.

The model is attention over the loaded pages and two matrix products a layer, with random weights. Three times
are taken of the same work: the load alone, the model alone, and both with a wait before each layer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from device import DEVICE, EMULATED, LAYER_SETS, engine, finish, stream, synchronize, wait_layer
from pool import MHA, Geometry, Pool

SHAPE = Geometry("tiny", 2, 2, 4, 2, 64) if EMULATED else MHA
PAGES = 3 if EMULATED else 64  # 4,096 tokens: about one GB
TOKENS = 8 if EMULATED else 2048
WIDTH = 64 if EMULATED else 4096


class Model:
    """`WIDTH` wide; reads K and V of a layer as the rows of its pages."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        dtype = torch.float32 if EMULATED else torch.bfloat16
        new = lambda *shape: torch.randn(*shape, device=DEVICE, dtype=dtype) / shape[0] ** 0.5  # noqa: E731
        self.up, self.down = new(WIDTH, 4 * WIDTH), new(4 * WIDTH, WIDTH)
        self.query = new(WIDTH, SHAPE.heads * SHAPE.head // dtype.itemsize)
        self.x = torch.ones(TOKENS, WIDTH, device=DEVICE, dtype=dtype)
        self.dtype = dtype

    @torch.no_grad()
    def run(self, pool: Pool, before: Callable[[int], None]) -> torch.Tensor:
        x = self.x
        for layer in range(SHAPE.layers):
            x = x + torch.relu(x @ self.up) @ self.down * 0.1
            before(layer)
            k, v = (pool.device[2 * layer + q].flatten(1).view(self.dtype) for q in (0, 1))
            scores = torch.softmax((x @ self.query) @ k.T * 0.01, dim=-1)
            x = x + (scores @ v) @ self.query.T * 0.1
            x = x / x.norm(dim=-1, keepdim=True)
        return x


def load(pool: Pool, gpu: Any, ticket: int) -> None:
    gpu.fence("in", stream())
    pages = [(slot, slot) for slot in range(PAGES)]
    for layer in range(SHAPE.layers):
        pool.copy(gpu, "in", pages, "auto", range(layer, layer + 1))
        gpu.record_layer(ticket % LAYER_SETS, layer)
    gpu.record_done("in", ticket)


def measure(note: Callable[..., None]) -> None:
    pool, model = Pool(SHAPE, "page_unified", PAGES, PAGES), Model()
    gpu = engine(SHAPE.layers, run=1 if EMULATED else 64 << 10)
    pool.register(gpu)
    fill(pool)
    wanted = model.run(pool, lambda _: None)
    fill_host(pool, gpu)
    times: dict[str, list[float]] = {"load": [], "model": [], "both": [], "enqueue": []}
    for ticket in range(1, 3 if EMULATED else 8):
        synchronize()
        start = time.perf_counter()
        load(pool, gpu, 3 * ticket)
        times["enqueue"].append(time.perf_counter() - start)
        times["load"].append(finish(gpu, "in", 3 * ticket) - start)
        start = time.perf_counter()
        model.run(pool, lambda _: None)
        synchronize()
        times["model"].append(time.perf_counter() - start)
        pool.forget()
        synchronize()
        start = time.perf_counter()
        load(pool, gpu, 3 * ticket + 1)
        got = model.run(pool, lambda layer, at=3 * ticket + 1: wait_layer(gpu, at % LAYER_SETS, layer))
        synchronize()
        times["both"].append(time.perf_counter() - start)
        if not torch.equal(got, wanted):
            raise AssertionError("the model read other bytes while they arrived")
    gpu.unregister(pool.slab.data_ptr())
    report(note, {name: 1000 * statistics.median(each[1:]) for name, each in times.items()})


def report(note: Callable[..., None], ms: dict[str, float]) -> None:
    where = f"{PAGES} pages of {SHAPE.name}"
    note(f"overlap, {where}: enqueueing a load of all layers", ms["enqueue"], "ms")
    for name in ("load", "model", "both"):
        note(f"overlap, {where}: {name}", ms[name], "ms")
    hidden = (ms["load"] + ms["model"] - ms["both"]) / min(ms["load"], ms["model"])
    note("overlap: hidden, of the shorter of load and model", 100 * hidden, "%")


def fill(pool: Pool) -> None:
    """Small numbers of the model's type, so that nothing overflows."""
    generator = torch.Generator(DEVICE).manual_seed(3)
    dtype = torch.float32 if EMULATED else torch.bfloat16
    for plane in pool.device:
        values = plane.view(dtype)
        values.copy_(torch.rand(values.shape, device=DEVICE, generator=generator))


def fill_host(pool: Pool, gpu: Any) -> None:
    gpu.fence("out", stream())
    pool.copy(gpu, "out", [(slot, slot) for slot in range(PAGES)], "auto")
    gpu.record_done("out", 1)
    finish(gpu, "out", 1)
