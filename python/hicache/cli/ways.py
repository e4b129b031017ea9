"""Options of `hicache demo` and `hicache bench` that say when pages are written and waited for.

For: `demo.py`, `bench.py`.
Assumes: typer shows them.
Refuses to know: torch.
On error: `typer.BadParameter`, which the command line shows with the option's name, exit 2.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer

from hicache.cli.options import refused

#: Megabytes a second: below the first a batch could take longer than anybody waits for it.
LEAST_THROTTLE, MOST_THROTTLE = 1.0, 1e6
HOST_MODES = ("cache", "buffer_only")


class WriteName(StrEnum):
    """When pages are copied from the device to the host."""

    write_through = "write_through"
    write_through_selective = "write_through_selective"
    write_back = "write_back"


class PrefetchName(StrEnum):
    """When a request stops to wait for storage."""

    wait_complete = "wait_complete"
    timeout = "timeout"
    best_effort = "best_effort"


WritePolicy = Annotated[
    WriteName,
    typer.Option(help="When pages go to the host, and from there to the store; or straight to the store."),
]
PrefetchPolicy = Annotated[
    PrefetchName, typer.Option(help="How long a request waits for what the store has of it.")
]
Throttle = Annotated[
    float | None,
    typer.Option(
        min=LEAST_THROTTLE,
        max=MOST_THROTTLE,
        metavar="MB/S",
        help="Slow the store down: bytes that it carries, in 10^6 a second.",
        show_default="as fast as it is",
    ),
]


def check_throttle(rate: float | None) -> None:
    """Refuses what is no number."""
    if rate is not None and math.isnan(rate):
        raise refused("--throttle", f"need a number of MB a second, got {rate}")


def check_host_mode(mode: str) -> None:
    """Refuses what isn't there."""
    if mode not in HOST_MODES:
        raise refused("--host-mode", f"unknown mode {mode!r}: use {' or '.join(HOST_MODES)}")
