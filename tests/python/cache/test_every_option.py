"""Whatever the options: what one cache stores, a fresh one with the same options finds, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH

from hicache import HiCache, Host, ModelIdentity, Namespace, pools

LAYOUTS = ("page_unified", "layer_first", "page_first", "page_first_direct", "page_head")
WAYS = (*product(("cache",), LAYOUTS), ("buffer_only", "page_unified"), ("buffer_only", "page_head"))
STORES = ("file", "slab", "python")
SPACES = (None, Namespace(salt="s"), Namespace(extra_key="e", adapter="a", salt="s"))
PLACES = (((), ()), ((0,), (1,)), ((1, 0), (2, 2)))
PAGES = 5


def url(kind: str, where: Path) -> str:
    if kind == "python":
        return f"kept_pages:KeptPages?where={where}"
    options = "?size=64MiB&extent=1MiB&free=0&threads=2" if kind == "slab" else ""
    return f"{kind}://{where}{options}"


class Rows:
    """A cache over a few tensors whose pages say which prefix they are of."""

    def __init__(self, page_size: int, keys: str, **options: Any) -> None:
        self.page_size, self.more = page_size, int(keys == "bigrams")
        self.tensors = [torch.zeros(16 * page_size, 2, 3) for _ in range(4)]
        pool = pools.mha("kv", self.tensors[:2], self.tensors[2:])
        self.cache = HiCache([pool], page_size, keys=keys, **(ANY_LENGTH | options))

    def pages(self, tokens: list[int], slots: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of each page in each tensor: its rows, and what they should hold."""
        for page, slot in enumerate(slots.tolist()):
            prefix = tokens[: (page + 1) * self.page_size + self.more]
            for at, tensor in enumerate(self.tensors):
                rows = tensor[slot * self.page_size : (slot + 1) * self.page_size]
                seed = hashlib.sha256(repr((prefix, at)).encode()).digest()
                first = int.from_bytes(seed[:4], "little") % 1_000_003
                yield rows, torch.arange(rows.numel()).view_as(rows) + float(first)

    def serve(self, tokens: list[int], space: Namespace | None) -> int:
        """A whole request; what it found, every byte of which is looked at."""
        cache = self.cache
        hit = cache.match_prefix(tokens, space)
        cache.prefetch(hit)
        assert cache.drain(10)
        cache.load([hit]).wait()
        found = hit.length
        assert all(torch.equal(rows, expected) for rows, expected in self.pages(tokens, hit.slots))
        slots = cache.allocate(PAGES - found // self.page_size)
        assert slots is not None
        for rows, expected in self.pages(tokens, torch.cat([hit.slots, slots])):
            rows.copy_(expected)
        cache.insert(hit, tokens[found:], slots)
        hit.release()
        assert cache.drain(10)
        return found


@pytest.mark.parametrize(("mode", "layout"), WAYS)
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("keys", ["tokens", "bigrams"])
def test_what_is_stored_is_found(tmp_path: Path, mode: str, keys: str, kind: str, layout: str) -> None:
    cases = list(product((1, 3), SPACES, PLACES))
    for again in (False, True):
        for at, (page_size, space, (rank, world)) in enumerate(cases):
            identity = ModelIdentity(model="m", rank=rank, world=world)
            # All cases share one directory, in which each must find its own.
            host, storage = Host(tokens=16 * page_size, layout=layout), url(kind, tmp_path / "store")
            options = {"host": host, "host_mode": mode, "storage": storage, "identity": identity}
            rows = Rows(page_size, keys, **options)
            tokens = list(range(PAGES * page_size + rows.more))
            expected = PAGES * page_size if again else 0
            assert rows.serve(tokens, space) == expected, cases[at]
            stats = rows.cache.stats()
            name = "prefetched_pages" if again else "stored_pages"
            assert (stats[name], stats["corrupt_pages"]) == (PAGES, 0)
            rows.cache.close()
