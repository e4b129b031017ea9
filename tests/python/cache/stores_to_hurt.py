"""Stores of every kind that keeps bytes, and ways to hurt a page in them while a cache has them open.

A page is found by its bytes. `hurts` has what can be done to a store's pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fake_engine import PLAIN, Engine, stamp

from hicache.storage import Held, Outcome, Page, Served, Store, served
from hicache.storage import open as open_store
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

DAMAGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "empty": lambda data, _: b"",
    "half": lambda data, _: data[: len(data) // 2],
    "one bit": lambda data, _: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
    "swapped": lambda _, other: other,
    "longer": lambda data, _: data + b"\0",
    "foreign": lambda data, _: bytes((at * 37 + 11) % 256 for at in range(len(data))),
}


def beginning(engine: Engine, prompt: Sequence[int], page: int) -> bytes:
    """The first bytes of a page's payload, which no other page has."""
    plane = engine.device.planes["k0"]
    prefix = tuple(prompt[: (page + 1) * engine.device.page_size])
    whole: torch.Tensor = stamp(PLAIN, prefix, "k0", plane.shape[1])
    return whole.numpy().tobytes()[:16]


class Kept:
    """A store that outlives caches: what is given to them, and what tells of it."""

    hurts: tuple[str, ...] = (*DAMAGES, "unreadable")

    def __init__(self, where: Path) -> None:
        self.where = where
        self.inner = self.open()

    def open(self) -> Store:
        raise NotImplementedError

    def storage(self) -> Any:
        """For a cache, which closes it."""
        return self.inner

    def held(self, engine: Engine, prompt: Sequence[int], page: int) -> Held:
        """The page as the store has it."""
        wanted = beginning(engine, prompt, page)
        for held in self.inner.list():
            buffer = bytearray(held.bytes)
            [outcome] = self.inner.get(held.identity, [held.key], [Page.of(buffer)])
            if outcome is Outcome.HIT and wanted in buffer:
                return held
        raise AssertionError(f"page {page} is not stored")

    def has(self, held: Held) -> bool:
        [outcome] = self.inner.exists(held.identity, [held.key])
        return outcome is Outcome.HIT

    def hurt(self, how: str, held: Held, other: Held) -> None:
        """Damages a page."""
        raise NotImplementedError

    def again(self, held: Held, content: bytes) -> None:
        """Other bytes under the same name, as another process that is mistaken would put them."""
        self.inner.remove(held.identity, [held.key])
        [outcome] = self.inner.put(held.identity, [held.key], [None], [Page.of(content)])
        assert outcome is Outcome.HIT

    def heal(self) -> None:
        """What could not be read can be from now on, if that isn't for the cache to mend."""


class Files(Kept):
    """The core's file store."""

    def open(self) -> Store:
        return open_store(self.where)

    def file(self, held: Held) -> Path:
        key = held.key.hex()
        return self.where / held.identity.hex()[:32] / key[:2] / key[2:]

    def hurt(self, how: str, held: Held, other: Held) -> None:
        file = self.file(held)
        if how == "unreadable":
            file.unlink()
            file.symlink_to(file.name)  # opening it is an error that isn't "not there"
        else:
            file.write_bytes(DAMAGES[how](file.read_bytes(), self.file(other).read_bytes()))


class Slab(Kept):
    """The core's slab store. Sizes are in its log, so that other ones are put; bytes are in data files."""

    def open(self) -> Store:
        return open_store(f"slab://{self.where}?size=8MiB&extent=64KiB&free=0&threads=2")

    def place(self, held: Held) -> tuple[Path, int]:
        buffer = bytearray(held.bytes)
        self.inner.get(held.identity, [held.key], [Page.of(buffer)])
        for file in sorted(self.where.glob("all/data-*")):
            at = file.read_bytes().find(bytes(buffer))
            if at >= 0:
                return file, at
        raise AssertionError("no data file has the page")

    def hurt(self, how: str, held: Held, other: Held) -> None:
        if how in ("empty", "half", "longer"):
            self.again(held, DAMAGES[how](bytes(held.bytes), b""))
            return
        file, at = self.place(held)
        if how == "unreadable":
            os.truncate(file, at)
            return
        ours = file.read_bytes()[at : at + held.bytes]
        theirs = b""
        if how == "swapped":
            elsewhere, place = self.place(other)
            theirs = elsewhere.read_bytes()[place : place + held.bytes]
        with file.open("r+b") as data:
            data.seek(at)
            data.write(DAMAGES[how](ours, theirs))
            data.flush()
            os.fsync(data.fileno())


class CoreMemory(Kept):
    """The core's memory: nobody reaches its bytes, but others may have put other sizes."""

    hurts = ("empty", "half", "longer")

    def open(self) -> Store:
        return open_store("memory://?size=1MiB")

    def hurt(self, how: str, held: Held, other: Held) -> None:
        self.again(held, DAMAGES[how](bytes(held.bytes), b""))


class Refusing(Double):
    """Can't read some pages."""

    bad: set[bytes]

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        outcomes = list(super().get(identity, keys, pages))
        return [
            Outcome.FAILED if key in self.bad else found for key, found in zip(keys, outcomes, strict=True)
        ]


class InPython(Kept):
    """A third party's, which verifies nothing: behind the checksums of `served`."""

    def open(self) -> Store:
        self.refusing = Refusing(MemoryStore())
        self.refusing.bad = set()
        return self.refusing.inner

    def storage(self) -> Served:
        return served(self.refusing, threads=1)

    def hurt(self, how: str, held: Held, other: Held) -> None:
        if how == "unreadable":
            self.refusing.bad = {held.key}
            return
        ours = self.content(held)
        self.again(held, DAMAGES[how](ours, self.content(other) if how == "swapped" else b""))

    def content(self, held: Held) -> bytes:
        buffer = bytearray(held.bytes)
        self.inner.get(held.identity, [held.key], [Page.of(buffer)])
        return bytes(buffer)

    def heal(self) -> None:
        self.refusing.bad = set()


KINDS: tuple[type[Kept], ...] = (Files, Slab, CoreMemory, InPython)
