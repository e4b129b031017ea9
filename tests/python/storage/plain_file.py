"""A store as a third party might write it: a file a page. It verifies nothing but lengths."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from hicache.storage import Held, Outcome, Page, Store
from hicache.storage.store import age
from hicache.testing.memory import Removals


class PlainFileStore(Store):
    """Pages as files `root/<identity>/<key>`, written elsewhere and renamed."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._mutex, self._removals, self._number, self._closed = threading.Lock(), Removals(), 0, False

    def _path(self, identity: bytes, key: bytes) -> Path:
        return self.root / identity.hex() / key.hex()

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return [self._exists(self._path(identity, key)) for key in keys]

    def _exists(self, path: Path) -> Outcome:
        if self._closed:
            return Outcome.FAILED
        return Outcome.HIT if path.exists() else Outcome.ABSENT

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        return [self._get(self._path(identity, key), page) for key, page in zip(keys, pages, strict=True)]

    def _get(self, path: Path, page: Page) -> Outcome:
        if self._closed:
            return Outcome.FAILED
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return Outcome.ABSENT
        if page.write(content):
            return Outcome.HIT
        path.unlink(missing_ok=True)
        return Outcome.SHORT if len(content) < page.nbytes else Outcome.CORRUPT

    def put(
        self, identity: bytes, keys: Sequence[bytes], parents: Sequence[bytes | None], pages: Sequence[Page]
    ) -> Sequence[Outcome]:
        with self._mutex:
            number = self._removals.begin()
        try:
            return [self._put((identity, key), page, number) for key, page in zip(keys, pages, strict=True)]
        finally:
            with self._mutex:
                self._removals.end(number)

    def _has(self, path: Path, size: int) -> bool:
        try:
            return path.stat().st_size == size
        except FileNotFoundError:
            return False

    def _put(self, name: tuple[bytes, bytes], page: Page, number: int) -> Outcome:
        path = self._path(*name)
        if self._closed:
            return Outcome.FAILED
        if self._has(path, page.nbytes):
            return Outcome.HIT
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._mutex:
            self._number += 1
            part = path.with_suffix(f".{os.getpid()}-{self._number}")
        part.write_bytes(page.read())
        with self._mutex:
            if self._removals.hit(name, number) or self._closed:
                part.unlink()
                return Outcome.FAILED if self._closed else Outcome.CANCELLED
            part.replace(path)
        return Outcome.HIT

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        with self._mutex:
            return [self._remove((identity, key)) for key in keys]

    def _remove(self, name: tuple[bytes, bytes]) -> Outcome:
        self._removals.remove(name)
        if self._closed:
            return Outcome.FAILED
        try:
            self._path(*name).unlink()
        except FileNotFoundError:
            return Outcome.ABSENT
        return Outcome.HIT

    def clear(self, identity: bytes) -> int:
        with self._mutex:
            self._removals.remove(identity)
            files = self._files(identity.hex())
            for file in files:
                file.unlink()
            return len(files)

    def _files(self, identity: str) -> list[Path]:
        return [file for file in self.root.glob(f"{identity}/*") if not file.suffix]

    def list(self) -> Sequence[Held]:
        return [
            Held(
                bytes.fromhex(f.parent.name), bytes.fromhex(f.name), f.stat().st_size, age(f.stat().st_mtime)
            )
            for f in self._files("*")
        ]

    def close(self) -> None:
        with self._mutex:
            self._closed = True
