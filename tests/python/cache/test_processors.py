"""Numbers of threads follow from the processors that the process may use, not from those that the machine
has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hicache
from hicache._hicache import processors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processors that a process is bound to")

HERE = Path(__file__).parent
#: What is allowed, how many threads touch the host's memory, and which threads a cache starts.
ASKS = """
import json, os, sys
group, allowed = sys.argv[1], json.loads(sys.argv[2])
if group:
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
if allowed:
    os.sched_setaffinity(0, allowed)
from pathlib import Path
from fake_engine import make
from hicache import Host
from hicache._hicache import processors
from hicache.testing.memory import MemoryStore
engine = make(2, store=MemoryStore())
engine.finish(engine.run(list(range(8))))
assert engine.cache.drain(10)
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
copying = [name for name in names if name.startswith(("hicache-in", "hicache-out"))]
_, _, _, touching, _ = Host(tokens=16).memory(2, [64], [8])
_, _, _, none, _ = Host(tokens=16, prefault=False).memory(2, [64], [8])
print(json.dumps([processors(), touching, none, len(copying)]))
engine.cache.close()
"""


def asked(allowed: set[int] | None = None, group: Path | None = None) -> list[int]:
    """A process that is bound to these processors, or is in this control group."""
    paths = [str(Path(hicache.__file__).parents[1]), str(HERE)]
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(group or ""), json.dumps(sorted(allowed or ()))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told: list[int] = json.loads(done.stdout)
    return told


def expected(count: int) -> list[int]:
    return [count, min(8, count), 0, 2 * min(4, max(1, count // 4))]


def test_a_process_that_is_bound_to_a_few() -> None:
    all_of_them = sorted(os.sched_getaffinity(0))
    for count in {1, 2, len(all_of_them)}:
        if count <= len(all_of_them):
            # A control group that this runs in may allow still less.
            assert asked(set(all_of_them[:count])) == expected(min(count, processors()))


@pytest.fixture
def quota() -> Iterator[Any]:
    """A control group of this test's own, which may use so many microseconds of a tenth of a second."""
    made: list[Path] = []

    def group(microseconds: int) -> Path:
        name = f"hicache-test-{uuid.uuid4().hex[:8]}"
        try:
            if Path("/sys/fs/cgroup/cgroup.controllers").exists():
                path = Path("/sys/fs/cgroup") / name
                path.mkdir()
                made.append(path)
                (path / "cpu.max").write_text(f"{microseconds} 100000")
            else:
                path = Path("/sys/fs/cgroup/cpu") / name
                path.mkdir()
                made.append(path)
                (path / "cpu.cfs_quota_us").write_text(str(microseconds))
        except OSError as error:
            pytest.skip(f"no control group to be had: {error}")
        return path

    yield group
    for path in made:
        path.rmdir()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a quota of one processor says nothing here")
@pytest.mark.parametrize(("microseconds", "count"), [(100_000, 1), (150_000, 1), (200_000, 2)])
def test_a_control_group_with_a_quota(quota: Any, microseconds: int, count: int) -> None:
    assert asked(group=quota(microseconds)) == expected(min(count, processors()))
