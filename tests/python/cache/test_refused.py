"""Every setting that there is refuses what it can't mean, by its own name, before anything is made: no
thread, no file, no memory. Through the constructor, and from a file of settings."""

from __future__ import annotations

import gc
import inspect
import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import Device

from hicache import ArgumentError, GpuCopies, HiCache, Host, ModelIdentity, pools

MODEL = ModelIdentity(model="m")

#: One value for each that is refused; what the names mean at their edges is tested beside the settings.
REFUSED: dict[str, Any] = {
    "pools": [],
    "page_size": 3.5,
    "host": "64GiB",
    "storage": "s3://bucket",
    "identity": "a model",
    "gpu_copies": {"staging": (0, 0)},
    "unified": 7,
    "write": "write_behind",
    "write_storage": "never",
    "prefetch": "forever",
    "policy": object(),
    "eviction": "mru",
    "host_copies": "drop",
    "clean_reserve": 1.0001,
    "keys": "trigrams",
    "slots": "nobody",
    "checkpoints_per_path": -1,
    "prefetch_timeout_base": -0.001,
    "prefetch_timeout_per_ki_token": -1,
    "prefetch_threshold": -1,
    "prefetch_deadline": -30.0,
    "load_threshold": 0.5,
    "store_deadline": 0,
    "load_deadline": -1e-9,
    "io_threads": 0,
    "write_queue": 2**40,
    "events": 0,
    "host_mode": "buffer",
}
HOST: dict[str, Any] = {
    "size": "12XB",
    "tokens": 0,
    "ratio": 0.0,
    "layout": "page_last",
    "head_groups": 0,
    "shared": "yes",
    "prefault": 1,
    "numa_node": -1,
    "copy_threads": 0,
    "arrival": "soon",
    "restart": 3,
}
GPU: dict[str, Any] = {"engine_from": 1, "staging": ("1XB", 0), "multiprocessors": (0, 0)}
#: What each can mean and both together can't.
TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"host": None, "write": "write_back"}, "host: "),
    ({"host": None, "write": "write_through_selective"}, "host: "),
    ({"host": None, "storage": "memory://?size=1MiB"}, "host: "),
    ({"identity": None, "storage": "memory://?size=1MiB"}, "identity: "),
    ({"host": Host(tokens=8, ratio=1.0)}, "host: give one of"),
    ({"host": Host(tokens=8, restart="/dev/shm/x"), "identity": None}, "identity: "),
    ({"host": Host(tokens=8, restart="/dev/shm/x", shared=True)}, "host restart: "),
    ({"host": Host(size="auto", restart="/dev/shm/x")}, "host restart: "),
    ({"host": Host(tokens=8, head_groups=2, layout="page_head")}, "host head_groups: "),
    ({"storage": "shm://"}, "host shared: "),
    ({"host_mode": "buffer_only", "host": None}, "host: "),
    ({"host_mode": "buffer_only", "write": "write_back"}, "write: "),
    ({"host_mode": "buffer_only", "host_copies": "keep"}, "host_copies: "),
    ({"host_mode": "buffer_only", "host": Host(tokens=8, restart="/dev/shm/x")}, "host restart: "),
]


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    gc.collect()
    before = (threading.active_count(), tasks())
    yield
    gc.collect()
    assert threading.active_count() <= before[0]
    assert tasks() <= before[1], "a thread is left"
    assert list(tmp_path.iterdir()) == []


def tasks() -> int:
    """Threads of ours that Python knows nothing of."""
    place = Path("/proc/self/task")
    found = list(place.iterdir()) if place.is_dir() else []
    return sum((task / "comm").read_text().startswith("hicache-") for task in found)


def build(**settings: Any) -> HiCache:
    given = {
        "pools": Device(8, 2).pools,
        "page_size": 2,
        "host": Host(tokens=16),
        "identity": MODEL,
        **settings,
    }
    return HiCache(given.pop("pools"), given.pop("page_size"), **given)


@pytest.mark.parametrize(("setting", "value"), REFUSED.items())
def test_each_setting_by_its_name(setting: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^{setting}: "):
        build(**{setting: value})


@pytest.mark.parametrize(("setting", "value"), HOST.items())
def test_each_of_the_host_tier(setting: str, value: Any) -> None:
    given = {setting: value} if setting in ("size", "tokens", "ratio") else {"tokens": 16, setting: value}
    with pytest.raises(ArgumentError, match=rf"^(host )?{setting}: "):
        build(host=Host(**given))


@pytest.mark.parametrize(("setting", "value"), GPU.items())
def test_each_of_a_gpu_s_copies(setting: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^gpu_copies {setting}: "):
        build(gpu_copies=GpuCopies(**{setting: value}))


@pytest.mark.parametrize(("settings", "text"), TOGETHER, ids=str)
def test_what_does_not_go_together(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        build(**settings)


@pytest.mark.parametrize(
    ("setting", "value"),
    [(name, value) for name, value in REFUSED.items() if isinstance(value, int | float | str)],
)
def test_the_same_from_a_file(setting: str, value: Any) -> None:
    """As text that an engine was started with; nothing is looked at later than that."""
    given = {"page_size": 2, "host": {"tokens": 16}, setting: value}
    if setting in ("identity", "unified"):
        setting = f"{setting}: unknown setting"
    with pytest.raises(ArgumentError, match=f"^{setting}"):
        HiCache.from_config(Device(8, 2).pools, json.dumps(given), MODEL)


def test_a_setting_that_is_new_is_looked_at() -> None:
    assert set(inspect.signature(HiCache).parameters) == set(REFUSED)
    assert {field.name for field in fields(Host)} == set(HOST)
    assert {field.name for field in fields(GpuCopies)} == set(GPU)


def test_a_store_s_directory_that_is_a_file(tmp_path: Path) -> None:
    where = tmp_path.parent / f"{tmp_path.name}-file"
    where.write_text("mine")
    for scheme, options in (("file", ""), ("slab", "?size=64MiB")):
        with pytest.raises(ArgumentError, match=r"^storage: "):
            build(storage=f"{scheme}://{where}{options}")
    assert where.read_text() == "mine"
    where.unlink()


def test_devices_that_are_not_there() -> None:
    """Memory that no copier here reaches is refused when the cache is made, not when something is copied."""
    plane = torch.zeros(16, 2, 4, device="meta")
    with pytest.raises(ArgumentError, match=r"^kv\.k_buffers\[0\]: "):
        build(pools=[pools.mha("kv", [plane], [plane])])
