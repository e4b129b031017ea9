"""What a cache tells routers, as Python's values and as the maps of KV events."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Engine, make

from hicache import ArgumentError, ModelIdentity, Namespace, events, metrics
from hicache.events import Event, Lost, Removed, Stored

PROMPT = list(range(1, 9))


def chain(tokens: list[int], page: int, before: bytes = b"") -> list[bytes]:
    """The digests of whole pages, by definition."""
    digests: list[bytes] = []
    for at in range(0, len(tokens), page):
        body = b"".join(token.to_bytes(4, "little") for token in tokens[at : at + page])
        digests.append(hashlib.sha256((digests[-1] if digests else before) + body).digest())
    return digests


def run(engine: Engine, namespace: Namespace | None = None) -> list[Event]:
    engine.finish(engine.run(PROMPT, namespace))
    assert engine.cache.drain(10)
    return engine.cache.take_events()


def test_a_page_is_told_of_once_for_each_tier(tmp_path: Path) -> None:
    engine = make(4, store=tmp_path, events=True)
    pages = tuple(chain(PROMPT, 4))
    tiers = ("device", "host", "storage")
    told = [Stored(tier, pages, None, tuple(PROMPT), 4) for tier in tiers]
    assert run(engine) == told
    assert run(engine) == [], "all of it is there"
    engine.cache.evict(1)
    engine.cache.evict(2, "host")
    assert engine.cache.take_events() == [
        Removed("device", pages[1:]),
        Removed("host", pages[::-1]),
    ]
    engine.cache.reset()
    assert engine.cache.take_events() == [events.Cleared("device"), events.Cleared("host")]
    engine.cache.clear("storage")
    assert engine.cache.take_events() == [events.Cleared("storage")]
    engine.cache.close()
    assert engine.cache.take_events() == []


def test_whose_pages_they_are() -> None:
    engine = make(4, events=True)
    told = run(engine, Namespace(extra_key="key", adapter="lora", salt="secret"))[0]
    assert isinstance(told, Stored)
    assert (told.extra_key, told.adapter, told.parent) == ("key", "lora", None)
    assert told.namespace is not None
    assert told.pages == tuple(chain(PROMPT, 4, told.namespace))
    assert "secret" not in repr(told)


def test_pairs_are_told_as_pairs() -> None:
    engine = make(2, keys="bigrams", events=True)
    told = run(engine)[0]
    assert isinstance(told, Stored)
    assert told.tokens == (1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7)
    assert next(events.wire([told]))["token_ids"] == [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]


def test_a_router_that_begins_late_knows_the_same() -> None:
    engine = make(4, events=True)
    told = run(engine)
    scratch = engine.cache.events_from_scratch()
    assert scratch[:3] == [events.Cleared(tier) for tier in ("device", "host", "storage")]
    assert scratch[3:] == told


def test_a_list_that_nobody_takes_says_what_it_lost() -> None:
    engine = make(4, events=3)
    assert run(engine) == [Lost(4)]
    assert engine.cache.stats()["lost_event_pages"] == 4
    assert "hicache_lost_event_pages_total 4\n" in metrics.prometheus(engine.cache)


def test_off_by_default() -> None:
    engine = make(4)
    assert run(engine) == []
    assert engine.cache.events_from_scratch() == []
    assert engine.cache.stats()["hashed_pages"] == 0


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes", None])
def test_what_events_can_not_be(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^events"):
        make(4, store=tmp_path / "store", identity=ModelIdentity("m"), events=value)
    assert not (tmp_path / "store").exists(), "nothing was made"


def test_the_maps_that_routers_read() -> None:
    """The numbers are those of the page hash chain's worked example."""
    engine = make(4, events=True)
    told = run(engine)
    device, host = events.wire(told)
    assert device == {
        "type": "BlockStored",
        "block_hashes": [-3488128144981237669, 5674439469042975057],
        "parent_block_hash": None,
        "token_ids": PROMPT,
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
    }
    assert host == device | {"medium": "CPU_PINNED"}
    engine.cache.evict(1)
    engine.finish(engine.run([*PROMPT[:4], 50, 51, 52, 53], Namespace(adapter="lora")))
    removed, stored, *_ = events.wire(engine.cache.take_events())
    assert removed == {"type": "BlockRemoved", "block_hashes": [5674439469042975057], "medium": "GPU"}
    assert stored["lora_name"] == "lora"


def test_clears_and_losses_are_all_that_the_maps_can_say() -> None:
    page = Removed("device", (bytes(32),))
    stored = Removed("storage", (bytes(32),))
    cleared = [events.Cleared("device"), events.Cleared("host")]
    types = [told["type"] for told in events.wire([*cleared, Lost(3), stored, page, *cleared])]
    assert types == ["AllBlocksCleared", "BlockRemoved", "AllBlocksCleared"]
    media = {"storage": "DISK"}
    assert [told["medium"] for told in events.wire([page, stored], media)] == ["DISK"]
    assert list(events.wire([events.Cleared("device")], media)) == []
    with pytest.raises(ArgumentError, match=r"^media"):
        events.wire([], {"disk": "DISK"})
