"""The conformance kit over stores that keep their word, as third parties would use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plain_file import PlainFileStore

from hicache.storage import Store, open, served  # noqa: A004
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore
from hicache.testing.stores import StoreKit


class TestMemory(StoreKit):
    """A store in Python, called directly."""

    persistent = False

    def open(self, where: Path) -> Store:
        return MemoryStore()

    def open_bounded(self, where: Path, capacity: int) -> Store:
        return MemoryStore(capacity)


class TestPlainFiles(StoreKit):
    """One that outlives its process."""

    shared, verifies, kills = True, False, 3

    def open(self, where: Path) -> Store:
        return PlainFileStore(where)

    def objects(self, where: Path) -> Sequence[Path]:
        return sorted(file for file in where.rglob("*") if file.is_file())


class TestPlainFilesInACache(StoreKit):
    """The same as a cache sees it: behind the relay, with a checksum before every page."""

    shared, kills = True, 2

    def open(self, where: Path) -> Store:
        return open(served(PlainFileStore(where)))

    def objects(self, where: Path) -> Sequence[Path]:
        return sorted(file for file in where.rglob("*") if file.is_file())


class TestFileStore(StoreKit):
    """The core's file store."""

    shared, kills = True, 2

    def open_bounded(self, where: Path, capacity: int) -> Store:
        return open(f"{where.as_uri()}?size={capacity}")

    def open(self, where: Path) -> Store:
        return open(where)

    def objects(self, where: Path) -> Sequence[Path]:
        return sorted(file for file in where.rglob("*") if file.is_file())


class TestCoreMemory(StoreKit):
    """The core's memory store, as an object."""

    persistent = False

    def open(self, where: Path) -> Store:
        return open("memory://?size=1GiB")

    def open_bounded(self, where: Path, capacity: int) -> Store:
        return open(f"memory://?size={capacity}")


class TestSlabStore(StoreKit):
    """The core's slab store. One process's at a time; its files are data and log."""

    kills = 3
    #: More than the children write, so that nothing of it is given up.
    options = "size=512MiB&extent=1MiB&free=0&threads=2"

    def open(self, where: Path) -> Store:
        return open(f"slab://{where}?{self.options}")

    def open_bounded(self, where: Path, capacity: int) -> Store:
        slots = capacity // 4096
        # Eight slots an extent; besides them the smallest log, and what it says of each page three times.
        size = 6 * 65_536 + capacity + 3 * 64 * slots
        return open(f"slab://{where}?size={size}&extent={8 * 4096}&free=0&threads=2")

    def objects(self, where: Path) -> Sequence[Path]:
        return sorted(where.glob("all/data-*"))


class TestSlabStoreDurable(TestSlabStore):
    """The same where what is acknowledged survives a loss of power; and over threads instead of io_uring."""

    options = "size=512MiB&extent=1MiB&free=0&threads=3&sync=yes&io=threads"


class TestSlabStoreInACache(TestSlabStore):
    """Around it what a store in Python gets: the relay, and a checksum before each page."""

    def open(self, where: Path) -> Store:
        return open(served(Double(super().open(where))))

    def open_bounded(self, where: Path, capacity: int) -> Store | None:  # type: ignore[override]
        return None
