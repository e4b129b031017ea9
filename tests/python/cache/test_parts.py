"""Windows and states at the cache, verb by verb: what becomes of given slots, what a hit has, who is refused,
how the host's size is shared, and what a pin keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from parted_engine import PartedEngine, make_parted

from hicache import ArgumentError, DetachedError, HiCache, HitError, Host, pools

TOKENS = list(range(40))


@pytest.fixture
def engine() -> PartedEngine:
    """Pages of 2 tokens: 20 pages, 20 of windows (5 tokens: 3 pages) and 8 states, on device and host."""
    return make_parted(2, (20, 20, 8), 20, tokens=5)


def loaded(cache: HiCache, tokens: list[int]) -> Any:
    hit = cache.match_prefix(tokens)
    cache.load([hit])
    return hit


def of(slots: torch.Tensor | None) -> list[int]:
    assert slots is not None
    return slots.tolist()


def test_what_is_given_is_adopted_and_a_second_one_is_a_duplicate(engine: PartedEngine) -> None:
    cache = engine.cache
    assert cache.parts == ("window", "state")
    hit, other = loaded(cache, TOKENS), loaded(cache, TOKENS)
    assert {name: of(slots) for name, slots in hit.parts.items()} == {"window": [], "state": []}
    slots, windows, states = (of(cache.allocate(4)), of(cache.allocate_part("window", 4)), [7])
    states = of(cache.allocate_part("state", 1))
    done = cache.insert_parts(hit, TOKENS[:8], slots, {"window": [-1, *windows[1:]], "state": states})
    assert of(done.parts["window"]) == [-1, *windows[1:]]
    assert of(done.parts["state"]) == states
    assert of(hit.parts["window"]) == [-1, *windows[1:]]
    # Another one's: the page without a window gets one, the rest are duplicates.
    again, twice = of(cache.allocate(4)), of(cache.allocate_part("window", 4))
    done = cache.insert_parts(other, TOKENS[:8], again, {"window": twice})
    assert of(done.slots) == slots
    assert of(done.duplicates) == again
    assert of(done.parts["window"]) == [twice[0], *windows[1:]]
    assert list(done.parts) == ["window"]
    assert of(other.parts["state"]) == states, "whoever gave it"
    cache.free(again)
    cache.free_part("window", [windows[0], *twice[1:]])
    cache.free_part("state", [])
    cache.check()
    for slots_free, part in ((20 - 4, "window"), (8 - 1, "state")):
        assert cache.part_stats(part)["device_free"] == slots_free


def test_a_place_without_a_checkpoint_has_none(engine: PartedEngine) -> None:
    cache = engine.cache
    hit = loaded(cache, TOKENS)
    cache.insert_parts(
        hit, TOKENS[:4], of(cache.allocate(2)), {"window": of(cache.allocate_part("window", 2))}
    )
    assert of(hit.parts["state"]) == []
    hit.release()
    hit = cache.match_prefix(TOKENS)
    assert (hit.device_length, hit.checkpoint_length) == (0, 4)
    with pytest.raises(HitError, match="before it is loaded"):
        _ = hit.parts
    hit.release()
    with pytest.raises(HitError, match="was released"):
        _ = hit.checkpoint_length


WRONG: dict[str, tuple[Callable[[HiCache, Any], object], str]] = {
    "part": (
        lambda c, h: c.allocate_part("windows", 1),
        "part: unknown part 'windows': there is 'window' and",
    ),
    "count": (lambda c, h: c.allocate_part("window", -1), "count: must be at least 0"),
    "tier": (lambda c, h: c.evict_part("state", 1, tier="disk"), "tier: unknown tier 'disk'"),
    "not ours": (lambda c, h: c.free_part("state", [3]), "slots: state: slot 3 is free"),
    "no such slot": (lambda c, h: c.free_part("state", [8]), "slots: state: slot 8"),
    "twice": (lambda c, h: c.free_part("window", [0, 0]), "slots: window: slot 0 is named twice"),
    "a hole": (
        lambda c, h: c.free_part("window", torch.tensor([0, -1], dtype=torch.int32)),
        "slots: -1 is no slot",
    ),
    "given, not ours": (
        lambda c, h: c.insert_parts(h, [1, 2], [0], {"state": [3]}),
        "parts: state: slot 3 is free",
    ),
    "no mapping": (lambda c, h: c.insert_parts(h, [1, 2], [0], [0]), "parts: need slots by the part's name"),  # type: ignore[arg-type]
    "another part": (lambda c, h: c.insert_parts(h, [1, 2], [0], {"kv": [0]}), "part: unknown part 'kv'"),
    "too many windows": (
        lambda c, h: c.insert_parts(h, [1, 2], [0], {"window": [0, 1]}),
        "parts: window: needs 1 slots",
    ),
    "two states": (
        lambda c, h: c.insert_parts(h, [1, 2], [0], {"state": [0, 1]}),
        "parts: state: needs 1 slots",
    ),
    "no slot": (lambda c, h: c.insert_parts(h, [1, 2], [0], {"state": [-2]}), "parts: -2 is no slot"),
    "floats": (
        lambda c, h: c.insert_parts(h, [1, 2], [0], {"state": torch.zeros(1)}),
        "parts: need int32 or int64, got torch.float32",
    ),
    "nothing to belong to": (
        lambda c, h: c.insert_parts(h, [1], [], {"window": [], "state": [0]}),
        "parts: state: there is no whole page",
    ),
}


@pytest.mark.parametrize(("call", "error"), WRONG.values(), ids=WRONG)
def test_wrong_parts_are_refused_and_change_nothing(
    engine: PartedEngine, call: Callable[[HiCache, Any], object], error: str
) -> None:
    cache = engine.cache
    hit = loaded(cache, TOKENS)
    assert (of(cache.allocate(1)), of(cache.allocate_part("window", 2))) == ([0], [0, 1])
    assert of(cache.allocate_part("state", 2)) == [0, 1]
    before = [cache.stats(), *map(cache.part_stats, cache.parts), cache.digest()]
    with pytest.raises(ArgumentError) as raised:
        call(cache, hit)
    assert str(raised.value).startswith(error)
    assert before == [cache.stats(), *map(cache.part_stats, cache.parts), cache.digest()]
    cache.check()


def test_a_cache_without_parts_says_so() -> None:
    k = [torch.zeros(8, 4)]
    with HiCache([pools.mha("kv", k, k)], 2) as cache:
        assert cache.parts == ()
        with pytest.raises(ArgumentError, match="unknown part"):
            cache.allocate_part("window", 1)


def test_an_engine_that_owns_its_slots_has_no_parts() -> None:
    k = [torch.zeros(8, 4)]
    with pytest.raises(ArgumentError, match=r"^slots: "):
        HiCache([pools.mha("kv", k, k), pools.mha("w", k, k, window=3)], 2, slots="engine")


@pytest.mark.parametrize(
    ("host", "slots"),
    [
        (Host(), [40, 40, 16]),
        (Host(ratio=0.5), [10, 10, 4]),
        (Host(tokens=20), [10, 10, 4]),
        (Host(size="30KiB"), None),
    ],
)
def test_the_host_is_shared_as_the_device_is(host: Host, slots: list[int] | None) -> None:
    """A ratio is everybody's; bytes are divided as the device's are; tokens are those of full attention."""
    device = make_parted(2, (20, 20, 8), 0).device
    with HiCache(device.pools, 2, host=host) as cache:
        stats = [cache.stats(), *map(cache.part_stats, cache.parts)]
        found = [one["host_slots"] for one in stats]
        if slots is not None:
            assert found == slots
            return
        page_bytes = [pool.page_bytes(2) for pool in device.pools]
        used = sum(count * size for count, size in zip(found, page_bytes, strict=True))
        assert 0.9 * 30 * 1024 < used <= 30 * 1024
        assert found[1] == found[0]
        assert found[2] == found[0] * 8 // 20


def test_no_part_has_more_host_slots_than_there_can_be() -> None:
    with pytest.raises(ArgumentError, match=r"^host: more pages"):
        Host(tokens=2**31).memory(1, [1, 1], [1, 4])


def test_a_hit_holds_its_window_and_not_its_edge() -> None:
    """20 pages came in one insert. A hit in their middle needs three pages of the window, and holds four."""
    k, w = [torch.zeros(80, 4)], [torch.zeros(40, 4)]
    with HiCache([pools.mha("kv", k, k), pools.mha("window", w, w, window=5)], 2) as cache:
        hit, windows = loaded(cache, TOKENS), of(cache.allocate_part("window", 20))
        cache.insert_parts(hit, TOKENS, of(cache.allocate(20)), {"window": windows})
        hit.release()
        hit = cache.match_prefix(TOKENS, limit=20)
        cache.load([hit])
        assert hit.length == 20
        cache.evict_part("window", 20)
        assert cache.part_stats("window")["device_resident"] == 4
        assert of(hit.parts["window"]) == [-1] * 7 + windows[7:10]
        cache.check()
        hit.release()


def test_rows_of_pages_and_latents_have_windows_too() -> None:
    """A window whose rows are pages is no state; and what follows a window may be of any kind."""
    k, rows = [torch.zeros(8, 3)], [torch.zeros(4, 5)]
    own = [pools.mha("kv", k, k), pools.pages("index", rows, window=4)]
    beside = [pools.pages("pages", rows, follows="window", window=4)]
    beside += [pools.latent("latent", k, follows="window", window=4)]
    for others in (own, [pools.mha("kv", k, k), pools.mha("window", k, k, window=4), *beside]):
        with HiCache(others, 2) as cache:
            hit, (part,) = loaded(cache, [1, 2, 3, 4, 5, 6]), cache.parts
            slots, windows = cache.allocate(3), cache.allocate_part(part, 3)
            assert slots is not None
            assert windows is not None
            cache.insert_parts(hit, [1, 2, 3, 4, 5, 6], slots, {part: windows})
            assert hit.parts[part].tolist() == [-1, *windows[1:].tolist()]
            hit.release()


def test_checkpoints_per_path() -> None:
    device = make_parted(2, (20, 20, 8), 0).device
    with HiCache(device.pools, 2, checkpoints_per_path=2) as cache:
        hit = loaded(cache, TOKENS)
        for start in range(0, 16, 2):
            (state,) = of(cache.allocate_part("state", 1))
            cache.insert_parts(hit, TOKENS[start : start + 2], of(cache.allocate(1)), {"state": [state]})
        assert cache.part_stats("state")["device_resident"] <= 3
        assert of(hit.parts["state"]) == [state]
        cache.check()


@pytest.mark.parametrize("host_pages", [1, 2, 3, 5])
def test_a_backup_of_a_part_of_an_edge(host_pages: int) -> None:
    """The host has no room for all of an edge: what fits is backed up, and the rest is tried again."""
    engine = make_parted(1, (20, 20, 8), host_pages, tokens=2)
    cache = engine.cache
    request = engine.run(TOKENS[:7], chunk=4)
    cache.check()
    assert cache.drain(10)
    engine.check()
    engine.verify(request)
    assert cache.stats()["host_resident"] == min(host_pages, 7)
    engine.finish(request)


def test_parts_come_back_after_a_sleep(engine: PartedEngine) -> None:
    """Device memory goes and comes; the host keeps windows and states."""
    cache, device = engine.cache, engine.device
    engine.finish(engine.run(TOKENS[:20], chunk=4))
    assert cache.detach() == 0
    for part in SIZES:
        assert cache.part_stats(part)["device_resident"] == 0
        device.poison_part(part, range(device.sizes[part]))
    device.poison(range(device.slots))
    with pytest.raises(DetachedError):
        cache.allocate_part("window", 1)
    cache.attach(device.pools)
    request = engine.match(TOKENS[:20])
    assert (request.hit.device_length, request.hit.host_length) == (0, 20)
    engine.load(request)
    engine.verify(request)
    engine.check()
    engine.finish(request)


SIZES = ("window", "state")
