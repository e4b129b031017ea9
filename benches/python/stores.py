"""What benches of stores share: pages in memory, and stores that are driven alike.

Knows how each is called; refuses to know what is measured. `store_beside_peers.py` says how they compare.
A side makes its directory. `full`: it is at its limit, and gives up a page for each that it takes.
`settle`: once, before anything is measured; `fresh`: before a pass, all pages get new names; `put`, `get`:
pages in an order, in groups of 128; `cool`: takes what was put out of the page cache. On error: an
assertion fails; a figure for less than all pages is none.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hicache import storage

GROUP, DEPTH, HUGE = 128, 32, 2 << 20
WHO = bytes(range(32))
_LIBC = ctypes.CDLL(None, use_errno=True)
Call = Callable[[list[bytes], list[storage.Page]], Sequence[storage.Outcome]]


class Pages:
    """One mapping, its pages, and the order in which they are asked for."""

    def __init__(self, size: int, whole: int) -> None:
        self._mapping = mmap.mmap(-1, whole + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._mapping.madvise(mmap.MADV_HUGEPAGE)
        start = -np.frombuffer(self._mapping, np.uint8).ctypes.data % HUGE
        self.memory = np.frombuffer(self._mapping, np.uint8)[start : start + whole]
        self.memory.view(np.uint64)[:] = np.random.default_rng(1).integers(0, 1 << 63, whole // 8, np.uint64)
        self.right = self.memory.copy()
        self.size, self.count = size, whole // size
        self.order = np.random.default_rng(2).permutation(self.count).tolist()
        self.each = [self.memory[at : at + size] for at in range(0, whole, size)]

    def wipe(self) -> None:
        self.memory.fill(0xFF)

    def check(self, who: str) -> None:
        wrong = int((self.memory != self.right).reshape(self.count, -1).any(axis=1).sum())
        assert not wrong, f"{who}: wrong bytes in the memory of {wrong} of {self.count} pages"


def groups(pages: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(pages), GROUP):
        yield pages[at : at + GROUP]


def drop(path: Path) -> None:
    """Takes a file that was flushed out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def sync(folder: Path) -> None:
    """Waits until all that was written to this file system is on its disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        if _LIBC.syncfs(file):
            raise OSError(ctypes.get_errno(), f"syncfs of {folder}")
    finally:
        os.close(file)


def seconds(act: Callable[..., Any], *arguments: Any) -> float:
    """How long it took; what measures by itself returns that."""
    started = time.perf_counter()
    own = act(*arguments)
    took = time.perf_counter() - started
    return own if isinstance(own, float) else took


class Ours:
    """A slab store; groups go to it from two threads."""

    ways = ("slab",)

    def __init__(self, folder: Path, pages: Pages, full: bool = False, size: int | None = None) -> None:
        # Room for an extent that is kept spare, and the log.
        size = size or pages.memory.nbytes + (1 << 30)
        self.full = full
        self.store = storage.open(f"slab://{folder}?size={size}&extent=256MiB&free=0", WHO)
        self.pages = [storage.Page.of(page) for page in pages.each]
        self.names = [os.urandom(32) for _ in self.pages]
        self.crew = ThreadPoolExecutor(2)

    def settle(self) -> None:
        """Writes what passes need once, and lets the store's thread write the extent that it keeps spare."""
        self.put("slab", range(len(self.pages)))
        if self.full:
            while not self.store.statistics()["evicted_pages"]:
                self.fresh()
                self.put("slab", range(len(self.pages)))
        time.sleep(2)

    def fresh(self) -> None:
        if not self.full:
            self.store.clear(WHO)
        self.names = [os.urandom(32) for _ in self.pages]

    def put(self, _: str, order: Sequence[int]) -> None:
        self.all_hit(lambda keys, pages: self.store.put(WHO, keys, [None] * len(keys), pages), order)

    def get(self, _: str, order: Sequence[int]) -> None:
        self.all_hit(lambda keys, pages: self.store.get(WHO, keys, pages), order)

    def all_hit(self, call: Call, order: Sequence[int]) -> None:
        def act(group: Sequence[int]) -> Sequence[storage.Outcome]:
            return call([self.names[n] for n in group], [self.pages[n % len(self.pages)] for n in group])

        for outcomes in self.crew.map(act, groups(order)):
            assert set(outcomes) == {storage.Outcome.HIT}, outcomes

    def cool(self) -> None:
        """Nothing of it is in the page cache: it reads directly, as the count of what was read shows."""

    def close(self) -> None:
        self.crew.shutdown()
        self.store.close()


class SGLang:
    """HiCacheFile, driven as its controller drives it, without that."""

    ways = ("generic", "v2", "bare")

    def __init__(self, folder: Path, pages: Pages, full: bool = False) -> None:
        import torch
        from sglang.srt.mem_cache import hicache_storage as theirs

        # Copies of single pages gain nothing from more.
        torch.set_num_threads(1)
        config = theirs.HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
            enable_storage_metrics=False, is_page_first_layout=True, model_name="bench",
            extra_config={"max_size": str(pages.memory.nbytes * 5 // 4)} if full else None,
        )  # fmt: skip
        self.full, self.folder, self.kind, self.name = full, folder, theirs.PoolTransfer, theirs.PoolName.KV
        self.store = theirs.HiCacheFile(config, str(folder))
        whole = torch.from_numpy(pages.memory)
        self.pages = list(whole.split(pages.size))
        self.indices = torch.arange(len(self.pages))
        # Keys, then values; a page is a part of both.
        halves = whole.view(2, len(self.pages), pages.size // 2)
        self.pool = SimpleNamespace(
            page_size=1,
            get_data_page=lambda n, flat=True: halves[:, n : n + 1].flatten(),
            get_dummy_flat_data_page=lambda: torch.zeros(pages.size, dtype=torch.uint8),
            set_from_flat_data_page=lambda n, page: halves[:, n : n + 1].copy_(page.reshape(2, 1, -1)),
        )
        self.store.register_mem_host_pool_v2(self.pool, self.name)
        self.names: list[str] = []

    def settle(self) -> None:
        if self.full:
            for _ in range(2):
                self.fresh()
                self.put("bare", range(len(self.pages)))

    def crowd(self, files: int) -> None:
        """Puts other files beside its own."""
        for _ in range(files):
            (self.folder / f"{os.urandom(32).hex()}_other.bin").touch()

    def fresh(self) -> None:
        """Files of earlier passes stay, or go as others come."""
        self.names = [os.urandom(32).hex() for _ in self.pages]

    def put(self, way: str, order: Sequence[int]) -> None:
        for group in groups(order):
            keys = [self.names[n] for n in group]
            if way == "v2":
                assert all(self.store.batch_set_v2([self.transfer(keys, group)])[self.name])
            elif way == "generic":
                assert self.store.batch_set(keys, [self.pool.get_data_page(n) for n in group])
            else:
                assert self.store.batch_set(keys, [self.pages[n] for n in group])

    def get(self, way: str, order: Sequence[int]) -> None:
        for group in groups(order):
            keys = [self.names[n] for n in group]
            if way == "v2":
                assert all(self.store.batch_get_v2([self.transfer(keys, group)])[self.name])
            elif way == "generic":
                got = self.store.batch_get(keys, [self.pool.get_dummy_flat_data_page() for _ in group])
                for n, page in zip(group, got, strict=True):
                    self.pool.set_from_flat_data_page(n, page)
            else:
                got = self.store.batch_get(keys, [self.pages[n] for n in group])
                assert all(page is not None for page in got)

    def transfer(self, keys: list[str], group: Sequence[int]) -> Any:
        return self.kind(name=self.name, keys=keys, host_indices=self.indices[list(group)])

    def cool(self) -> None:
        for path in self.folder.iterdir():
            drop(path)

    def close(self) -> None:
        """Its files go with all others, at the end: see `store_beside_peers.py`."""


class LMCache:
    """RawBlockDevice over a file, page after page."""

    ways = ("io_uring", "posix")

    def __init__(self, folder: Path, pages: Pages, _full: bool = False) -> None:
        from lmcache_rust_raw_block_io import RawBlockDevice

        folder.mkdir()
        self.pages, self.size, self.path = pages.each, pages.size, folder / "device"
        path = str(self.path)
        pages.memory.tofile(path)
        posix = RawBlockDevice(path, True, use_odirect=True)
        ring = RawBlockDevice(path, True, use_odirect=True, use_iouring=True, iouring_queue_depth=DEPTH)
        ring.register_fixed_buffers([pages.memory.ctypes.data], [pages.memory.nbytes])
        self.devices = {"io_uring": ring, "posix": posix}

    def settle(self) -> None:
        sync(self.path.parent)
        drop(self.path)

    def fresh(self) -> None:
        """It has no names; pages are written over those of the last round."""

    def put(self, way: str, order: Sequence[int]) -> None:
        self.move(way, order, "batched_write", "pwrite_from_buffer")

    def get(self, way: str, order: Sequence[int]) -> None:
        self.move(way, order, "batched_read", "pread_into")

    def move(self, way: str, order: Sequence[int], batched: str, single: str) -> None:
        device, under_way = self.devices[way], []
        for group in groups(order):
            if way == "posix":
                for n in group:
                    getattr(device, single)(n * self.size, self.pages[n], self.size)
                continue
            sizes, offsets = [self.size] * len(group), [n * self.size for n in group]
            under_way.append(getattr(device, batched)(offsets, [self.pages[n] for n in group], sizes))
            if len(under_way) == 2:
                self.wait(device, under_way.pop(0))
        for batch in under_way:
            self.wait(device, batch)

    def wait(self, device: Any, batch: int) -> None:
        done, errors = device.wait_iouring(batch)
        assert not errors, (done, errors)

    def cool(self) -> None:
        """It reads directly."""

    def close(self) -> None:
        for device in self.devices.values():
            device.close()
