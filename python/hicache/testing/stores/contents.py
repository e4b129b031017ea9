"""Clauses 1 to 4 and 6, one call after another: answers, bytes, names, writing once, removal."""

from __future__ import annotations

from pathlib import Path

from hicache.storage import Outcome
from hicache.testing.stores.base import (
    ABSENT,
    HIT,
    POISON,
    THEM,
    US,
    Base,
    Sheet,
    all_are,
    answers,
    cut,
    name,
    names,
    payload,
)


class Contents(Base):
    """What a single thread can see."""

    def test_one_answer_a_key(self, tmp_path: Path) -> None:
        """Clause 1: batches of any size, empty ones too; present and absent keys keep their order."""
        with self.open(tmp_path / "store") as store:
            for count in (0, 1, 7, 128, 129, 300):
                keys = names(count, ("batch", count))
                all_are(ABSENT, answers("exists", keys, store.exists(US, keys)), "clause 1: nothing was put")
                all_are(ABSENT, self.get(store, keys, 64), "clause 1: nothing was put")
                all_are(HIT, self.put(store, keys[::2], 64), "clause 5: put")
                expected = [ABSENT if at % 2 else HIT for at in range(count)]
                found = answers("exists", keys, store.exists(US, keys))
                assert found == expected, "clause 1: exists answers in another order, or wrongly"
                backwards = self.get(store, keys[::-1], 64)
                assert backwards == expected[::-1], "clause 1: get answers in another order, or wrongly"
                gone = answers("remove", keys, store.remove(US, keys))
                assert gone == expected, "clause 1: remove answers in another order, or wrongly"

    def test_a_key_twice_in_a_batch(self, tmp_path: Path) -> None:
        """Clause 1: a key that comes twice has two answers."""
        with self.open(tmp_path / "store") as store:
            key = name("twice")
            all_are(HIT, self.put(store, [key, key], 100), "clause 4: put")
            all_are(HIT, self.get(store, [key, key], 100), "clause 3: get")

    def test_the_very_bytes(self, tmp_path: Path) -> None:
        """Clause 3: pages of any size, in one run or many, and the same key's runs otherwise cut."""
        with self.open(tmp_path / "store") as store:
            for size in self.sizes:
                for parts in (1, 2, 7):
                    key = name(("bytes", size, parts))
                    page = Sheet(payload(key, size), cut(size, parts), read_only=True)
                    [outcome] = answers("put", [key], store.put(US, [key], [None], [page]))
                    assert outcome in (HIT, Outcome.DECLINED), f"clause 5: put of {size} bytes: {outcome}"
                    for again in (1, 3):
                        into = Sheet(size, cut(size, again))
                        [found] = answers("get", [key], store.get(US, [key], [into]))
                        expected = HIT if outcome is HIT else ABSENT
                        assert found is expected, f"clause 5: put said {outcome}, get says {found}"
                        right = found is not HIT or into.buffer == payload(key, size)
                        assert right, f"clause 3: {size} bytes in {parts} runs come back as others"

    def test_the_source_may_change_afterwards(self, tmp_path: Path) -> None:
        """Clauses 3 and 8: what is put is what the page held during the call."""
        with self.open(tmp_path / "store") as store:
            keys = names(8, "reused")
            pages = [Sheet(payload(key, 2048)) for key in keys]
            all_are(HIT, answers("put", keys, store.put(US, keys, [None] * 8, pages)), "clause 5: put")
            for page in pages:
                page.buffer[:] = bytes([POISON]) * 2048
            all_are(HIT, self.get(store, keys, 2048), "clause 5: get")

    def test_another_length_is_no_hit(self, tmp_path: Path) -> None:
        """Clause 3: asked for with another size, a page is SHORT or CORRUPT, and a put mends it."""
        with self.open(tmp_path / "store") as store:
            for wrong in (99, 101, 4096):
                key = name(("length", wrong))
                all_are(HIT, self.put(store, [key], 100), "clause 5: put")
                [found] = answers("get", [key], store.get(US, [key], [Sheet(wrong)]))
                assert found is not HIT, f"clause 3: a page of 100 bytes is a HIT as one of {wrong}"
                assert found is not ABSENT, "clause 3: too short is SHORT, never absent"
                all_are(HIT, self.put(store, [key], wrong), "clause 3: a put mends it")
                all_are(HIT, self.get(store, [key], wrong), "clause 3: a put mends it")

    def test_identities_are_apart(self, tmp_path: Path) -> None:
        """Clause 3: the same key under two identities names two pages."""
        with self.open(tmp_path / "store") as store:
            keys = names(5, "apart")
            all_are(HIT, self.put(store, keys, 300), "clause 5: put")
            all_are(ABSENT, answers("exists", keys, store.exists(THEM, keys)), "clause 3: identities")
            all_are(ABSENT, self.get(store, keys, 300, identity=THEM), "clause 3: identities")
            all_are(HIT, self.put(store, keys, 300, identity=THEM), "clause 5: put")
            all_are(HIT, self.get(store, keys, 300, identity=THEM), "clause 3: identities")
            all_are(HIT, self.get(store, keys, 300), "clause 3: identities")

    def test_names_that_look_alike(self, tmp_path: Path) -> None:
        """Clause 3: names that differ in one bit, or are any bytes at all, are different names."""
        with self.open(tmp_path / "store") as store:
            first = bytearray(name("alike"))
            keys = [bytes(first)]
            for at in (0, 1, 8, 15, 16, 31):
                other = bytearray(first)
                other[at] ^= 1
                keys.append(bytes(other))
            keys += [bytes(32), b"\xff" * 32, b"/" * 32, b"../" * 10 + b"..", b"\n\0" * 16]
            for key in keys:
                all_are(ABSENT, answers("exists", [key], store.exists(US, [key])), "clause 3: names")
                all_are(HIT, self.put(store, [key], 200), "clause 5: put")
            all_are(HIT, self.get(store, keys, 200), "clause 3: names")

    def test_written_once(self, tmp_path: Path) -> None:
        """Clause 4: a second put answers HIT and changes nothing."""
        with self.open(tmp_path / "store") as store:
            key = name("once")
            all_are(HIT, self.put(store, [key], 500), "clause 5: put")
            other = Sheet(payload(name("other"), 500), read_only=True)
            all_are(HIT, answers("put", [key], store.put(US, [key], [None], [other])), "clause 4: put again")
            pages = [Sheet(500)]
            all_are(HIT, answers("get", [key], store.get(US, [key], pages)), "clause 4: get")
            assert pages[0].buffer == payload(key, 500), "clause 4: a second put changed a page"

    def test_removal(self, tmp_path: Path) -> None:
        """Clause 6: what is removed is absent, nothing else is, and it can be put again."""
        with self.open(tmp_path / "store") as store:
            keys = names(6, "removed")
            all_are(HIT, self.put(store, keys, 100), "clause 5: put")
            all_are(HIT, self.put(store, keys, 100, identity=THEM), "clause 5: put")
            all_are(HIT, answers("remove", keys[:3], store.remove(US, keys[:3])), "clause 6: remove")
            all_are(ABSENT, answers("remove", keys[:3], store.remove(US, keys[:3])), "clause 6: remove again")
            expected = [ABSENT] * 3 + [HIT] * 3
            assert answers("exists", keys, store.exists(US, keys)) == expected, "clause 6: exists"
            assert self.get(store, keys, 100) == expected, "clause 6: get"
            all_are(HIT, self.get(store, keys, 100, identity=THEM), "clause 6: another identity's")
            all_are(HIT, self.put(store, keys[:3], 100), "clause 6: put again")
            all_are(HIT, self.get(store, keys, 100), "clause 6: put again")

    def test_clear(self, tmp_path: Path) -> None:
        """Clause 6: `clear` removes all pages of one identity, says how many, and leaves others alone."""
        with self.open(tmp_path / "store") as store:
            keys = names(140, "cleared")
            all_are(HIT, self.put(store, keys, 50), "clause 5: put")
            all_are(HIT, self.put(store, keys, 50, identity=THEM), "clause 5: put")
            assert store.clear(US) == 140, "clause 6: clear says another number than it removed"
            all_are(ABSENT, self.get(store, keys, 50), "clause 6: clear")
            all_are(HIT, self.get(store, keys, 50, identity=THEM), "clause 6: clear of another identity")
            assert store.clear(US) == 0, "clause 6: clear of nothing"
            all_are(HIT, self.put(store, keys[:2], 50), "clause 6: put after clear")

    def test_list(self, tmp_path: Path) -> None:
        """What `list` tells, if it can: each page once, with the size of its payload."""
        with self.open(tmp_path / "store") as store:
            keys = names(5, "listed")
            all_are(HIT, self.put(store, keys, 700), "clause 5: put")
            all_are(HIT, self.put(store, keys[:1], 700, identity=THEM), "clause 5: put")
            try:
                held = store.list()
            except Exception:
                return  # it says that it can't
            found = sorted((item.identity, item.key, item.bytes) for item in held)
            expected = sorted([(US, key, 700) for key in keys] + [(THEM, keys[0], 700)])
            assert found == expected, "list tells of other pages than there are"
            assert all(item.age >= 0 for item in held), "list: an age is never negative"
