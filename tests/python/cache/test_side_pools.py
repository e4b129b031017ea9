"""Pools beside the KV, an index of sparse attention or a draft's: they go wherever their pages go, byte for
byte, or the hit ends where one is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH, stamp, store_files

from hicache import HiCache, Host, ModelIdentity, Namespace, pools

P, PAGES = 2, 16
TOKENS = list(range(12))
LAYOUTS = ("page_unified", "layer_first", "page_first", "page_first_direct", "page_head")


class Sides:
    """KV of two layers, an index with rows of pages, one with rows of tokens, and a draft."""

    def __init__(self, layout: str, storage: Any = None) -> None:
        def rows(count: int, *shape: int) -> list[torch.Tensor]:
            return [torch.zeros(count, *shape, dtype=torch.uint8) for _ in range(2)]

        kv, index, keys, draft = (
            rows(P * PAGES, 4, 8), rows(PAGES, 24), rows(P * PAGES, 10), rows(P * PAGES, 4, 3)
        )  # fmt: skip
        self.planes = {
            f"{name}{layer}": tensor.view(PAGES, -1)
            for name, tensors in {"kv": kv, "index": index, "keys": keys, "draft": draft}.items()
            for layer, tensor in enumerate(tensors)
        }
        declared = [
            pools.mha("kv", kv[:1], kv[1:]),
            pools.pages("index", index),
            pools.latent("keys", keys),
            pools.mha("draft", draft[:1], draft[1:], follows="kv"),
        ]
        self.cache = HiCache(
            declared,
            P,
            host=Host(tokens=64, layout=layout),
            storage=storage,
            identity=ModelIdentity(model="sides"),
            **ANY_LENGTH,
        )

    def page(self, number: int, name: str) -> torch.Tensor:
        size = self.planes[name].shape[1]
        return stamp(Namespace(), tuple(TOKENS[: (number + 1) * P]), name, size)

    def compute(self) -> None:
        hit = self.cache.match_prefix(TOKENS)
        self.cache.load([hit]).wait()
        slots = self.cache.allocate(len(TOKENS) // P)
        assert slots is not None
        for number, slot in enumerate(slots.tolist()):
            for name, plane in self.planes.items():
                plane[slot] = self.page(number, name)
        self.cache.insert(hit, TOKENS, slots)
        hit.release()
        assert self.cache.drain(10)

    def found(self) -> int:
        """Tokens that hit in any tier; every byte of every pool is looked at."""
        for plane in self.planes.values():
            plane.fill_(0xEE)
        hit = self.cache.match_prefix(TOKENS)
        self.cache.prefetch(hit)
        assert self.cache.drain(10)
        self.cache.load([hit]).wait()
        for number, slot in enumerate(hit.slots.tolist()):
            for name, plane in self.planes.items():
                assert torch.equal(plane[slot], self.page(number, name)), f"page {number} of {name}"
        length = hit.length
        hit.release()
        assert self.cache.drain(10)
        return length


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "url",
    [lambda place: f"file://{place}", lambda place: f"slab://{place}/s?size=64MiB&extent=1MiB&free=0"],
    ids=["file", "slab"],
)
def test_they_travel_with_their_pages(tmp_path: Path, layout: str, url: Callable[[Path], str]) -> None:
    sides = Sides(layout, url(tmp_path))
    sides.compute()
    sides.cache.evict(99)
    assert sides.found() == len(TOKENS), "from the host"
    assert sides.cache.stats()["hit_host_tokens"] == len(TOKENS)
    sides.cache.evict(99)
    sides.cache.evict(99, "host")
    assert sides.found() == len(TOKENS), "from the store"
    sides.cache.close()
    again = Sides(LAYOUTS[layout == LAYOUTS[0]], url(tmp_path))
    assert again.found() == len(TOKENS), "in another cache"
    assert again.cache.stats()["hit_storage_tokens"] == len(TOKENS)
    again.cache.close()


@pytest.mark.parametrize("pool", ["kv0", "index1", "keys0", "draft1"])
def test_damage_of_any_of_them_ends_the_hit_for_all(tmp_path: Path, pool: str) -> None:
    """One bit of one pool's bytes of the third page."""
    sides = Sides("page_unified", f"file://{tmp_path}")
    sides.compute()
    sides.cache.close()
    wanted = sides.page(2, pool).numpy().tobytes()[:6]
    (file,) = [path for path in store_files(tmp_path) if wanted in path.read_bytes()]
    damaged = bytearray(file.read_bytes())
    damaged[damaged.index(wanted) + 3] ^= 16
    file.write_bytes(damaged)
    again = Sides("page_unified", f"file://{tmp_path}")
    assert again.found() == 2 * P
    assert again.cache.stats()["corrupt_pages"] == 1
    again.cache.close()
