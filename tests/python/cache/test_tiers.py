"""Device, host, storage and a new process: what comes back is what was computed, or nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import PLAIN, Engine, Request, Shape, make, store_files

import hicache
from hicache import ModelIdentity, Namespace

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]
LAYOUTS = ("page_unified", "layer_first", "page_first", "page_first_direct", "page_head")
SPACES = [
    PLAIN,
    *(Namespace(**{key: "x"}) for key in ("extra_key", "salt", "adapter")),
    Namespace(extra_key=""),
]
BOTH = Shape(side=24)


def persist(engine: Engine, tokens: list[int], namespace: Namespace = PLAIN) -> None:
    """Computes a prompt and waits until the store has it."""
    engine.finish(engine.run(tokens, namespace))
    assert engine.cache.drain(10)
    assert engine.cache.stats()["store_failed_pages"] == 0


def found(engine: Engine, tokens: list[int], namespace: Namespace = PLAIN) -> int:
    """Tokens that device, host and store have together; verified."""
    request = engine.match(tokens, namespace)
    engine.fetch(request)
    engine.load(request)
    engine.verify(request)
    engine.finish(request)
    return request.hit.length


def in_new_process(store: Path, layout: str, tokens: list[int], namespace: Namespace) -> dict[str, Any]:
    here = Path(__file__).parent
    paths = [str(Path(hicache.__file__).parents[1]), str(here)]
    asked = {"store": str(store), "layout": layout, "tokens": tokens, "page_size": 2}
    done = subprocess.run(
        [sys.executable, str(here / "restart_worker.py")],
        input=json.dumps({**asked, "namespace": asdict(namespace)}),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("reads", LAYOUTS)
@pytest.mark.parametrize("writes", LAYOUTS)
def test_a_new_process_reads_what_the_old_one_wrote(tmp_path: Path, writes: str, reads: str) -> None:
    salted = Namespace(salt="tenant")
    engine = make(2, layout=writes, store=tmp_path, shape=BOTH)
    engine.finish(engine.run(EIGHT, salted))
    assert engine.cache.stats()["stored_pages"] == 0, "nothing was polled"
    engine.cache.close()  # waits for what is under way
    assert engine.cache.stats()["stored_pages"] == len(store_files(tmp_path)) == 4
    answer = in_new_process(tmp_path, reads, [*EIGHT, 8, 9], salted)
    assert (answer["length"], answer["storage"], answer["prefetched_pages"]) == (8, 8, 4)
    assert in_new_process(tmp_path, reads, EIGHT, PLAIN)["length"] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(side=24),
        Shape(heads=1),
        Shape(k_size=8, v_size=4),
        Shape(latent=True, layers=3, heads=1, k_size=72),
        Shape(latent=True, side=24),
        Shape(dtype=torch.bfloat16),
        Shape(dtype=torch.float8_e4m3fn),
        Shape(dtype=torch.uint8, k_size=3, v_size=5),
    ],
    ids=["mha", "side", "mqa", "k-v-sizes", "mla", "mla-side", "bf16", "fp8", "odd-bytes"],
)
@pytest.mark.parametrize("page_size", [1, 2])
def test_every_tier_and_back(tmp_path: Path, layout: str, shape: Shape, page_size: int) -> None:
    """Other slots in every tier, and each byte is where it was."""
    engine = make(page_size, layout=layout, shape=shape, store=tmp_path)
    persist(engine, [9] * page_size)
    persist(engine, EIGHT)
    engine.cache.evict(99)
    engine.device.poison(range(16))
    first = engine.run(EIGHT)
    assert (first.hit.loaded_length, first.hit.storage_length) == (8, 0)
    engine.finish(first)
    assert engine.cache.drain(10)
    engine.cache.evict(99)
    engine.cache.evict(99, tier="host")
    other = engine.run([8, 8, 8, 8])
    second = engine.run(EIGHT)
    assert (second.hit.loaded_length, second.hit.storage_length) == (8, 8)
    assert first.table != second.table
    engine.verify(other)
    fresh = make(page_size, layout=LAYOUTS[layout == LAYOUTS[0]], shape=shape, store=tmp_path)
    assert found(fresh, EIGHT) == 8


def test_a_page_has_the_bytes_that_its_shape_says(tmp_path: Path) -> None:
    """Fp16, 2 layers, P=2, 2 heads of 4: 128 bytes, behind the same header for all."""
    sizes = {}
    for name, shape in {"plain": Shape(), "side": Shape(side=24), "k8": Shape(k_size=8)}.items():
        persist(make(2, shape=shape, store=tmp_path / name), EIGHT[:2])
        (file,) = store_files(tmp_path / name)
        sizes[name] = file.stat().st_size
    assert (sizes["side"] - sizes["plain"], sizes["k8"] - sizes["plain"]) == (96, 64)
    assert sizes["plain"] == 136 + 128


def test_an_idle_engine_only_polls_and_all_is_stored(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    engine.finish(engine.run(EIGHT))
    deadline = time.monotonic() + 1
    while engine.cache.stats()["stored_pages"] < 4 and time.monotonic() < deadline:
        engine.cache.poll()
        time.sleep(0.001)
    assert (engine.cache.stats()["stored_pages"], len(store_files(tmp_path))) == (4, 4)


@pytest.mark.parametrize("other", [torch.float16, torch.float8_e4m3fn, torch.int8, torch.uint16])
def test_dtypes_share_nothing(tmp_path: Path, other: torch.dtype) -> None:
    """Also where a row of each has the same number of bytes."""
    same_model = ModelIdentity(model="m")
    persist(make(2, store=tmp_path, shape=Shape(dtype=torch.bfloat16), identity=same_model), EIGHT)
    size = 4 * 2 // other.itemsize
    shape = Shape(dtype=other, k_size=size, v_size=size)
    assert found(make(2, store=tmp_path, shape=shape, identity=same_model), EIGHT) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "n"},
        {"revision": "2"},
        {"dtype": "x"},
        {"quantization": "x"},
        {"config": "x"},
        {"weights": "x"},
        {"weights_epoch": 1},
        {"rank": (1,), "world": (2,)},
        {"world": (2,)},
        {"rank": (0, 0), "world": (1, 1)},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_every_field_of_an_identity_counts(tmp_path: Path, changed: dict[str, Any]) -> None:
    persist(make(2, store=tmp_path, identity=ModelIdentity(model="m")), EIGHT)
    identity = ModelIdentity(**{"model": "m", **changed})
    assert found(make(2, store=tmp_path, identity=identity), EIGHT) == 0
    assert found(make(2, store=tmp_path, identity=ModelIdentity(model="m")), EIGHT) == 8


def test_page_sizes_share_nothing(tmp_path: Path) -> None:
    persist(make(2, store=tmp_path), EIGHT)
    assert found(make(4, store=tmp_path, shape=Shape(heads=1)), EIGHT) == 0


def test_ranks_read_their_own_pages_in_one_directory(tmp_path: Path) -> None:
    """The stamps of the two differ by a namespace that the cache is not told."""
    for again in (False, True):
        for rank in (0, 1):
            engine = make(2, store=tmp_path, identity=ModelIdentity(model="m", rank=(rank,), world=(2,)))
            mine = Namespace(extra_key=f"rank {rank}")
            request = engine.match(EIGHT)
            engine.fetch(request)
            engine.load(request)
            request.namespace = mine
            assert request.hit.length == (8 if again else 0)
            engine.compute(request)
            engine.verify(request)
            engine.cache.close()
            request.hit.release()


def test_equal_tokens_at_other_places_are_other_pages(tmp_path: Path) -> None:
    """[7, 7, 7, 7] with P=1."""
    persist(make(1, store=tmp_path), [7, 7, 7, 7])
    names = [f"{file.parent.name}{file.name}" for file in store_files(tmp_path)]
    assert (len(names), {len(name) for name in names}) == (4, {64})
    assert found(make(1, store=tmp_path), [7] * 6) == 4


def test_a_continuation_is_stored_under_its_whole_prefix(tmp_path: Path) -> None:
    """[1..4], then [5..8], persisted as [1..8]."""
    engine = make(2, store=tmp_path)
    request = engine.match([1, 2, 3, 4, 5, 6, 7, 8])
    engine.load(request)
    engine.compute(request, 4)
    engine.compute(request, 4)
    engine.finish(request)
    assert engine.cache.drain(10)
    assert found(make(2, store=tmp_path), [5, 6, 7, 8]) == 0
    assert found(make(2, store=tmp_path), [1, 2, 3, 4, 5, 6, 7, 8]) == 8


def test_namespaces_share_nothing_in_the_store(tmp_path: Path) -> None:
    for number, namespace in enumerate(SPACES):
        fresh = make(2, store=tmp_path)
        assert [found(fresh, EIGHT, other) for other in SPACES[number:]] == [0] * (len(SPACES) - number)
        persist(fresh, EIGHT, namespace)
    fresh = make(2, device_pages=24, host_pages=24, store=tmp_path)
    assert [found(fresh, EIGHT, namespace) for namespace in SPACES] == [8] * len(SPACES)
    assert len(store_files(tmp_path)) == 4 * len(SPACES)


def test_a_prefetch_continues_after_a_cursor(tmp_path: Path) -> None:
    persist(make(2, store=tmp_path), EIGHT)
    engine = make(2, store=tmp_path)
    first = engine.run(EIGHT[:4])
    engine.finish(first)
    request: Request = engine.match(EIGHT[4:], after=first.hit, known=EIGHT[:4])
    assert engine.fetch(request)
    engine.load(request)
    assert (request.hit.length, request.hit.storage_length) == (8, 4)
    engine.verify(request)


def test_drain_keeps_to_the_engines_clock(tmp_path: Path) -> None:
    """`at` counts from 0 here. Draining may not take the machine's clock for it: waits would end at once."""
    persist(make(2, store=tmp_path), EIGHT)
    engine = make(2, store=tmp_path)
    hit = engine.cache.match_prefix(EIGHT, at=2.0)
    assert engine.cache.prefetch(hit)
    assert engine.cache.drain(10)
    assert (hit.host_length, engine.cache.stats()["deadlines_passed"]) == (8, 0)


def test_without_its_files_a_store_is_a_miss_and_is_filled_again(tmp_path: Path) -> None:
    persist(make(2, store=tmp_path), EIGHT)
    for file in store_files(tmp_path):
        file.unlink()
    engine = make(2, store=tmp_path)
    assert found(engine, EIGHT) == 0
    persist(engine, EIGHT)
    assert found(make(2, store=tmp_path), EIGHT) == 8


def test_a_store_whose_directory_went_is_a_miss_and_is_filled_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    engine = make(2, store=store)
    persist(engine, EIGHT)
    engine.cache.evict(99)
    engine.cache.evict(99, tier="host")
    shutil.rmtree(store)
    assert found(engine, EIGHT) == 0
    persist(engine, EIGHT)
    assert found(make(2, store=store), EIGHT) == 8


@pytest.mark.parametrize("page", range(4))
@pytest.mark.parametrize("damage", ["header", "payload", "short", "long", "empty", "swapped"])
def test_a_damaged_page_cuts_the_hit_and_is_mended(tmp_path: Path, page: int, damage: str) -> None:
    writer, files = make(2, store=tmp_path), []
    for end in (2, 4, 6, 8):
        persist(writer, EIGHT[:end])
        files += [file for file in store_files(tmp_path) if file not in files]
    hurt(files[page], damage, files[(page + 1) % 4])
    engine = make(2, store=tmp_path)
    assert found(engine, EIGHT) == 2 * page
    # The store may have swept an empty file away before it was asked for.
    assert engine.cache.stats()["corrupt_pages"] in ((0, 1) if damage == "empty" else (1,))
    persist(engine, EIGHT)
    assert found(make(2, store=tmp_path), EIGHT) == 8


def hurt(file: Path, damage: str, other: Path) -> None:
    data = bytearray(file.read_bytes())
    if damage in ("header", "payload"):
        data[20 if damage == "header" else -1] ^= 1
    changed = {"short": data[:-1], "long": data + b"\0", "empty": b"", "swapped": other.read_bytes()}
    file.write_bytes(changed.get(damage, data))
