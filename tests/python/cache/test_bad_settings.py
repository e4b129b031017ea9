"""What a cache can't be made of: refused before anything is made, with the setting's name in front."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import Device, Shape

from hicache import ArgumentError, HiCache, Host, ModelIdentity, Namespace, pools

MODEL = ModelIdentity(model="m")
NAN, INFINITE = float("nan"), float("inf")


def build(**settings: Any) -> HiCache:
    arguments = {"pools": Device(8, 2).pools, "page_size": 2, "host": Host(tokens=16), **settings}
    return HiCache(arguments.pop("pools"), arguments.pop("page_size"), **arguments)


WRONG: dict[str, list[Any]] = {
    "page_size": [0, -1, 3.5, True, np.bool_(True), torch.tensor(True), "2", None, NAN, 2**20 + 1, 2**33],
    "write": ["write_trough", "", None, 3],
    "write_storage": ["write_through_", "", None, 3],
    "clean_reserve": [-0.1, 1.5, NAN, INFINITE, True, "0.1", None],
    "prefetch": ["best_effort_", None],
    "eviction": ["LRU ", None],
    "host_copies": ["drop_", "", None],
    "slots": ["nobody", None],
    "prefetch_threshold": [-1, 1.5, True, "1", 2**70],
    "prefetch_timeout_base": [-1, NAN, INFINITE, True, "1", None, 10**400],
    "prefetch_timeout_per_ki_token": [-0.1, NAN, INFINITE, True, "1", None],
    "load_threshold": [-1, 1.5, True, "1", 2**70],
    "prefetch_deadline": [0, -1.0, NAN, INFINITE, True, "30", None],
    "store_deadline": [0, -1.0, NAN, INFINITE, True, "30", None],
    "load_deadline": [0, -1.0, NAN, INFINITE, True, np.bool_(True), "30", None, np.float32(0), 10**400],
    "io_threads": [0, -1, 1.5, True, "2", 2**70],
    "write_queue": [0, -1, 1.5, True, "2", 2**62],
    "host": ["64MiB", 64, -1, 1.5, {"size": 1}],
    "pools": [[], None, 3, "kv", [3]],
    "identity": ["smollm2", 3],
}


@pytest.mark.parametrize(
    ("setting", "value"), [(setting, value) for setting, values in WRONG.items() for value in values]
)
def test_settings_that_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^{setting}: "):
        build(**{setting: value})


HOSTS: list[tuple[dict[str, Any], str]] = [
    ({"size": "12XB"}, "host size: "),
    ({"size": "GB"}, "host size: "),
    ({"size": ""}, "host size: "),
    ({"size": "-1GB"}, "host size: "),
    ({"size": "nan"}, "host size: "),
    ({"size": 0}, "host size: "),
    ({"size": -5}, "host size: "),
    ({"size": True}, "host size: "),
    ({"size": "0.1 B"}, "host size: "),
    ({"size": 127}, "host: no room for a single page"),
    ({"size": "100 EB"}, "host size: "),
    ({"size": "9" * 400}, "host size: "),
    ({"size": "100TB"}, "host: "),
    ({"tokens": 0}, "host tokens: "),
    ({"tokens": 1}, "host: no room for a single page"),
    ({"tokens": -4}, "host tokens: "),
    ({"tokens": 2.5}, "host tokens: "),
    ({"tokens": True}, "host tokens: "),
    ({"tokens": 2**40}, "host: "),
    ({"ratio": 0}, "host ratio: "),
    ({"ratio": -1.0}, "host ratio: "),
    ({"ratio": NAN}, "host ratio: "),
    ({"ratio": INFINITE}, "host ratio: "),
    ({"ratio": "2"}, "host ratio: "),
    ({"ratio": 1e308}, "host: more pages"),
    ({"ratio": 0.01}, "host: no room for a single page"),
    ({"size": 1024, "tokens": 4}, "host: give one of"),
    ({"tokens": 4, "ratio": 1.0}, "host: give one of"),
    ({"size": 1024, "ratio": 1.0}, "host: give one of"),
    ({"tokens": 4, "layout": "page_last"}, "layout: "),
    ({"tokens": 4, "layout": None}, "layout: "),
]


@pytest.mark.parametrize(("host", "text"), HOSTS, ids=str)
def test_host_tiers_that_are_refused(host: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        build(host=Host(**host))


@pytest.mark.parametrize(
    ("host", "pages"),
    [
        (Host(size=1024), 8),
        (Host(size="1 KiB"), 8),
        (Host(size="1kb"), 7),
        (Host(size="0.5KiB"), 4),
        (Host(tokens=9), 4),
        (Host(ratio=1.5), 12),
        (Host(ratio=np.float32(1.5)), 12),
        (Host(tokens=np.int64(9)), 4),
        (Host(size=np.uint16(1024)), 8),
        (Host(), 16),
        (None, 0),
    ],
)
def test_host_tiers_that_are_taken(host: Host | None, pages: int) -> None:
    """A page has 128 bytes here, and the device 8 of them."""
    with build(host=host) as cache:
        assert cache.stats()["host_slots"] == pages


@pytest.mark.parametrize(
    "url",
    [
        *["", "file://", "file://relative/path", "file:/x", "s3://bucket", "FILE:///x", "nope", "no/where"],
        *["/tmp/x?size=1GiB", "file:///tmp/x?size=12XB", "file:///tmp/x?fnord=1", "file:///tmp/%zz"],
        *["\ud800", "memory://", "null:///tmp", "shm://?size=1", "file:///tmp/x?names=sglang"],
    ],
)
def test_stores_that_are_refused(url: str) -> None:
    with pytest.raises(ArgumentError, match=r"^storage: "):
        build(storage=url, identity=MODEL)


def test_shm_is_refused_where_nobody_can_map_the_host() -> None:
    with pytest.raises(ArgumentError, match=r"^host shared: "):
        build(storage="shm://", identity=MODEL)
    build(storage="shm://", identity=MODEL, host=Host(tokens=16, shared=True)).close()


def test_store_directories_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below", Path("/proc/self/below"), Path("/dev/null"), tmp_path / ("x" * 300)):
        with pytest.raises(ArgumentError, match=r"^storage: "):
            build(storage=f"file://{path}", identity=MODEL)
    assert (file.read_text(), list(tmp_path.iterdir())) == ("mine", [file])


def test_a_store_needs_an_identity_and_a_host_tier(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'store'}"
    with pytest.raises(ArgumentError, match=r"^identity: "):
        build(storage=store)
    with pytest.raises(ArgumentError, match=r"^host: "):
        build(
            storage=store, identity=MODEL, host=None, pools=Device(8, 2, Shape(layers=1, latent=True)).pools
        )
    assert list(tmp_path.iterdir()) == [], "a refused cache leaves nothing behind"


@pytest.mark.parametrize(
    "fields",
    [
        {"model": ""},
        {"rank": (1,), "world": (1,)},
        {"rank": (-1,), "world": (2,)},
        {"rank": (2, 0), "world": (2, 1)},
        {"rank": (0, 0), "world": (1,)},
        {"rank": (0,), "world": (0,)},
        {"rank": 0, "world": 1},
        {"model": None},
        {"dtype": torch.float32},
        {"revision": "\ud800"},
        {"weights_epoch": 1.5},
    ],
    ids=str,
)
def test_identities_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, TypeError), match=r"^identity: "):
        ModelIdentity(**{"model": "m", **fields})


def test_a_list_of_ranks_is_the_tuple_of_them(tmp_path: Path) -> None:
    names = []
    for rank, world in (((0,), (2,)), ([0], [2])):
        build(storage=f"file://{tmp_path}", identity=ModelIdentity("m", rank=rank, world=world)).close()
        names.append(sorted(entry.name for entry in tmp_path.iterdir()))
    assert names[0] == names[1]


def rows(count: int, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(count, *(shape or (2, 4)), dtype=dtype)


POOLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "no-tensors": (r"kv\.k_buffers: ", lambda: pools.mha("kv", None, None)),
    "no-tensor": (r"kv\.buffers: ", lambda: pools.latent("kv", torch.tensor(1))),
    "number-as-name": ("name: ", lambda: pools.mha(3, [rows(8)], [rows(8)])),  # type: ignore[arg-type]
    "surrogate-as-name": ("name: ", lambda: pools.latent("\ud800", [rows(8)])),
    "no-layers": ("kv.k_buffers: ", lambda: pools.mha("kv", [], [])),
    "no-v": ("kv.v_buffers: ", lambda: pools.mha("kv", [rows(8)], [])),
    "fewer-v": ("kv.v_buffers: ", lambda: pools.mha("kv", [rows(8)] * 2, [rows(8)])),
    "numbers": (r"kv\.k_buffers\[0\]: ", lambda: pools.mha("kv", [1], [2])),
    "lists": (r"kv\.buffers\[0\]: ", lambda: pools.latent("kv", [[[1.0]]])),
    "one-dimension": (r"kv\.buffers\[0\]: ", lambda: pools.latent("kv", torch.zeros(3, 8))),
    "gaps": (r"kv\.buffers\[0\]: ", lambda: pools.latent("kv", [rows(16)[::2]])),
    "transposed": (r"kv\.v_buffers\[0\]: ", lambda: pools.mha("kv", [rows(8)], [rows(8).transpose(1, 2)])),
    "rows-in-k": (r"kv\.k_buffers\[1\]: ", lambda: pools.mha("kv", [rows(8), rows(6)], [rows(8)] * 2)),
    "rows-of-v": ("kv.v_buffers: ", lambda: pools.mha("kv", [rows(8)], [rows(6)])),
    "dtypes": (r"kv\.buffers\[1\]: ", lambda: pools.latent("kv", [rows(8), rows(8, dtype=torch.float32)])),
    "elsewhere": (r"kv\.buffers\[0\]: ", lambda: pools.latent("kv", [rows(8).to("meta")])),
    "no-name": ("pools: ", lambda: build(pools=[pools.latent("", [rows(8)])])),
    "no-rows": ("pools: ", lambda: build(pools=[pools.latent("kv", [rows(0)])])),
    "one-row": ("pools: ", lambda: build(pools=[pools.latent("kv", [rows(1)])])),
    "no-page": (
        "pools: no room for a page of 128 tokens in 64 rows",
        lambda: build(pools=[pools.latent("kv", [rows(64)])], page_size=128, host=Host()),
    ),
    "same-names": ("pools: ", lambda: build(pools=[pools.latent("kv", [rows(8)])] * 2)),
    "other-pages": (
        "pools: ",
        lambda: build(pools=[pools.latent("a", [rows(8)]), pools.latent("b", [rows(4)])]),
    ),
    "not-in-a-list": ("pools: ", lambda: build(pools=pools.latent("kv", [rows(8)]))),
}


@pytest.mark.parametrize(("text", "make"), POOLS.values(), ids=POOLS)
def test_pools_that_are_refused(text: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        make()


@pytest.mark.parametrize("field", ["extra_key", "salt", "adapter"])
@pytest.mark.parametrize("value", [3, b"tenant", ["a"], True, "\ud800", "tenant\udfff"], ids=ascii)
def test_namespaces_that_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        Namespace(**{field: value})


def test_numbers_of_other_types_are_taken() -> None:
    numbers = {"prefetch_threshold": np.int64(1), "io_threads": np.uint8(1), "write_queue": torch.tensor(9)}
    waits = {
        "prefetch_deadline": np.float32(1.5),
        "store_deadline": Fraction(3, 2),
        "load_deadline": np.int8(2),
    }
    with build(page_size=np.int64(2), host=None, **numbers, **waits) as cache:
        assert cache.stats()["device_slots"] == 8
        assert cache.drain(np.float16(0.5))


CONFIGS: list[tuple[Any, str]] = [
    ({"page_size": 2, "page_sizes": 3}, "page_sizes: "),
    ('{"page_size": 2, "sotrage": null}', "sotrage: "),
    ({"page_size": 2, "host": {"bytes": 3}}, "host: "),
    ({"page_size": 2, "host": {"size": "12XB"}}, "host size: "),
    ({"page_size": 2, "host": {"layout": "x"}}, "layout: "),
    ({"page_size": 0}, "page_size: "),
    ({}, "page_size: "),
    ('{"page_size": 2', "config: "),
    ("[1]", "config: "),
]


@pytest.mark.parametrize(("config", "text"), CONFIGS, ids=str)
def test_configurations_that_are_refused(config: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        HiCache.from_config(Device(8, 2).pools, config)


@pytest.mark.parametrize("as_text", [False, True])
def test_every_setting_can_be_configured(tmp_path: Path, as_text: bool) -> None:
    config = {
        "page_size": 2,
        "host": {"size": "1KiB", "layout": "layer_first"},
        "storage": f"file://{tmp_path}",
    }
    config |= {
        "write": "write_through",
        "write_storage": "write_back",
        "clean_reserve": 0.25,
        "prefetch": "wait_complete",
        "eviction": "lru",
        "host_copies": "keep",
    }
    config |= {"slots": "cache", "prefetch_threshold": 3, "prefetch_deadline": 1, "store_deadline": 2.5}
    config |= {"load_deadline": 3.5, "io_threads": 1, "write_queue": 9}
    config |= {"prefetch_timeout_base": 0, "prefetch_timeout_per_ki_token": 0.5, "load_threshold": 0}
    given = json.dumps(config) if as_text else config
    with HiCache.from_config(Device(8, 2).pools, given, MODEL) as cache:
        assert (cache.stats()["host_slots"], cache.page_size) == (8, 2)
