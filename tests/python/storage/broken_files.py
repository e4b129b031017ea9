"""Stores of files that break one clause each, for the kit to catch."""

from __future__ import annotations

import pickle
from pathlib import Path

from plain_file import PlainFileStore

from hicache.storage import Outcome, Page

HIT, ABSENT = Outcome.HIT, Outcome.ABSENT


class NoPickles(PlainFileStore):
    """Its objects are pickles."""

    def _put(self, name: tuple[bytes, bytes], page: Page, number: int) -> Outcome:
        return super()._put(name, Page.of(pickle.dumps(page.read())), number)

    def _get(self, path: Path, page: Page) -> Outcome:
        if not path.exists():
            return ABSENT
        try:
            return HIT if page.write(pickle.loads(path.read_bytes())) else Outcome.CORRUPT
        except Exception:
            path.unlink()
            return Outcome.CORRUPT


class RaisesOnShort(PlainFileStore):
    def _get(self, path: Path, page: Page) -> Outcome:
        if path.exists() and path.stat().st_size < page.nbytes:
            raise EOFError(path)
        return super()._get(path, page)


class RaisesOnGone(PlainFileStore):
    def _get(self, path: Path, page: Page) -> Outcome:
        content = path.read_bytes()
        return HIT if page.write(content) else Outcome.CORRUPT
