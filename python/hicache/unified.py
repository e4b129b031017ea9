"""Unified memory: full attention and the one part of a hybrid model in one buffer; either has what the other
leaves.

A slot is a name; where its page is, is its frame, and frames change when pages move to make room. Before
each forward an engine looks its slots up in `HiCache.frames`, and indexes the views of its pools with that:

    import torch
    from hicache import HiCache, pools, unified

    P, heads, size = 16, 8, 64
    kv = pools.declare("kv", 2, 4096, [(heads, size)] * 2, torch.bfloat16)      # at most 4096 tokens
    state = pools.declare("state", 3, 64, [(64, 64)], torch.float32, of_pages=True, window=1)
    buffer = torch.empty(2**24, dtype=torch.uint8)
    cache = HiCache([kv, state], P, unified=buffer)
    planes = unified.views(buffer, [kv, state], P)      # "kv": K and V of layer 0, K and V of layer 1
    slots = cache.allocate(3)
    with cache.forward():                               # until it is through, verbs may be called
        frames = cache.frames()[slots.long()].long()
        planes["kv"][0][frames] = 1.0                                           # (3, P, heads, size)
        more = cache.allocate(2)                        # None: no room before this forward is through
    print(tuple(planes["kv"][0].shape[1:]))                                     # (16, 8, 64)
    cache.free(torch.cat([slots, more]))
    cache.close()

`allocate`, `allocate_part` and `load` may move any page that no copy is using. So either none of them is
called while a forward is under way, or the engine says when that begins and ends (`HiCache.forward`): what it
may use then stays where it is found. Slots that are looked up once must be looked up again for each forward.
Refused by name so far: a GPU, slots that the engine owns, and more or less than one part.

On error: `ArgumentError` names what can't be in one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hicache.errors import ArgumentError
from hicache.pools import Pool
from hicache.spaces import spaces

__all__ = ["memory", "views"]


def memory(buffer: torch.Tensor, pools: Sequence[Pool]) -> list[list[tuple[int, int]]]:
    """The buffer, for the binding: uint8, one dimension, contiguous, on the CPU. Pools have no tensors."""
    if not isinstance(buffer, torch.Tensor):
        raise ArgumentError(f"unified: need a torch tensor, got {type(buffer).__name__}")
    if buffer.device.type != "cpu":
        raise ArgumentError(f"unified: is not built for {buffer.device.type} yet: use pools with tensors")
    if buffer.dtype != torch.uint8 or buffer.dim() != 1 or not buffer.is_contiguous():
        found = f"{buffer.dtype} of shape {tuple(buffer.shape)}"
        raise ArgumentError(f"unified: need a contiguous uint8 tensor of one dimension, got {found}")
    named = [pool.name for pool in pools if pool.tensors is not None]
    if named:
        raise ArgumentError(
            f"unified: declare pools without tensors (hicache.pools.declare), {named[0]} has some"
        )
    return [[(buffer.data_ptr(), buffer.numel())]]


def views(buffer: torch.Tensor, pools: Sequence[Pool], page_size: int) -> dict[str, tuple[torch.Tensor, ...]]:
    """By pool its planes, in their order: (frames, rows of a page, *row), sharing the buffer's memory.

    A page is one run: pool after pool of its space, in each row after row with all planes of the row.
    `ArgumentError`: a plane whose elements don't lie at multiples of their size.
    """
    memory(buffer, pools)
    found: dict[str, tuple[torch.Tensor, ...]] = {}
    for space in spaces(pools):
        members = [pool for pool in pools if any(pool is one for one in space)]
        page, at = sum(pool.page_bytes(page_size) for pool in members), 0
        for pool in members:
            row = sum(plane.row_bytes for plane in pool.planes)
            rows = 1 if pool.of_pages else page_size
            planes, offset = [], at
            for plane in pool.planes:
                planes.append(_view(buffer, pool, (page, rows, row, offset), plane.shape, plane.dtype))
                offset += plane.row_bytes
            found[pool.name] = tuple(planes)
            at += pool.page_bytes(page_size)
    return found


def _view(
    buffer: torch.Tensor,
    pool: Pool,
    place: tuple[int, int, int, int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> torch.Tensor:
    page, rows, row, offset = place
    size = dtype.itemsize
    if any(number % size for number in (page, row, offset, buffer.data_ptr())):
        raise ArgumentError(
            f"unified: {pool.name}: {dtype} needs pages and rows of whole multiples of {size} bytes"
        )
    elements = buffer[: buffer.numel() // size * size].view(dtype)
    inner = torch.empty(shape, device="meta").stride()
    strides = (page // size, row // size, *inner)
    start = elements.storage_offset() + offset // size
    return elements.as_strided((buffer.numel() // page, rows, *shape), strides, start)
