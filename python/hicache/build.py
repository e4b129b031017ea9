"""From checked settings to a core: what `HiCache(...)` does before there is a cache.

On error: `ArgumentError` names the setting; nothing was made, no directory either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hicache import _hicache
from hicache.config import Host, expect, policy, whole_number
from hicache.copies import GpuCopies
from hicache.errors import ArgumentError
from hicache.identity import ModelIdentity
from hicache.pools import Pool, gpu
from hicache.pools import memory as pool_memory
from hicache.quantities import not_negative
from hicache.restart import directory as restart_directory
from hicache.spaces import device_slots, spaces
from hicache.storage import Served, Storage
from hicache.storage.opening import resolve
from hicache.unified import memory as unified_memory
from hicache.writing import writing as check_writing

#: Tokens of a page: far more than any engine takes, and products with it stay far below 64 bits.
MOST_PAGE_SIZE = 2**20


def core(
    pools: Sequence[Pool],
    page_size: int,
    host: Host | None,
    storage: Storage | None,
    identity: ModelIdentity | None,
    gpu_copies: GpuCopies | None,
    unified: torch.Tensor | None,
    *,
    writing: tuple[str, str, str, float],
    policies: Mapping[str, str],
    prefetch: tuple[str, float, float],
    **limits: Any,
) -> _hicache.Cache:
    """The core of a cache; arguments as `HiCache` has them, `limits` as the binding does."""
    page_size = whole_number("page_size", page_size, least=1, most=MOST_PAGE_SIZE)
    for setting, value in policies.items():
        policy(setting, value)
    writes = check_writing(*writing)
    times = (
        not_negative("prefetch_timeout_base", prefetch[1]),
        not_negative("prefetch_timeout_per_ki_token", prefetch[2]),
    )
    expect("host", host, Host)
    expect("identity", identity, ModelIdentity)
    expect("gpu_copies", gpu_copies, GpuCopies)
    slots = device_slots(pools, page_size)
    if storage is not None and identity is None:
        raise ArgumentError("identity: storage needs one, so that no other model's pages are served")
    restart = restart_directory(host, identity)
    page_bytes = [sum(pool.page_bytes(page_size) for pool in space) for space in spaces(pools)]
    memory = pool_memory(pools) if unified is None else unified_memory(unified, pools)
    held = list(pools) if unified is None else unified
    fields, rank, world = ([], [], []) if identity is None else identity.fields()
    declared = [pool.declaration(host.groups() if host else 1) for pool in pools]
    host_memory = host.memory(page_size, page_bytes, slots) if host else _no_host(len(slots))
    copies = host.copies() if host else (None, "auto")
    gpu_settings = (gpu_copies or GpuCopies()).settings()
    # Last, since a class makes its object here.
    named = resolve(storage)
    return _hicache.Cache(
        page_size=page_size,
        bigrams=policies["keys"] == "bigrams",
        pools=declared,
        memory=memory,
        keep=None if memory is None else held,
        device_slots=slots,
        engine_owns_slots=policies["slots"] == "engine",
        unified=None if unified is None else unified.numel(),
        policies=(policies["eviction"], *writes),
        host_mode=policies["host_mode"],
        host=host_memory,
        restart=restart,
        copies=copies,
        gpu=gpu(pools),
        gpu_copies=gpu_settings,
        storage=named.start() if isinstance(named, Served) else named,
        identity=(
            [*fields, ("keys", policies["keys"])]
            + [(f"dtype of {pool.name}", pool.description()) for pool in pools],
            rank,
            world,
        ),
        prefetch=(prefetch[0], *times),
        **limits,
    )


def _no_host(spaces: int) -> tuple[list[int], str, bool, int, None]:
    return [0] * spaces, "page_unified", False, 0, None
