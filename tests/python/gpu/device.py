"""The GPU that these tests use, or, to rehearse the tests, the emulated one (HICACHE_GPU=emulated).

A rehearsal proves that the tests run and find faults, and nothing about a GPU: its "device" is the CPU.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from hicache import _hicache

EMULATED = os.environ.get("HICACHE_GPU") == "emulated"
REQUIRED = os.environ.get("HICACHE_REQUIRE_GPU") == "1"
DEVICE = torch.device("cpu" if EMULATED else "cuda:0")
LAYER_SETS = 3
WAYS = ("in", "out")


def missing() -> str | None:
    """Why there is no GPU to test on; None if there is one."""
    status = _hicache.cuda_status()
    if EMULATED:
        return None if status == "emulated" else f"this build is not the emulated one: {status}"
    if status == "not built":
        return "this build has no GPU copies: make wheel-cuda"
    if status != "ok":
        return status
    return None if torch.cuda.is_available() else "torch sees no GPU"


def engine(
    layers: int = 1,
    *,
    run: int = 64 << 10,
    staging: tuple[int, int] = (0, 0),
    multiprocessors: tuple[int, int] = (4, 2),
) -> Any:
    """A copy engine; `run` is the shortest run that goes by the device's copy engine, in bytes."""
    return _hicache.Gpu(0, layers, [run, run], list(staging), list(multiprocessors))


def stream() -> int:
    """The stream on which torch computes."""
    return 0 if EMULATED else torch.cuda.current_stream().cuda_stream


def wait_layer(gpu: Any, which: int, layer: int) -> None:
    """What follows on torch's stream comes after this layer. The CPU, emulating, has no stream: it asks."""
    gpu.wait_layer(which, layer, stream())
    while EMULATED and not gpu.has_layer(which, layer):
        pass


def finish(gpu: Any, way: str, ticket: int, most: float = 60.0) -> float:
    """Asks until a ticket is done; the time when it was, in seconds."""
    end = time.perf_counter() + most
    while not gpu.is_done(way, ticket):
        if time.perf_counter() > end:
            raise TimeoutError(f"copies {way} did not finish within {most} s")
    return time.perf_counter()


def synchronize() -> None:
    if not EMULATED:
        torch.cuda.synchronize()
