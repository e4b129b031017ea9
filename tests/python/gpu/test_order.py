"""Who waits for whom: a model reads layers while later ones arrive; backups see what was written before."""

from __future__ import annotations

import threading

import pytest
import torch
from device import DEVICE, EMULATED, LAYER_SETS, engine, finish, stream, synchronize, wait_layer
from pool import Geometry, Pool

SHAPE = Geometry("a small model's", 3 if EMULATED else 24, 2, 16, 4, 64 if EMULATED else 256)


class Model(torch.nn.Module):
    """Attention over the pool's pages; `before` is called just before a layer reads the pool."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))
        self.to(DEVICE)

    @torch.no_grad()
    def forward(self, x, pool, slots, before):
        g = pool.geometry
        rows = (torch.tensor(slots)[:, None] * g.page + torch.arange(g.page)).flatten().to(DEVICE)
        for layer, mix in enumerate(self.mix):
            x = mix(x)
            before(layer)
            k, v = (pool.device[layer * 2 + q][rows].flatten(1).float() / 255 for q in (0, 1))
            x = x + torch.softmax(x @ k.T, dim=-1) @ v
        return x


@pytest.mark.parametrize("layout", ["page_unified", "page_first"])
def test_a_model_computes_while_layers_arrive(layout: str) -> None:
    pool = Pool(SHAPE, layout, 40, 40)
    gpu = engine(SHAPE.layers, run=16 << 10)
    pool.register(gpu)
    model = Model(SHAPE.layers, SHAPE.row)
    x = torch.ones(8, SHAPE.row, device=DEVICE)
    backed_up, expected = [], []
    for ticket, first in enumerate((0, 20), start=1):
        pool.randomise(first)
        slots = list(range(first, first + 16))
        expected.append(model(x, pool, slots, lambda _: None))
        gpu.fence("out", stream())
        pool.copy(gpu, "out", [(slot, slot) for slot in slots], "auto")
        gpu.record_done("out", ticket)
        finish(gpu, "out", ticket)
        backed_up.append(slots)
    assert not torch.equal(*expected)
    for ticket in range(1, 3 if EMULATED else 31):
        which = ticket % 2
        pool.forget()  # on torch's stream: the load must come after it
        gpu.fence("in", stream())
        for layer in range(SHAPE.layers):
            pages = [(slot, slot) for slot in backed_up[which]]
            pool.copy(gpu, "in", pages, "auto", range(layer, layer + 1))
            gpu.record_layer(ticket % LAYER_SETS, layer)
        gpu.record_done("in", ticket)
        got = model(
            x, pool, backed_up[which], lambda layer, at=ticket: wait_layer(gpu, at % LAYER_SETS, layer)
        )
        assert torch.equal(got, expected[which]), f"load {ticket}: the model read something else"
    gpu.unregister(pool.slab.data_ptr())


def test_a_backup_waits_for_what_writes_its_pages() -> None:
    pool = Pool(SHAPE, "page_unified", 8, 8)
    gpu = engine(SHAPE.layers)
    pool.register(gpu)
    size = 64 if EMULATED else 4096
    busy = torch.rand(size, size, device=DEVICE)
    for ticket in range(1, 6):
        for _ in range(20):  # some milliseconds of work, then the write
            busy = torch.nn.functional.normalize(busy @ busy)
        pool.randomise(ticket)
        gpu.fence("out", stream())
        pool.copy(gpu, "out", [(3, 5)], "auto")
        gpu.record_done("out", ticket)
        # The page's next owner writes it: after the backup, without anybody waiting on the CPU.
        gpu.wait_done("out", ticket, stream())
        finish_if_emulated(gpu, ticket)
        wanted = pool.device_pages()[3]
        pool.forget()
        finish(gpu, "out", ticket)
        assert torch.equal(pool.host[5], wanted)
    gpu.unregister(pool.slab.data_ptr())


def finish_if_emulated(gpu, ticket: int) -> None:
    if EMULATED:
        finish(gpu, "out", ticket)


@pytest.mark.skipif(EMULATED, reason="graphs are the GPU's")
def test_graphs_stay_apart() -> None:
    pool = Pool(SHAPE, "page_unified", 4, 4)
    gpu = engine(SHAPE.layers)
    pool.register(gpu)
    pool.copy(gpu, "in", [(0, 0)], "auto")
    gpu.record_done("in", 1)
    x = torch.ones(64, device=DEVICE)
    graph, asked, stop = torch.cuda.CUDAGraph(), [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            asked.append(gpu.is_done("in", 1))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with torch.cuda.graph(graph):
            x += 1
            with pytest.raises(RuntimeError, match="captured"):
                gpu.fence("in", stream())
            with pytest.raises(RuntimeError, match="captured"):
                gpu.wait_layer(0, 0, stream())
    finally:
        stop.set()
        thread.join()
    graph.replay()
    synchronize()
    assert asked
    assert float(x[0]) == 2
    gpu.unregister(pool.slab.data_ptr())
