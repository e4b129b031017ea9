"""How copies with a GPU are made: settings for who measures on a machine; the defaults are the design's.

On error: `ArgumentError` whose text begins with the setting's name, before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hicache.config import parse_size, whole_number
from hicache.errors import ArgumentError

__all__ = ["GpuCopies"]


@dataclass(frozen=True)
class GpuCopies:
    """Copies between a GPU and the host. Each setting is a pair, for loads and for backups; None leaves
    the default. They mean nothing where the CPU copies.

    `engine_from`: runs of so many bytes on go by the copy engine, shorter ones by a kernel or through staging
    (default 64 KiB both ways). `staging`: bytes of device memory through which whole pages of shorter runs
    go, in two halves; 0 never stages (default 64 MiB and 0). `multiprocessors`: how many a kernel that reads
    or writes host memory may take (default 4 and 2). Sizes are numbers or text ("64KiB").
    """

    engine_from: Sequence[int | str] | None = None
    staging: Sequence[int | str] | None = None
    multiprocessors: Sequence[int] | None = None

    def settings(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[int, int] | None]:
        """As the binding takes them."""
        engine = _pair("engine_from", self.engine_from, parse_size)
        staging = _pair("staging", self.staging, _staging)
        groups = _pair("multiprocessors", self.multiprocessors, _multiprocessors)
        return engine, staging, groups


def _staging(name: str, size: Any) -> int:
    return 0 if size == 0 and not isinstance(size, bool) else parse_size(name, size)


def _multiprocessors(name: str, count: Any) -> int:
    return whole_number(name, count, least=1, most=1024)


def _pair(name: str, values: Any, of: Any) -> tuple[int, int] | None:
    if values is None:
        return None
    name = f"gpu_copies {name}"
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != 2:
        raise ArgumentError(f"{name}: need two values, for loads and for backups, got {values!r}")
    return of(name, values[0]), of(name, values[1])
