"""Clause 7: bounded stores. A store that can't be bounded from here is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hicache.storage import Outcome, Store
from hicache.testing.stores.base import HIT, US, Base, answers, names

SIZE = 4096
PAGES = 64


class Limits(Base):
    """What a store with little room does."""

    #: Bytes beyond the capacity that files at the place may take: indexes, logs, what is still to be removed.
    overhead = 1 << 20

    def bounded(self, where: Path, capacity: int) -> Store:
        store = self.open_bounded(where, capacity)
        if store is None:
            pytest.skip("this store can't be bounded from here")
        return store

    def test_never_more_than_it_was_given(self, tmp_path: Path) -> None:
        """Clause 7: four times what there is room for; each page is stored, or DECLINED, never FAILED."""
        where, capacity = tmp_path / "store", PAGES * SIZE
        with self.bounded(where, capacity) as store:
            keys = names(4 * PAGES, "many")
            for at in range(0, len(keys), 16):
                found = self.put(store, keys[at : at + 16], SIZE)
                assert set(found) <= {HIT, Outcome.DECLINED}, f"clause 7: put without room: {found}"
                self.holds_at_most(store, where, capacity)
            here = [at for at, found in enumerate(self.get(store, keys, SIZE)) if found is HIT]
            assert here, "clause 7: nothing at all is kept"
            assert len(here) * SIZE <= capacity, f"clause 7: {len(here)} pages in room for {PAGES}"

    def holds_at_most(self, store: Store, where: Path, capacity: int) -> None:
        said = store.statistics().get("bytes")
        assert said is None or said <= capacity, f"clause 7: it says {said} bytes, given {capacity}"
        if where.is_dir():
            taken = sum(file.stat().st_size for file in where.rglob("*") if file.is_file())
            assert taken <= capacity + self.overhead, f"clause 7: {taken} bytes of files, given {capacity}"

    def test_what_is_larger_than_all_of_it(self, tmp_path: Path) -> None:
        """Clause 7: a page that can't fit is DECLINED, and costs no other page its place."""
        with self.bounded(tmp_path / "store", PAGES * SIZE) as store:
            small, large = names(2, "sizes")
            self.put(store, [small], SIZE)
            before = self.get(store, [small], SIZE)
            found = self.put(store, [large], 2 * PAGES * SIZE)
            assert found == [Outcome.DECLINED], f"clause 7: larger than all room is {found}"
            assert self.get(store, [small], SIZE) == before, "clause 7: what can't fit made others leave"

    def test_children_leave_first(self, tmp_path: Path) -> None:
        """Clause 7: of a chain of pages a beginning stays: none without the one before it."""
        with self.bounded(tmp_path / "store", PAGES * SIZE) as store:
            chains = [names(PAGES * 3 // 8, ("chain", at)) for at in range(5)]
            for keys in chains:
                for at in range(0, len(keys), 8):
                    parents = [keys[i - 1] if i else None for i in range(at, at + 8)]
                    self.put(store, keys[at : at + 8], SIZE, parents=parents)
            for keys in chains:
                found = answers("exists", keys, store.exists(US, keys))
                assert _is_beginning(found), "clause 7: a parent went before its child"

    def test_a_smaller_size_after_reopening(self, tmp_path: Path) -> None:
        """Clause 7: what an earlier store left counts against the room of this one."""
        if not self.persistent:
            pytest.skip("this store keeps nothing")
        where = tmp_path / "store"
        with self.bounded(where, 2 * PAGES * SIZE) as store:
            self.put(store, names(2 * PAGES, "old"), SIZE)
        with self.bounded(where, PAGES * SIZE) as store:
            self.put(store, names(2, "new"), SIZE)
            self.holds_at_most(store, where, PAGES * SIZE)
            self.get(store, names(2 * PAGES, "old"), SIZE)


def _is_beginning(found: Sequence[Outcome]) -> bool:
    here = [outcome is HIT for outcome in found]
    return here == sorted(here, reverse=True)
