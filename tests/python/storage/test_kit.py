"""The conformance kit over stores that keep their word, as third parties would use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plain_file import PlainFileStore

from hicache.storage import Store, open, served  # noqa: A004
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
