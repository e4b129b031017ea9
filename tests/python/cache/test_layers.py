"""Which layers a load brings first, and how a pool's are waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch

from hicache import ArgumentError, HiCache, Host, pools
from hicache.hit import Load
from hicache.pools import Pool
from hicache.stream import Stream


def rows(layers: int) -> list[torch.Tensor]:
    return [torch.zeros(16, 2, 3) for _ in range(layers)]


def numbers(pool: Pool) -> list[int]:
    return [plane.layer for plane in pool.planes]


@dataclass
class Told:
    """What a load's core was asked to wait for: layers in all."""

    layers: list[int] = field(default_factory=list)

    def wait(self, layers: int, timeout: float) -> None:
        self.layers.append(layers)


def load_of(*of: Pool) -> tuple[Load, Told]:
    told = Told()
    return Load(cast("Any", told), torch.empty(0), 1.0, Stream(None), of), told


def test_layers_are_numbered_from_where_one_says() -> None:
    kv = pools.mha("kv", rows(3), rows(3))
    assert numbers(kv) == [0, 0, 1, 1, 2, 2]
    later = pools.numbered(kv, 5)
    assert numbers(later) == [5, 5, 6, 6, 7, 7]
    assert later.tensors == kv.tensors
    assert numbers(pools.numbered(later, 0)) == numbers(kv)
    window, full = pools.Window((*rows(1), *rows(1)), 8), pools.Full((*rows(1), *rows(1)))
    hybrid = pools.hybrid("kv", [full, window, full])
    assert numbers(pools.numbered(hybrid[0], 1)) == [1, 1, 3, 3], "gaps stay"


def test_a_pool_is_waited_for_up_to_its_last_layer() -> None:
    draft = pools.mha("draft", rows(2), rows(2))
    load, told = load_of(pools.numbered(pools.mha("kv", rows(4), rows(4)), 2), draft)
    load.wait_pool("draft")
    load.wait_pool("kv")
    assert told.layers == [2, 6]
    nothing, told = load_of(Pool("kv", (), 16, tensors=()))
    nothing.wait_pool("kv")
    assert told.layers == [], "nothing to read"


def test_an_unknown_pool_is_refused_by_name() -> None:
    load, told = load_of(pools.mha("kv", rows(1), rows(1)))
    with pytest.raises(ArgumentError, match=r"^pool: unknown pool 'draft': there are 'kv'"):
        load.wait_pool("draft")
    assert told.layers == []


@pytest.mark.parametrize("first", [0, 2, 1000])
@pytest.mark.parametrize("arrival", ["auto", "layers", "together"])
def test_a_pool_is_there_when_it_was_waited_for(first: int, arrival: str) -> None:
    """With any numbers, also such as leave gaps, and in whichever order layers arrive."""
    kv, draft = pools.mha("kv", rows(4), rows(4)), pools.latent("draft", rows(2))
    host = Host(tokens=64, arrival=arrival)
    with HiCache([pools.numbered(kv, first), draft], 4, host=host, load_threshold=0) as cache:
        hit = cache.match_prefix(list(range(16)))
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        for pool in (kv, draft):
            for number, tensor in enumerate(pool.tensors or ()):
                tensor.fill_(number + 1)
        cache.insert(hit, list(range(16)), slots)
        hit.release()
        assert cache.drain(10)
        cache.evict(4)
        for tensor in (*(kv.tensors or ()), *(draft.tensors or ())):
            tensor.zero_()
        hit = cache.match_prefix(list(range(16)))
        load = cache.load([hit])
        for pool in (draft, kv):
            load.wait_pool(pool.name)
            for number, tensor in enumerate(pool.tensors or ()):
                assert tensor.eq(number + 1).all()
        hit.release()


@pytest.mark.parametrize("first", [-1, 2**40, 1.5, "0", None])
def test_bad_numbers_are_refused_by_name(first: object) -> None:
    with pytest.raises(ArgumentError, match=r"^first: "):
        pools.numbered(pools.mha("kv", rows(1), rows(1)), first)  # type: ignore[arg-type]
