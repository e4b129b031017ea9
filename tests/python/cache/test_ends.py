"""Processes that end while a cache has work under way: by Ctrl-C, by the end of the program, by an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import hicache

START = """
import signal, sys, time
# What is started in the background inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from fake_engine import make
from hicache.storage import served
from hicache.testing.doubles import Fault, Faulty
from hicache.testing.memory import MemoryStore

def hanging(*verbs):
    store = Faulty(MemoryStore(), lambda turn: Fault.HANG if turn.verb in verbs else None)
    some = make(2, 16, 32, store=served(store, timeout=60.0), prefetch_deadline=60.0, store_deadline=60.0)
    some.finish(some.run(list(range(24))))
    return some, store

some, store = hanging("put")
while not store.calls["put"]:
    some.cache.poll()
"""


def child(program: str) -> subprocess.Popen[str]:
    paths = [str(Path(hicache.__file__).parents[1]), str(Path(__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str], most: float = 60.0) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=most)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize(
    "wait",
    [
        "some.cache.drain(600)",
        "some.cache.write_out(600)",
        "some.cache.close(600)",
        "some.cache.clear(['storage'], 600)",
    ],
)
def test_ctrl_c_ends_a_wait_and_the_cache_can_be_closed(wait: str) -> None:
    process = child(f"""
    store._plan = lambda turn: Fault.HANG
    type(store).clear = lambda self, identity: self._released.wait() and 0
    print("waits", flush=True)
    try:
        {wait}
    except KeyboardInterrupt:
        some.cache.check()
        some.cache.close(0.2)
        print("interrupted", some.cache.closed, flush=True)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, out, err = said(process)
    assert (code, out) == (0, "interrupted True\n"), err
    # A store that comes out after its memory was taken back may say so.
    assert "KeyboardInterrupt" not in err
    assert "Fatal" not in err
    assert time.monotonic() - begun < 45


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "sys.exit(0)",
        "del some",
        "some.cache.detach_store(0.05)",
        "some.cache.detach_store(0.05); some.cache.attach_store(MemoryStore())",
        "some.cache.warm([1, 2, 3, 4])",
        "some.cache.close(0.05)",
        "some.cache.reset(); hit = some.match(list(range(30))).hit; some.cache.prefetch(hit); hit.release()",
    ],
)
def test_the_interpreter_ends_with_work_under_way(end: str) -> None:
    code, out, err = said(
        child(f"""
    print("the end", flush=True)
    {end}
    """)
    )
    assert (code, out) == (0, "the end\n"), err
    assert "Fatal" not in err


def test_an_error_ends_it_like_any_program() -> None:
    code, _, err = said(child("raise RuntimeError('on purpose')\n"))
    assert code == 1
    assert err.rstrip().endswith("RuntimeError: on purpose")
