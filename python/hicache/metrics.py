"""A cache's numbers as Prometheus reads them.

There is no registry: the text is made when it is asked for, from one cache or from many, so that nothing
can be registered twice. What each name means: docs/metrics.md.
On error: `ArgumentError` for labels that Prometheus would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hicache.errors import ArgumentError

if TYPE_CHECKING:
    from hicache.cache import HiCache

#: Numbers that go up and down; all others are counters, which never go down.
GAUGES = frozenset(
    [f"{tier}_{what}" for tier in ("device", "host") for what in ("slots", "free", "resident")]
    + [
        "host_staged_writes",
        "host_staged_reads",
        "in_flight",
        "nodes",
        "leftovers_now",
        "pages",
        "bytes",
        "capacity",
    ]
)

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def prometheus(*caches: HiCache, labels: Mapping[str, str] | None = None) -> str:
    """The counters and gauges of caches, of their parts and of their stores, in Prometheus' text format:
    `hicache_NAME` (`_total` for counters), `hicache_part_NAME{part=...}` and `hicache_storage_NAME`.

    `labels`: of every line. More than one cache: each gets a label `cache`, its number in the call. Waits for
    nobody, stores included."""
    lines: dict[str, list[str]] = {}
    for number, cache in enumerate(caches):
        own = dict(labels or {})
        if len(caches) > 1:
            own["cache"] = str(number)
        _put(lines, "hicache_", cache.stats().items(), own)
        for part in cache.parts:
            _put(lines, "hicache_part_", cache.part_stats(part).items(), {**own, "part": part})
        store = cache.store_stats() or {}
        _put(lines, "hicache_storage_", ((name, n) for name, n in store.items() if n is not None), own)
    return "".join(f"# TYPE {name} {_kind(name)}\n{''.join(values)}" for name, values in lines.items())


def _put(
    lines: dict[str, list[str]], prefix: str, values: Iterable[tuple[str, int]], labels: Mapping[str, str]
) -> None:
    text = ",".join(f'{_name(name)}="{_escaped(value)}"' for name, value in labels.items())
    for name, value in values:
        full = prefix + name + ("" if name in GAUGES else "_total")
        lines.setdefault(full, []).append(f"{full}{{{text}}} {value}\n" if text else f"{full} {value}\n")


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def _name(label: str) -> str:
    if not _LABEL.fullmatch(label) or label.startswith("__"):
        raise ArgumentError(f"labels: {label!r} is no label's name")
    return label


def _escaped(value: str) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
