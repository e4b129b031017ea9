"""Clause 3 where what was stored is damaged: of a store that keeps pages in files, if it shows them
(`objects`)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache.testing.stores.base import HIT, US, Base, all_are, answers, names


class Marked:
    """Who unpickles it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.mark), "w")


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else data


#: What becomes of a file's bytes. `None`: it can't be read.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "longer": lambda data: data + b"more",
    "a bit at the beginning": lambda data: flip(data, 0),
    "a bit in the middle": lambda data: flip(data, len(data) // 2),
    "a bit at the end": lambda data: flip(data, len(data) - 1),
    "foreign": lambda data: (bytes(range(256)) * (len(data) // 256 + 1))[: len(data)],
    "zeros": lambda data: bytes(len(data)),
}
#: Those that a store sees which verifies no bytes: the object's length is another.
LENGTHS = ("empty", "half", "one byte less")


class Damage(Base):
    """What a store makes of objects that aren't what it wrote."""

    @pytest.mark.parametrize("kind", DAMAGES)
    def test_damaged_objects(self, kind: str, tmp_path: Path) -> None:
        """Clause 3: none is a HIT with other bytes, none stops the store, and a put mends each."""
        if not self.verifies and kind not in LENGTHS:
            pytest.skip("this store leaves it to others to verify bytes")
        self._damaged(tmp_path / "store", DAMAGES[kind], kind)

    def _damaged(self, where: Path, damage: Callable[[bytes], bytes], kind: str) -> None:
        keys = names(6, "damaged")
        with self.open(where) as store:
            all_are(HIT, self.put(store, keys, 1500), "clause 5: put")
        objects = list(self.objects(where))
        if not objects:
            pytest.skip("this store shows no files with pages")
        for path in objects:
            path.write_bytes(damage(path.read_bytes()))
        with self.open(where) as store:
            answers("exists", keys, store.exists(US, keys))
            found = self.get(store, keys, 1500)
            missing = [key for key, outcome in zip(keys, found, strict=True) if outcome is not HIT]
            if kind in LENGTHS:
                assert missing, f"clause 3: all files are damaged ({kind}), and all pages a HIT"
            all_are(HIT, self.put(store, keys, 1500), f"clause 3: a put mends what is damaged ({kind})")
            all_are(HIT, self.get(store, keys, 1500), f"clause 3: a put mends what is damaged ({kind})")

    def test_swapped_objects(self, tmp_path: Path) -> None:
        """Clause 3: the file of one page in the place of another's."""
        if not self.verifies:
            pytest.skip("this store leaves it to others to verify bytes")
        where, keys = tmp_path / "store", names(6, "swapped")
        with self.open(where) as store:
            all_are(HIT, self.put(store, keys, 1500), "clause 5: put")
        objects = list(self.objects(where))
        if len(objects) < 2:
            pytest.skip("this store shows no files with single pages")
        contents = [path.read_bytes() for path in objects]
        for path, content in zip(objects, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
        with self.open(where) as store:
            self.get(store, keys, 1500)

    def test_objects_that_are_gone(self, tmp_path: Path) -> None:
        """Clause 3: files that others removed are absent pages; removing them again is no fault."""
        where, keys = tmp_path / "store", names(6, "gone")
        with self.open(where) as store:
            all_are(HIT, self.put(store, keys, 800), "clause 5: put")
        objects = list(self.objects(where))
        if not objects:
            pytest.skip("this store shows no files with pages")
        with self.open(where) as store:
            for path in objects:
                path.unlink()
            self.get(store, keys, 800)
            answers("remove", keys, store.remove(US, keys))
            all_are(HIT, self.put(store, keys, 800), "clause 3: put after that")
            all_are(HIT, self.get(store, keys, 800), "clause 3: put after that")

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        """Clause 3: an object that runs code when it is unpickled is damaged, and its code never runs."""
        mark = tmp_path / "mark"
        bad = pickle.dumps(Marked(mark))
        self._damaged(tmp_path / "store", lambda data: bad, "half")
        assert not mark.exists(), "clause 3: the store unpickles what it finds"
