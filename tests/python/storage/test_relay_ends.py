"""Processes that end, or fork, while a store in Python is open."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def child(program: str) -> subprocess.CompletedProcess[str]:
    lines = textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)


START = """
import os, sys, threading, time
from hicache.storage import open, served, Page
from hicache.testing.memory import MemoryStore
from hicache.testing.doubles import Fault, Faulty
keys = [bytes([at]) * 32 for at in range(4)]
def use(store):
    return store.exists(bytes(32), keys)
"""


@pytest.mark.parametrize(
    "end",
    [
        "store.close()",
        "pass",
        "del store",
        "sys.exit(0)",
        "threading.Thread(target=lambda: [use(store) for _ in range(10**9)], daemon=True).start()",
    ],
)
def test_the_interpreter_ends(end: str) -> None:
    done = child(f"{START}\nstore = open(MemoryStore())\nuse(store)\n{end}\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_although_a_store_hangs() -> None:
    done = child(f"""{START}
store = open(served(Faulty(MemoryStore(), lambda turn: Fault.HANG), timeout=60.0, threads=2))
for _ in range(4):
    threading.Thread(target=use, args=(store,), daemon=True).start()
time.sleep(0.2)
print("the end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_a_forked_child_is_told() -> None:
    """And ends like any other; its parent's store goes on."""
    done = child(f"""{START}
from hicache import HiCacheError
store = open(MemoryStore())
use(store)
pid = os.fork()
if pid == 0:
    try:
        use(store)
    except HiCacheError as error:
        print("told", flush=True)
    del store
    other = open(MemoryStore())
    print(use(other)[0].value, flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), use(store)[0].value)
""")
    assert done.stdout.split() == ["told", "absent", "3", "absent"], done.stderr
