"""Random engines against random caches, through the binding: no order of calls may show a wrong byte.

The model is naive: the set of all prefixes that were ever computed bounds what may hit, and paths of loaded
requests, which are pinned, bound it from below. Stamps tell whether what hits is what was computed.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import PLAIN, Engine, Request, make, store_files
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hicache import Hit, Namespace, StaleCursor

NAMESPACES = [PLAIN, Namespace(salt="a"), Namespace(adapter="a")]
#: They share heads of 3, 4, 7, 8 and 12 tokens, so that edges split inside and between pages of all sizes.
STEMS = ["0000000000000000", "0001000000000000", "0000111100001111", "0000111011110000", "0000111100000000"]
TOKENS = st.tuples(st.sampled_from(STEMS), st.sampled_from([16, 15, 13, 12, 9, 8, 7, 5, 4, 2, 0])).map(
    lambda cut: [int(letter) for letter in cut[0][: cut[1]]]
)
WHICH = st.integers(0, 99)
#: Requests that are loaded at once: their pages are pinned, and the pools are small.
MOST = 3
Known = set[tuple[Namespace, tuple[int, ...]]]


class Cache(RuleBasedStateMachine):
    """`matched` and `loaded` requests, and `cursors`: released hits with the tokens that lead to them."""

    page_size, layout, stored = 1, "page_unified", False

    @initialize(device=st.integers(8, 16), host=st.integers(8, 24))
    def start(self, device: int, host: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hicache-test-"))
        self.sizes = (device, host)
        self.known: Known = set()
        self.engine = self.open()
        self.matched: list[Request] = []
        self.loaded: list[Request] = []
        self.cursors: list[tuple[Hit, list[int]]] = []

    def open(self) -> Engine:
        store = self.folder / "store" if self.stored else None
        device, host = self.sizes
        return make(self.page_size, device, host, layout=self.layout, store=store)

    # What requests do.

    @rule(tokens=TOKENS, namespace=st.sampled_from(NAMESPACES), chunk=st.integers(1, 16), wait=st.booleans())
    def turn(self, tokens: list[int], namespace: Namespace, chunk: int, wait: bool) -> None:
        """A request in one go, so that the pools fill."""
        self.match(tokens, namespace, None)
        if wait:
            self.fetch(-1)
        self.load(-1, 1)
        for _ in range(0, len(tokens), chunk):
            self.compute(-1, chunk)

    @rule(tokens=TOKENS, first=st.sampled_from(NAMESPACES), chunk=st.integers(1, 16))
    def twins(self, tokens: list[int], first: Namespace, chunk: int) -> None:
        """Two requests compute the same prompt at the same time, in turns: the second finds duplicates."""
        self.match(tokens, first, None)
        self.match(tokens, first, None)
        self.load(-2, 2)
        for _ in range(0, 2 * len(tokens), chunk):
            self.compute(-1, chunk)
            self.compute(-2, chunk)

    @rule(tokens=TOKENS, namespace=st.sampled_from(NAMESPACES), limit=st.none() | st.integers(0, 14))
    def match(self, tokens: list[int], namespace: Namespace, limit: int | None) -> None:
        request = self.engine.match(tokens, namespace, limit=limit)
        self.bound(request, limit)
        self.matched.append(request)

    @precondition(lambda self: self.cursors)
    @rule(tokens=TOKENS, which=WHICH)
    def continue_after(self, tokens: list[int], which: int) -> None:
        after, known = self.cursors[which % len(self.cursors)]
        try:
            request = self.engine.match(tokens, after=after, known=known)
            assert request.hit.host_length >= len(known) == after.length, "not where the hit ended"
        except StaleCursor:
            request = self.engine.match(known + tokens, after.namespace)
        self.bound(request, None)
        self.matched.append(request)

    @precondition(lambda self: self.matched)
    @rule(which=WHICH)
    def prefetch(self, which: int) -> None:
        hit = self.matched[which % len(self.matched)].hit
        asked = self.engine.cache.prefetch(hit)
        assert not asked or (self.stored and hit.waiting)

    @precondition(lambda self: self.matched)
    @rule(which=WHICH)
    def fetch(self, which: int) -> None:
        request = self.matched[which % len(self.matched)]
        self.engine.fetch(request)
        self.known_to(request, request.hit.host_length)

    @precondition(lambda self: self.matched)
    @rule(which=WHICH, count=st.integers(1, 3))
    def load(self, which: int, count: int) -> None:
        while self.loaded and len(self.loaded) + count > MOST:
            self.end(self.loaded.pop(0))
        first = which % len(self.matched)
        batch = self.matched[first : first + count]
        del self.matched[first : first + count]
        self.engine.load(*batch)
        self.loaded += batch
        for request in batch:
            self.known_to(request, request.hit.length)

    @precondition(lambda self: self.loaded)
    @rule(which=WHICH, count=st.integers(1, 16))
    def compute(self, which: int, count: int) -> None:
        request = self.loaded[which % len(self.loaded)]
        before = request.hit.length
        done = self.engine.compute(request, count)
        assert done or request.hit.length == before
        for end in range(before, request.hit.length, self.page_size):
            self.known.add((request.namespace, tuple(request.tokens[: end + self.page_size])))
        self.engine.verify(request)

    @precondition(lambda self: self.loaded)
    @rule(which=WHICH, pages=st.integers(0, 16), tokens=TOKENS)
    def rewind(self, which: int, pages: int, tokens: list[int]) -> None:
        request = self.loaded[which % len(self.loaded)]
        self.engine.rewind(request, min(pages, request.hit.length // self.page_size), tokens)

    @precondition(lambda self: self.loaded)
    @rule(which=WHICH)
    def wait(self, which: int) -> None:
        self.engine.verify(self.loaded[which % len(self.loaded)])

    @precondition(lambda self: self.matched or self.loaded)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        self.end(self.take(which))

    def end(self, request: Request) -> None:
        self.engine.finish(request)
        end = request.hit.length
        self.cursors = [*self.cursors[-7:], (request.hit, request.tokens[:end])]

    @precondition(lambda self: self.matched or self.loaded)
    @rule(which=WHICH)
    def forget(self, which: int) -> None:
        request = self.take(which)
        if request.load is not None:
            self.engine.free(request.table[request.hit.length // self.page_size :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del request.hit
            gc.collect(0)
        self.engine.cache.poll()

    # What happens around them.

    @rule()
    def poll(self) -> None:
        self.engine.cache.poll()

    @rule(pages=st.integers(1, 9), tier=st.sampled_from(["device", "host"]))
    def evict(self, pages: int, tier: str) -> None:
        before = self.engine.cache.stats()[f"{tier}_resident"]
        slots = self.engine.cache.evict(pages, tier=tier)
        assert len(slots) <= pages
        assert self.engine.cache.stats()[f"{tier}_resident"] == before - len(slots)

    @rule(tokens=TOKENS, namespace=st.sampled_from(NAMESPACES))
    def from_storage(self, tokens: list[int], namespace: Namespace) -> None:
        """Nobody holds anything and memory is emptied: what hits now was stored."""
        while self.matched or self.loaded:
            self.end(self.take(0))
        self.drain()
        self.evict(99, "device")
        self.evict(99, "host")
        assert self.engine.cache.stats()["nodes"] == 0, "something is held by nobody"
        self.turn(tokens, namespace, 16, True)

    @rule()
    def drain(self) -> None:
        assert self.engine.cache.drain(10)

    @precondition(lambda self: self.stored)
    @rule(which=WHICH)
    def delete_store_files(self, which: int) -> None:
        for number, file in enumerate(store_files(self.folder)):
            if which < 25 or number % 4 == which % 4:
                file.unlink(missing_ok=True)

    @precondition(lambda self: self.stored)
    @rule(which=WHICH, at=st.integers(0, 500))
    def flip_a_byte(self, which: int, at: int) -> None:
        files = store_files(self.folder)
        if files:
            file = files[which % len(files)]
            data = bytearray(file.read_bytes())
            data[at % len(data)] ^= 1 << which % 8
            file.write_bytes(data)

    @precondition(lambda self: self.engine.cache.stats()["requests"] > 8)
    @rule()
    def restart(self) -> None:
        while self.matched or self.loaded:
            self.engine.finish(self.take(0))
        self.engine.check()
        self.engine.cache.close()
        self.cursors.clear()
        if not self.stored:
            self.known.clear()
        self.engine = self.open()

    # What must hold.

    @invariant()
    def books_and_stamps(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.check()
        for request in self.loaded:
            if request.verifiable:
                self.engine.verify(request)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            for request in self.loaded:
                self.engine.verify(request)
            self.restart()
            self.engine.cache.close()
            shutil.rmtree(self.folder)

    def take(self, which: int) -> Request:
        which %= len(self.matched) + len(self.loaded)
        if which < len(self.matched):
            return self.matched.pop(which)
        return self.loaded.pop(which - len(self.matched))

    def known_to(self, request: Request, length: int) -> None:
        assert length % self.page_size == 0
        assert length <= len(request.tokens), "more than there is"
        path = (request.namespace, tuple(request.tokens[:length]))
        assert length == 0 or path in self.known, f"{path} was never computed"

    def bound(self, request: Request, limit: int | None) -> None:
        """What is pinned must hit, what was never computed must not."""
        device, usable = request.hit.device_length, request.hit.host_length
        assert device <= usable
        self.known_to(request, usable)
        most = len(request.tokens) if limit is None else min(limit, len(request.tokens))
        assert usable <= most
        for other in self.loaded:
            if other.namespace == request.namespace:
                pinned = min(common(other.tokens[: other.hit.length], request.tokens), most)
                assert device >= pinned // self.page_size * self.page_size


def common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def variants() -> Iterator[Any]:
    for page_size in (1, 2, 4):
        for layout in ("page_unified", "layer_first"):
            for stored in (False, True):
                name = f"{page_size}-{layout}-{'store' if stored else 'memory'}"
                yield pytest.param(page_size, layout, stored, id=name)


@pytest.mark.parametrize(("page_size", "layout", "stored"), list(variants()))
def test_any_order_of_calls(page_size: int, layout: str, stored: bool) -> None:
    body = {"page_size": page_size, "layout": layout, "stored": stored}
    machine = type(f"Cache{page_size}{layout}{stored}", (Cache,), body)
    # Without shrinking: how far threads get differs from run to run, so that it would go on for minutes.
    once = settings(
        max_examples=35 if stored else 25,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine.TestCase.settings = once
    machine.TestCase("runTest").runTest()
