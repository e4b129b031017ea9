"""Tensors that go and come, pools that are only declared, and host memory that others can map."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH

from hicache import ArgumentError, DetachedError, HiCache, Host, ModelIdentity, _hicache, pools

TOKENS = list(range(1, 9))
MODEL = ModelIdentity("m")
LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified")


def tensors(rows: int = 16) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """K and V of two layers, 4 heads of 3 and 5 elements."""
    k = [torch.zeros(rows, 4, 3, dtype=torch.float16) for _ in range(2)]
    return k, [torch.zeros(rows, 4, 5, dtype=torch.float16) for _ in range(2)]


def declared(rows: int = 16) -> pools.Pool:
    return pools.mha("kv", *tensors(rows)).declared()


def compute(cache: HiCache, planes: list[torch.Tensor]) -> list[torch.Tensor]:
    """Four pages of two tokens with random rows; returns them, plane by plane."""
    hit = cache.match_prefix(TOKENS)
    cache.load([hit])
    slots = cache.allocate(4)
    assert slots is not None
    rows = (slots.long()[:, None] * 2 + torch.arange(2)).reshape(-1)
    generator = torch.Generator().manual_seed(5)
    wanted = [torch.randn(8, *plane.shape[1:], generator=generator).half() for plane in planes]
    for plane, page in zip(planes, wanted, strict=True):
        plane[rows] = page
    cache.insert(hit, TOKENS, slots)
    assert cache.drain(10)
    hit.release()
    return wanted


def verify(cache: HiCache, planes: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    hit = cache.match_prefix(TOKENS)
    load = cache.load([hit])
    for layer in range(2):
        load.wait_layer(layer)
    assert hit.length == 8
    rows = (hit.slots.long()[:, None] * 2 + torch.arange(2)).reshape(-1)
    for plane, page in zip(planes, wanted, strict=True):
        assert torch.equal(plane[rows], page)
    hit.release()


@pytest.mark.parametrize("arrival", ["layers", "together"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_engine_sleeps_and_wakes_up(layout: str, arrival: str) -> None:
    host = Host(tokens=16, layout=layout, arrival=arrival, copy_threads=2)
    k, v = tensors()
    with HiCache([pools.mha("kv", k, v)], 2, host=host, load_threshold=0) as cache:
        wanted = compute(cache, [*k, *v])
        gone = [weakref.ref(tensor) for tensor in (*k, *v)]
        assert cache.attached
        assert cache.detach() == 0
        del k, v
        gc.collect()
        assert [tensor() for tensor in gone] == [None] * 4, (
            "the cache keeps tensors that it was asked to let go"
        )
        assert not cache.attached
        assert (cache.stats()["device_slots"], cache.stats()["host_resident"]) == (0, 4)
        for verb in (lambda: cache.allocate(1), lambda: cache.load([]), cache.detach):
            with pytest.raises(DetachedError):
                verb()
        k, v = tensors(rows=12)
        cache.attach([pools.mha("kv", k, v)])
        assert cache.stats()["device_slots"] == 6
        verify(cache, [*k, *v], wanted)
        cache.check()


def test_a_leader_only_declares(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"storage": tmp_path, "identity": MODEL, **ANY_LENGTH}
    k, v = tensors()
    with HiCache([pools.mha("kv", k, v)], 2, host=Host(), **settings) as cache:
        wanted = compute(cache, [*k, *v])
    pool = pools.declare("kv", 2, 16, [(4, 3), (4, 5)], torch.float16)
    assert pool == declared()
    with HiCache([pool], 2, host=Host(layout="page_first"), **settings) as cache:
        hit = cache.match_prefix(TOKENS)
        cache.prefetch(hit)
        assert cache.drain(10)
        hit.release()
        k, v = tensors()
        cache.attach([pools.mha("kv", k, v)])
        verify(cache, [*k, *v], wanted)


def test_what_is_in_use_can_not_be_detached() -> None:
    k, v = tensors()
    with HiCache([pools.mha("kv", k, v)], 2, host=Host(tokens=16), load_threshold=0) as cache:
        hit = cache.match_prefix(TOKENS)
        cache.load([hit])
        with pytest.raises(ArgumentError, match=r"^pools: 1 hits are loaded"):
            cache.detach()
        slots = cache.allocate(1)
        assert slots is not None
        hit.release()
        with pytest.raises(ArgumentError, match=r"^pools: 1 device slots are out"):
            cache.detach()
        with pytest.raises(ArgumentError, match=r"^pools: device memory is attached already"):
            cache.attach([pools.mha("kv", k, v)])
        cache.free(slots)
        cache.detach()
        wider = [torch.zeros(16, 4, 4, dtype=torch.float16) for _ in range(2)]
        wrong = [pools.mha("kv", k, wider), pools.mha("vk", k, v), declared(), pools.mha("kv", k[:1], v[:1])]
        for other in wrong:
            with pytest.raises(ArgumentError, match=r"^pools: "):
                cache.attach([other])
        cache.check()


def test_an_engine_that_goes_to_sleep_does_not_wait_for_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"host": Host(), "storage": tmp_path, "identity": MODEL, **ANY_LENGTH}
    k, v = tensors()
    with HiCache([pools.mha("kv", k, v)], 2, **settings) as cache:
        wanted = compute(cache, [*k, *v])
    with HiCache([pools.mha("kv", k, v)], 2, **settings) as cache:
        hit = cache.match_prefix(TOKENS)
        assert cache.prefetch(hit)
        polls: list[None] = []
        with monkeypatch.context() as patch:
            patch.setattr(cache, "poll", lambda: polls.append(None) or [])
            cache.detach(timeout=0.1)
        assert (polls, hit.waiting, cache.attached) == ([], True, False)
        assert cache.drain(10)
        hit.release()
        cache.attach([pools.mha("kv", k, v)])
        verify(cache, [*k, *v], wanted)


WHAT_CAN_BE_DECLARED: dict[str, tuple[Callable[[], list[pools.Pool]], str | None]] = {
    "a draft pool": (lambda: [declared(), pools.declare("draft", 1, 16, [(2, 4)], torch.float32)], None),
    "an indexer's pages": (
        lambda: [declared(), pools.declare("index", 2, 8, [(24,)], torch.uint8, of_pages=True)],
        None,
    ),
    "no bytes": (lambda: [declared(), pools.declare("logical", 1, 16, [], torch.uint8)], None),
    "follows by name": (
        lambda: [declared(), pools.declare("d", 1, 16, [(2,)], torch.half, follows="kv")],
        None,
    ),
    "a window": (
        lambda: [declared(), pools.declare("swa", 1, 6, [(2, 4)] * 2, torch.half, window=4)],
        None,
    ),
    "states": (
        lambda: [
            declared(),
            pools.states("ssm", [[torch.zeros(9, 4, 4), torch.zeros(9, 3).half()]]).declared(),
        ],
        None,
    ),
    "slots of its own for all pages": (
        lambda: [declared(), pools.declare("d", 1, 16, [(2,)], torch.half, follows="d")],
        "pool d: has slots of its own, so that a hit can't need all of its pages",
    ),
    "follows nobody": (
        lambda: [declared(), pools.declare("d", 1, 16, [(2,)], torch.half, follows="vk")],
        'pool d: follows "vk", which is no other pool with slots of its own',
    ),
    "other pages": (
        lambda: [declared(), pools.declare("index", 2, 9, [(24,)], torch.uint8, of_pages=True)],
        "all need the same number of pages",
    ),
}


@pytest.mark.parametrize(("make", "error"), WHAT_CAN_BE_DECLARED.values(), ids=WHAT_CAN_BE_DECLARED)
def test_pools_are_declarations(make: Callable[[], list[pools.Pool]], error: str | None) -> None:
    if error is None:
        HiCache(make(), 2, host=Host()).close()
        return
    with pytest.raises(ArgumentError, match=r"^pools: ") as raised:
        HiCache(make(), 2, host=Host())
    assert error in str(raised.value)


def test_an_indexer_travels_with_its_pages() -> None:
    k, v = tensors()
    index = [torch.zeros(8, 24, dtype=torch.uint8) for _ in range(2)]
    both, host = [pools.mha("kv", k, v), pools.pages("index", index)], Host(layout="page_head")
    with HiCache(both, 2, host=host, load_threshold=0) as cache:
        hit = cache.match_prefix(TOKENS)
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        wanted = torch.randint(0, 256, (4, 24), dtype=torch.uint8)
        index[1][slots.long()] = wanted
        cache.insert(hit, TOKENS, slots)
        assert cache.drain(10)
        hit.release()
        cache.evict(4)
        index[1].zero_()
        hit = cache.match_prefix(TOKENS)
        cache.load([hit]).wait()
        assert torch.equal(index[1][hit.slots.long()], wanted)
        hit.release()


def test_a_hybrid_is_pools_with_the_models_layer_numbers() -> None:
    k, v = tensors()
    state = torch.zeros(9, 4, 4), torch.zeros(9, 3).half()
    layers = [pools.State(state), pools.Full((k[0], v[0])), pools.Window((k[1], v[1]), 4), pools.State(state)]
    full, recurrent, window = pools.hybrid("kv", layers)
    assert [pool.name for pool in (full, recurrent, window)] == ["kv", "kv.state", "kv.window4"]
    assert [[(plane.layer, plane.role) for plane in pool.planes] for pool in (full, recurrent, window)] == [
        [(1, 0), (1, 1)],
        [(0, 0), (0, 1), (3, 0), (3, 1)],
        [(2, 0), (2, 1)],
    ]
    assert (recurrent.of_pages, recurrent.window, recurrent.follows) == (True, 1, "kv.state")
    assert (window.of_pages, window.window, window.heads, window.rows) == (False, 4, 4, 16)
    assert recurrent.page_bytes(2) == 2 * (64 + 6)
    assert full.declaration() == ("kv", [(1, 0, 24), (1, 1, 40)], (4, 1), False, "", 0)
    for wrong in ([pools.State(state)], [k[0]], [], [pools.Full((k[0], v[0][:4]))]):
        with pytest.raises(ArgumentError, match=r"^kv"):
            pools.hybrid("kv", wrong)  # type: ignore[arg-type]


OTHER_PROCESS = """
import mmap, sys
path, bytes_, at, length = sys.argv[1], *map(int, sys.argv[2:])
with open(path, "r+b") as file:
    sys.stdout.buffer.write(mmap.mmap(file.fileno(), bytes_)[at : at + length])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memfd")
def test_another_process_maps_the_host_tier() -> None:
    k, v = tensors()
    pool = pools.mha("kv", k, v)
    with HiCache([pool], 2, host=Host(tokens=8, shared=True, head_groups=2)) as cache:
        wanted = compute(cache, [*k, *v])
        _, size, descriptor = cache.host_memory()["kv"]
        layout = _hicache.Layout("page_unified", pool.declaration(2), 2, 4)
        assert layout.bytes == size
        # Heads 2 and 3 of layer 1 of the first page that was backed up.
        start, length = layout.window(0, 1, 1, 2)
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        arguments = [sys.executable, "-c", OTHER_PROCESS, path, str(size), str(start), str(length)]
        seen = subprocess.run(arguments, capture_output=True, check=True, timeout=60).stdout
        page = [wanted[plane][:2, 2:].contiguous().view(torch.uint8).flatten() for plane in (1, 3)]
        assert seen == bytes(torch.cat(page).tolist())


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ({"head_groups": 0}, "host head_groups: "),
        ({"head_groups": 3}, "pools: pool kv: 4 heads don't make 3 equal groups"),
        ({"head_groups": 2, "layout": "page_head"}, "host head_groups: "),
        ({"shared": 1}, "host shared: "),
        ({"prefault": None}, "host prefault: "),
        ({"numa_node": -1}, "host numa_node: "),
        ({"copy_threads": 0}, "host copy_threads: "),
        ({"copy_threads": 257}, "host copy_threads: "),
        ({"arrival": "late"}, "host arrival: "),
        ({"size": "auto", "ratio": 2.0}, "host: give one of"),
        ({"size": "400GB"}, "host: needs [0-9]+ bytes of memory, but [0-9]+ are available"),
    ],
    ids=str,
)
def test_host_settings_that_are_refused(host: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        HiCache([declared()], 2, host=Host(**host))


def test_a_host_tier_takes_what_there_is() -> None:
    with HiCache([declared()], 2, host=Host(size="auto")) as cache:
        assert cache.stats()["host_slots"] == 16, "there is more than twice the device's memory"
    # A device of 2^31 tokens: more than this machine has.
    large = pools.declare("kv", 60, 2**31, [(8, 128), (8, 128)], torch.bfloat16)
    available = _hicache.memory_available()
    assert available is not None
    slots = Host(size="auto").slots(64, large.page_bytes(64), large.slots(64))
    assert slots == pytest.approx(available * 0.8 / large.page_bytes(64), rel=0.1)
