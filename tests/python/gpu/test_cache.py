"""A whole cache over pools on the GPU, as the README shows it: what comes back is what was computed."""

from __future__ import annotations

import pytest
import torch
from device import DEVICE, EMULATED, stream

from hicache import HiCache, Host, build, cache, pools
from hicache.stream import Stream

PAGE, LAYERS, SLOTS = 16, 6, 24


@pytest.fixture(autouse=True)
def _rehearse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulating, tensors are on the CPU, which has no stream: it asks the GPU's copier, and waits itself."""
    if not EMULATED:
        return

    def order(self: Stream, load, layer: int) -> bool:
        load.order(layer, stream())
        return False

    for module in (build, cache):
        monkeypatch.setattr(module, "gpu", lambda _: 0)
    monkeypatch.setattr(Stream, "_current", lambda _: stream())
    monkeypatch.setattr(Stream, "order", order)


def rows(slots: torch.Tensor) -> torch.Tensor:
    return (slots.long()[:, None] * PAGE + torch.arange(PAGE)).flatten().to(DEVICE)


@pytest.mark.parametrize(
    "layout", ["layer_first", "page_first", "page_first_direct", "page_head", "page_unified"]
)
def test_prompts_come_back(layout: str) -> None:
    k = [torch.zeros(SLOTS * PAGE, 2, 64, device=DEVICE) for _ in range(LAYERS)]
    v = [torch.zeros(SLOTS * PAGE, 2, 64, device=DEVICE) for _ in range(LAYERS)]
    try:
        store = HiCache([pools.mha("kv", k, v)], page_size=PAGE, host=Host(ratio=8.0, layout=layout))
    except ValueError as error:
        pytest.skip(f"this cache has no such layout: {error}")
    with store:
        computed = {}
        for prompt in range(6):
            tokens = torch.arange(160) + 1000 * prompt
            hit = store.match_prefix(tokens, limit=160)
            load = store.load([hit])
            slots = store.allocate(10)
            assert slots is not None
            for layer in range(LAYERS):
                load.wait_layer(layer)
                for tensor in (k[layer], v[layer]):
                    tensor[rows(slots)] = torch.randn(160, 2, 64, device=DEVICE)
            computed[prompt] = [tensor[rows(slots)].clone() for tensor in (*k, *v)]
            done = store.insert(hit, tokens, slots)
            assert len(done.duplicates) == 0
            hit.release()
            assert store.drain(30)
        for prompt in (0, 5, 2, 0):
            tokens = torch.arange(160) + 1000 * prompt
            hit = store.match_prefix(tokens, limit=160)
            load = store.load([hit])
            assert hit.length == 160
            got = [None] * (2 * LAYERS)
            for layer in range(LAYERS):
                load.wait_layer(layer)
                got[layer], got[LAYERS + layer] = (t[layer][rows(hit.slots)] for t in (k, v))
            assert all(torch.equal(a, b) for a, b in zip(got, computed[prompt], strict=True)), (
                f"prompt {prompt}"
            )
            hit.release()
            assert store.drain(30)
            store.evict(SLOTS)
        assert store.stats()["hit_device_tokens"] + 1 > 0
        store.check()
