"""A store as an object: what it tells, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from relay_rig import HIT, KEYS, SIZE, WHOSE, get, put

from hicache import ArgumentError
from hicache.storage import Held, Page, Store, open  # noqa: A004
from hicache.testing.memory import MemoryStore


def test_clear_list_compact_and_statistics() -> None:
    class Compacts(MemoryStore):
        def compact(self) -> int:
            return 4096

    store = open(Compacts(100_000))
    assert put(store) == [HIT] * 4
    assert sorted(item.key for item in store.list()) == KEYS
    assert {item.bytes for item in store.list()} == {SIZE}, "without its checksum"
    assert store.compact() == 4096
    counts = store.statistics()
    assert (counts["pages"], counts["capacity"], counts["written_pages"]) == (4, 100_000, 4)
    assert get(store) == [HIT] * 4
    assert store.clear(WHOSE) == 4
    assert store.statistics()["pages"] == 0
    assert store.statistics()["read_pages"] == 4
    store.close()


@pytest.mark.parametrize(
    "bad", [None, [(b"short", b"k" * 32, 1, 1)], [Held(WHOSE, KEYS[0], -1, 0)], [7]], ids=repr
)
def test_a_list_of_nonsense_is_an_error(bad: Any) -> None:
    class Lists(MemoryStore):
        def list(self) -> Any:
            return bad

        def clear(self, identity: bytes) -> Any:
            return "many"

    store = open(Lists())
    for act in (store.list, lambda: store.clear(WHOSE)):
        with pytest.raises(ArgumentError, match=r"^storage: "):
            act()
    assert put(store) == [HIT] * 4
    store.close()


@pytest.mark.parametrize(
    ("act", "argument"),
    [
        (lambda store: store.exists(b"short", KEYS), "identity"),
        (lambda store: store.exists(WHOSE, [b"short"]), "keys"),
        (lambda store: store.get(WHOSE, KEYS, []), "pages"),
        (lambda store: store.get(WHOSE, KEYS[:1], [Page.of(b"read-only")]), "pages"),
        (lambda store: store.get(WHOSE, KEYS[:2], [Page.of(SAME), Page.of(SAME)]), "pages"),
        (lambda store: store.put(WHOSE, KEYS[:1], [], [Page.of(b"x")]), "parents"),
        (lambda store: store.put(WHOSE, KEYS[:1], [b"short"], [Page.of(b"x")]), "parents"),
        (lambda store: store.clear(b""), "identity"),
    ],
)
def test_bad_arguments_are_named(act: Callable[[Store], Any], argument: str) -> None:
    store = open(MemoryStore())
    with pytest.raises(ArgumentError, match=f"^{argument}: "):
        act(store)
    store.close()


SAME = bytearray(10)
