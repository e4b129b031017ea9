"""Clauses 2, 6 and 8 where several threads call at once, and clause 9."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from hicache.storage import Opened, Outcome, Page, Store
from hicache.testing.stores.base import (
    ABSENT,
    HIT,
    MISSES,
    POISON,
    US,
    Base,
    Sheet,
    all_are,
    answers,
    name,
    names,
    payload,
)


class GatedPage(Page):
    """A page that tells when its bytes are first asked for, and waits there."""

    __slots__ = ("_sheet", "began", "gate", "patience")

    def __init__(self, content: bytes, patience: float) -> None:
        self._sheet, self.patience = Sheet(content, [len(content) // 2, -(-len(content) // 2)]), patience
        self.began, self.gate = threading.Event(), threading.Event()

    @property
    def runs(self) -> Sequence[memoryview]:  # type: ignore[override]
        self.began.set()
        self.gate.wait(self.patience)
        return self._sheet.runs


class Races(Base):
    """What several threads can see."""

    #: Seconds that a call which waits for another one is given before that goes on.
    pause = 0.2

    def gateable(self, where: Path) -> Store:
        store = self.open(where)
        if isinstance(store, Opened):
            store.close()
            pytest.skip("a call into the core can't be stopped halfway from here")
        return store

    def test_removal_wins(self, tmp_path: Path) -> None:
        """Clause 6: a put that began before a removal publishes nothing after it."""
        with self.gateable(tmp_path / "store") as store:
            for removal in ("remove", "clear"):
                key = name(("raced", removal))
                page = GatedPage(payload(key, 1000), self.patience)
                writer = threading.Thread(
                    target=store.put, args=(US, [key], [None], [page]), daemon=True, name="writer"
                )
                writer.start()
                assert page.began.wait(self.patience), "clause 8: a put doesn't look at its page"
                act = partial(store.remove, US, [key]) if removal == "remove" else partial(store.clear, US)
                remover = threading.Thread(target=act, daemon=True, name="remover")
                remover.start()
                remover.join(self.pause)  # it may have to wait for the put: then it is the last one anyway
                page.gate.set()
                writer.join(self.patience)
                remover.join(self.patience)
                waiting = writer.is_alive() or remover.is_alive()
                assert not waiting, "clause 8: calls wait for each other"
                [found] = answers("exists", [key], store.exists(US, [key]))
                assert found is ABSENT, f"clause 6: a put that began before {removal} came after it"
                all_are(ABSENT, self.get(store, [key], 1000), f"clause 6: get after {removal}")

    def test_half_a_page_is_absent(self, tmp_path: Path) -> None:
        """Clause 2: while a page is being put, others see nothing of it."""
        with self.gateable(tmp_path / "store") as store:
            key = name("half")
            page = GatedPage(payload(key, 3000), self.patience)
            writer = threading.Thread(target=store.put, args=(US, [key], [None], [page]), daemon=True)
            writer.start()
            assert page.began.wait(self.patience), "clause 8: a put doesn't look at its page"
            found: list[Outcome] = []
            faults: list[BaseException] = []

            def read() -> None:
                try:
                    found.extend(self.get(store, [key], 3000))
                except BaseException as error:
                    faults.append(error)

            reader = threading.Thread(target=read, daemon=True, name="reader")
            reader.start()
            reader.join(self.pause)
            before = list(found)
            page.gate.set()
            writer.join(self.patience)
            reader.join(self.patience)
            assert not faults, f"clause 2: a page that is being put: {faults[0]}"
            assert before in ([], [ABSENT]), f"clause 2: a page that is being put is {before}"
            assert found, "clause 8: a get waits for ever"
            all_are(HIT, self.get(store, [key], 3000), "clause 5: put")

    def test_threads(self, tmp_path: Path) -> None:
        """Clauses 2, 3 and 8: eight threads put, read, look for and remove the same pages."""
        faults: list[BaseException] = []
        with self.open(tmp_path / "store") as store:
            keys = [(key, 50 + 397 * (at % 5)) for at, key in enumerate(names(40, "threads"))]

            def work(seed: int) -> None:
                dice = random.Random(seed)
                try:
                    for _ in range(60):
                        self._one_of_many(store, dice, dice.sample(keys, 6))
                except BaseException as error:
                    faults.append(error)

            threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(self.patience)
            if faults:
                raise faults[0]
            assert not any(thread.is_alive() for thread in threads), "clause 8: threads wait for each other"
            for key, size in keys:
                self.put(store, [key], size)
                all_are(HIT, self.get(store, [key], size), "clause 8: after all threads have ended")

    def _one_of_many(self, store: Store, dice: random.Random, some: list[tuple[bytes, int]]) -> None:
        keys = [key for key, _ in some]
        verb = dice.choice(["put", "put", "get", "get", "exists", "remove"])
        if verb == "put":
            pages = [Sheet(payload(key, size), read_only=True) for key, size in some]
            found = answers(verb, keys, store.put(US, keys, [None] * len(keys), pages))
            assert set(found) <= {HIT, Outcome.CANCELLED, Outcome.DECLINED}, f"clause 8: put: {found}"
        elif verb == "get":
            pages = [Sheet(size) for _, size in some]
            found = answers(verb, keys, store.get(US, keys, pages))
            for (key, size), page, outcome in zip(some, pages, found, strict=True):
                right = outcome is not HIT or page.buffer == payload(key, size)
                assert right, "clause 3: other bytes than were put, while others write"
                assert outcome in (HIT, ABSENT), f"clause 2: a page that others write is {outcome}"
        elif verb == "exists":
            found = answers(verb, keys, store.exists(US, keys))
            assert set(found) <= {HIT, ABSENT}, f"clause 8: exists: {found}"
        else:
            found = answers(verb, keys, store.remove(US, keys))
            assert set(found) <= {HIT, ABSENT}, f"clause 8: remove: {found}"

    def test_nothing_is_kept(self, tmp_path: Path) -> None:
        """Clause 8: after a call nobody has its pages: views can be released, and nobody writes to them."""
        store = self.open(tmp_path / "store")
        keys = names(5, "kept")
        sheets: list[Sheet] = []
        for verb in ("put", "get", "get"):
            pages = [Sheet(payload(key, 900) if verb == "put" else 900) for key in keys]
            before = [sys.getrefcount(view) for page in pages for view in page.runs]
            self.answers_of(store, verb, keys, pages)
            after = [sys.getrefcount(view) for page in pages for view in page.runs]
            assert after == before, f"clause 8: {verb} kept views of its pages"
            for page in pages:
                self._let_go(verb, page)
                page.buffer[:] = bytes([POISON]) * 900
            sheets += pages
        all_are(HIT, self.get(store, keys, 900), "clause 8: get")
        store.close()
        late = [sheet for sheet in sheets if sheet.buffer.count(POISON) != 900]
        assert not late, "clause 8: memory of a page was written to after its call"

    def answers_of(self, store: Store, verb: str, keys: list[bytes], pages: Sequence[Page]) -> None:
        if verb == "put":
            found = store.put(US, keys, [None] * len(keys), pages)
        else:
            found = store.get(US, keys, pages)
        all_are(HIT, answers(verb, keys, found), f"clause 5: {verb}")

    def _let_go(self, verb: str, page: Sheet) -> None:
        """A buffer of which there are views can't grow."""
        views, page.runs = page.runs, ()
        try:
            for view in views:
                view.release()
            del views
            page.buffer.append(0)
        except BufferError:
            raise AssertionError(f"clause 8: {verb} kept its pages' memory after it returned") from None
        page.buffer.pop()

    def test_close(self, tmp_path: Path) -> None:
        """Clause 9: it ends in bounded time, also a second time; then calls answer FAILED."""
        store = self.open(tmp_path / "store")
        keys = names(3, "closed")
        all_are(HIT, self.put(store, keys, 100), "clause 5: put")
        self.within("clause 9: close", store.close)
        self.within("clause 9: the second close", store.close)
        for verb, act in (
            ("exists", lambda: store.exists(US, keys)),
            ("get", lambda: self.get(store, keys, 100)),
            ("put", lambda: self.put(store, keys, 100)),
            ("remove", lambda: store.remove(US, keys)),
        ):
            found = answers(verb, keys, self.within(f"clause 9: {verb} after close", act))
            all_are(Outcome.FAILED, found, f"clause 9: {verb} after close")
        if self.persistent:
            with self.open(tmp_path / "store") as again:
                all_are(HIT, self.get(again, keys, 100), "clause 5: closed and opened again")
                all_are(ABSENT, self.get(again, names(3, "never"), 100), "clause 3: opened again")

    def test_close_while_others_call(self, tmp_path: Path) -> None:
        """Clause 9: calls that run meanwhile end, with an outcome a key, and serve no wrong bytes."""
        store = self.open(tmp_path / "store")
        keys = names(20, "busy")
        faults: list[BaseException] = []
        started, closed = threading.Barrier(5), threading.Event()

        def work(at: int) -> None:
            started.wait(self.patience)
            try:
                rounds = 3  # after the close has returned
                while rounds:
                    rounds -= closed.is_set()
                    found = self.put(store, keys[at::4], 2000)
                    assert set(found) <= MISSES | {HIT, Outcome.DECLINED}, f"clause 9: put: {found}"
                    self.get(store, keys, 2000)
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(4)]
        for thread in threads:
            thread.start()
        started.wait(self.patience)
        try:
            self.within("clause 9: close", store.close)
        finally:
            closed.set()
        for thread in threads:
            thread.join(self.patience)
        assert not any(thread.is_alive() for thread in threads), "clause 9: a call doesn't end"
        if faults:
            raise faults[0]
