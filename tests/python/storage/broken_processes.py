"""Kits over stores that only another process can see to be broken: children import them from here."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

from plain_file import PlainFileStore

from hicache.storage import Outcome, Page, Store
from hicache.testing.stores import StoreKit


class InPlace(PlainFileStore):
    """Writes where readers look."""

    def _put(self, name: tuple[bytes, bytes], page: Page, number: int) -> Outcome:
        path = self._path(*name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for run in page.runs:
                file.write(run[: run.nbytes // 2])
                file.flush()
                time.sleep(0.002)
                file.write(run[run.nbytes // 2 :])
        return Outcome.HIT


class WriteBehind(PlainFileStore):
    """Acknowledges first."""

    def _put(self, name: tuple[bytes, bytes], page: Page, number: int) -> Outcome:
        copy = Page.of(page.read())
        threading.Timer(0.3, super()._put, (name, copy, 1 << 62)).start()
        return Outcome.HIT


class OneAtATime(PlainFileStore):
    """A second process is refused."""

    def __init__(self, root: str | Path) -> None:
        super().__init__(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self._file = (self.root / "owner.lock").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class InPlaceKit(StoreKit):
    def open(self, where: Path) -> Store:
        return InPlace(where)


class WriteBehindKit(StoreKit):
    def open(self, where: Path) -> Store:
        return WriteBehind(where)


class OneAtATimeKit(StoreKit):
    shared = True

    def open(self, where: Path) -> Store:
        return OneAtATime(where)
