"""Host memory that outlives the process: the next one serves it, or says why not; a kill costs hits only."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kept_engine import KINDS, counts, kept, prompt, serve

import hicache
from hicache import ArgumentError, HiCache, Host, ModelIdentity, pools

MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not MEMORY.is_dir(), reason="no file system in memory")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hicache-test-", dir=MEMORY) as path:
        yield Path(path) / "host"


def victim(place: Path, kind: str, seed: int) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    paths = [str(Path(hicache.__file__).parents[1]), str(here)]
    return subprocess.Popen(
        [sys.executable, str(here / "kept_engine.py"), str(place), kind, str(seed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["page_unified", "page_first", "layer_first"])
def test_a_new_cache_serves_what_the_closed_one_had(place: Path, kind: str, layout: str) -> None:
    with kept(place, kind, layout=layout).cache as cache:
        assert cache.stats()["leftovers_found"] == 0
    engine = kept(place, kind, layout=layout)
    assert serve(engine, prompt(1, 16)) == 0
    engine.cache.close()
    engine = kept(place, kind, layout=layout)
    assert engine.cache.host_restart is not None
    assert f"{counts(engine)['found']} pages taken over" in engine.cache.host_restart
    assert serve(engine, prompt(1, 20)) == 16
    assert counts(engine)["adopted"] >= 8
    engine.cache.close()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_moment_it_costs_hits_only(place: Path, kind: str) -> None:
    numbers, found = random.Random(7), 0
    for seed in range(int(os.environ.get("HICACHE_KILLS", "4"))):
        child = victim(place, kind, seed)
        assert child.stdout is not None
        found += int(child.stdout.readline().split()[1])
        time.sleep(numbers.uniform(0.0, 0.3))
        with pytest.raises(ArgumentError, match=rf"host restart: .* in use by process {child.pid}"):
            kept(place, kind)
        child.send_signal(signal.SIGKILL)
        _, said = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, said
    engine = kept(place, kind)
    left = counts(engine)
    served = [serve(engine, prompt(number, 16)) for number in range(3)]
    assert found + left["found"] > 0
    assert counts(engine)["corrupt"] == 0
    assert sum(served) > 0 or left["found"] == 0
    engine.cache.close()


def test_a_store_is_behind_it(place: Path, tmp_path: Path) -> None:
    engine = kept(place, storage=tmp_path)
    serve(engine, prompt(1, 16))
    engine.cache.close()
    engine = kept(place, host_pages=30, storage=tmp_path)
    assert "other pools, layout or numbers of slots" in (engine.cache.host_restart or "")
    assert serve(engine, prompt(1, 16)) == 16, "from the store"
    engine.cache.close()
    engine = kept(place, host_pages=30)
    assert serve(engine, prompt(1, 16)) == 16, "what came from the store was kept, too"
    engine.cache.close()


def test_another_model_finds_nothing(place: Path) -> None:
    engine = kept(place)
    serve(engine, prompt(1, 16))
    engine.cache.close()
    engine = kept(place, identity=ModelIdentity(model="another"))
    assert engine.cache.host_restart == f"host memory in {place}: 8 pages of another identity were given up"
    assert serve(engine, prompt(1, 16)) == 0
    engine.cache.close()


def test_ranks_have_directories_of_their_own(place: Path) -> None:
    ranks = [kept(place, identity=ModelIdentity(model="m", rank=(n,), world=(2,))) for n in range(2)]
    assert sorted(path.name for path in place.iterdir()) == ["rank-0-of-2", "rank-1-of-2"]
    for engine in ranks:
        engine.cache.close()


def test_nothing_that_people_wrote_is_kept(place: Path) -> None:
    engine = kept(place)
    request = engine.match(prompt(1, 16), hicache.Namespace(extra_key="who", salt="a secret", adapter="mine"))
    engine.load(request)
    assert engine.compute(request)
    engine.finish(request)
    assert engine.cache.drain(10)
    engine.cache.close()
    table = (place / "table").read_bytes()
    tokens = torch.tensor(prompt(1, 16), dtype=torch.int32).numpy().tobytes()[:8]
    assert not any(word in table for word in (b"who", b"a secret", b"mine", tokens))
    assert (place.stat().st_mode & 0o777, (place / "table").stat().st_mode & 0o777) == (0o700, 0o600)


def declared(**host: object) -> HiCache:
    k = torch.zeros(8, 1, 4)
    return HiCache(
        [pools.mha("kv", [k], [k.clone()])],
        2,
        host=Host(**host),  # type: ignore[arg-type]
        identity=ModelIdentity(model="m"),
    )


def test_what_can_not_be_meant_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"host restart: .* is not in memory"):
        declared(restart=tmp_path / "disk", tokens=8)
    assert not (tmp_path / "disk").exists()
    with pytest.raises(ArgumentError, match="host restart: here: need an absolute path"):
        declared(restart="here", tokens=8)
    with pytest.raises(ArgumentError, match="host restart: need a directory's path, got 7"):
        declared(restart=7, tokens=8)
    with pytest.raises(ArgumentError, match='host restart: size "auto"'):
        declared(restart=place, size="auto")
    with pytest.raises(ArgumentError, match="host restart: its memory can't be shared"):
        declared(restart=place, tokens=8, shared=True)
    k = torch.zeros(8, 1, 4)
    with pytest.raises(ArgumentError, match="identity: host restart needs one"):
        HiCache([pools.mha("kv", [k], [k.clone()])], 2, host=Host(tokens=8, restart=place))
    assert not place.exists()
