"""Random engines with windows and states against random caches: no order of calls may show a wrong byte.

The machine of `test_stateful`, with parts: they are given or left out, evicted by themselves, and whatever
hits has its whole window and its checkpoint, stamped. What was never given never hits; what is pinned does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import Request
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from parted_engine import PartedEngine, PartedRequest, make_parted
from test_stateful import TOKENS, WHICH, Cache, common

PART = st.sampled_from(["window", "state"])
TIER = st.sampled_from(["device", "host"])


class Parted(Cache):
    """`Cache` over three pools."""

    engine: PartedEngine

    @initialize(
        device=st.integers(8, 16),
        host=st.integers(8, 24),
        windows=st.integers(3, 16),
        states=st.integers(2, 9),
        tokens=st.integers(1, 9),
    )
    def start(self, device: int, host: int, windows: int = 8, states: int = 4, tokens: int = 3) -> None:
        self.part_sizes = (windows, states)
        self.tokens = tokens
        super().start(device, host)

    def open(self) -> PartedEngine:
        device, host = self.sizes
        before = getattr(self, "engine", None)
        engine = make_parted(
            self.page_size,
            (device, *self.part_sizes),
            host,
            tokens=self.tokens,
            layout=self.layout,
            store=self.folder / "store" if self.stored else None,
        )
        if self.stored and before is not None:
            engine.given = before.given
        return engine

    @rule(part=PART, count=st.integers(1, 9), tier=TIER)
    def evict_part(self, part: str, count: int, tier: str) -> None:
        before = self.engine.cache.part_stats(part)[f"{tier}_resident"]
        slots = self.engine.cache.evict_part(part, count, tier=tier)
        left = self.engine.cache.part_stats(part)[f"{tier}_resident"]
        assert left == before - len(slots)
        assert len(slots) == len(set(slots.tolist()))

    @precondition(lambda self: self.cursors)
    @rule(
        which=WHICH,
        tokens=TOKENS,
        back=st.integers(0, 2),
        forget=st.sampled_from(["", "window", "state", "all"]),
    )
    def revisit(self, which: int, tokens: list[int], back: int, forget: str) -> None:
        """Where a request ended another one goes on, or a little before, after parts or all have left."""
        after, known = self.cursors[which % len(self.cursors)]
        if forget == "all":
            self.evict(99, "device")
        elif forget:
            self.evict_part(forget, 99, "device")
        known = known[: max(0, len(known) - back * self.page_size)]
        self.match(known + tokens, after.namespace, None)
        self.fetch(-1)
        self.load(-1, 1)
        for _ in range(0, len(tokens), 4):
            self.compute(-1, 4)
        self.end(self.loaded.pop())

    @rule(sparse=st.integers(0, 4))
    def leave_out(self, sparse: int) -> None:
        self.engine.sparse = sparse

    def bound(self, request: Request, limit: int | None) -> None:
        device, usable = request.hit.device_length, request.hit.host_length
        assert device <= usable
        most = len(request.tokens) if limit is None else min(limit, len(request.tokens))
        assert usable <= most
        for length in {device, usable} - {0}:
            self.known_to(request, length)
            self.given(request, length)
        helps = request.hit.checkpoint_length
        assert helps is None or usable < helps <= most
        for other in self.loaded:
            if other.namespace == request.namespace and self.complete(other):
                same = common(other.tokens[: other.hit.length], request.tokens)
                if same == other.hit.length <= most:
                    assert device >= other.hit.length, "what is pinned must hit"

    def given(self, request: Request, length: int) -> None:
        """A hit of so many tokens rests on parts that were given."""
        space, size = request.namespace, self.page_size
        assert (space, tuple(request.tokens[:length])) in self.engine.given["state"]
        for page in range(max(0, length // size - self.engine.device.reach), length // size):
            assert (space, tuple(request.tokens[: (page + 1) * size])) in self.engine.given["window"]

    def complete(self, request: Request) -> bool:
        """Whether everything that a hit needs at the request's end is there, and pinned."""
        assert isinstance(request, PartedRequest)
        pages = request.hit.length // self.page_size
        window = range(max(0, pages - self.engine.device.reach), pages)
        return request.state and all(page in request.windows for page in window)


def variants() -> Iterator[Any]:
    for page_size in (1, 2, 4):
        for layout in ("page_unified", "layer_first"):
            for stored in (False, True):
                name = f"{page_size}-{layout}-{'store' if stored else 'memory'}"
                yield pytest.param(page_size, layout, stored, id=name)


@pytest.mark.parametrize(("page_size", "layout", "stored"), list(variants()))
def test_any_order_of_calls_with_parts(page_size: int, layout: str, stored: bool) -> None:
    body = {"page_size": page_size, "layout": layout, "stored": stored}
    machine = type(f"Parted{page_size}{layout}{stored}", (Parted,), body)
    machine.TestCase.settings = settings(
        max_examples=40,
        stateful_step_count=60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine.TestCase("runTest").runTest()
