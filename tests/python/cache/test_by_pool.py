"""Slots by pool: an array, or a mapping that names the pool they belong to."""

from __future__ import annotations

import pytest
import torch

from hicache import ArgumentError, HiCache, pools


def test_slots_may_be_passed_by_pool() -> None:
    rows = [torch.zeros(8, 3)]
    with HiCache([pools.mha("kv", rows, rows), pools.latent("draft", rows)], page_size=2) as cache:
        hit = cache.match_prefix([1, 2, 3, 4])
        cache.load([hit])
        slots = cache.allocate(3)
        assert slots is not None
        done = cache.insert(hit, [1, 2, 3, 4], {"kv": slots[:2]})
        assert done.slots.tolist() == slots[:2].tolist()
        for wrong in ({"draft": slots[2:]}, {}, {"kv": slots[2:], "draft": slots[2:]}):
            with pytest.raises(ArgumentError, match=r"^slots: .*'kv'"):
                cache.free(wrong)
        cache.free({"kv": slots[2:]})
        assert cache.stats()["device_free"] == 2
        hit.release()
