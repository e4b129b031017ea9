"""Spaces of slots: which pools share slots, and how many there are of them on the device.

The first space is the cache's own; every other pool with slots of its own begins one, in order of the pools.

On error: `ArgumentError` names what the pools don't agree about.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.errors import ArgumentError
from hicache.pools import Pool


def spaces(pools: Sequence[Pool]) -> list[list[Pool]]:
    """Pools by whose slots they use: those with the first one's, then those of each pool with its own."""
    owners = [pools[0], *(pool for pool in pools[1:] if pool.follows == pool.name)]
    found: list[list[Pool]] = [[owner] for owner in owners]
    names = {owner.name: at for at, owner in enumerate(owners)}
    for pool in pools:
        if not any(pool is owner for owner in owners):
            found[names.get(pool.follows or "", 0)].append(pool)
    return found


def device_slots(pools: Sequence[Pool], page_size: int) -> list[int]:
    """Pages there is room for in each space of slots: all of its pools need the same number."""
    if not isinstance(pools, Sequence) or not all(isinstance(pool, Pool) for pool in pools):
        raise ArgumentError(f"pools: need a list of pools, as hicache.pools makes them, got {pools!r}")
    if not pools:
        raise ArgumentError("pools: a cache needs at least one pool")
    return [_slots_of(space, page_size) for space in spaces(pools)]


def _slots_of(space: Sequence[Pool], page_size: int) -> int:
    slots = {pool.name: pool.slots(page_size) for pool in space}
    if len(set(slots.values())) > 1:
        raise ArgumentError(f"pools: all need the same number of pages, got {slots}")
    first = space[0]
    if slots[first.name] < 1:
        rows = f"{first.rows} rows of {first.name}"
        raise ArgumentError(f"pools: no room for a page of {page_size} tokens in {rows}")
    return slots[first.name]
