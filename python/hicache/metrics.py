"""A cache's numbers as Prometheus reads them.

There is no registry: the text is made when it is asked for, from one cache or from many, so that nothing
can be registered twice. What each name means: docs/metrics.md.
On error: `ArgumentError` for labels that Prometheus would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from hicache.errors import ArgumentError

if TYPE_CHECKING:
    from hicache.cache import HiCache
    from hicache.histograms import Histogram

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
#: Labels that lines have of their own: a histogram's bounds, parts, and caches where there are several.
_OWN = frozenset(["le", "part", "cache"])


def prometheus(*caches: HiCache, labels: Mapping[str, str] | None = None) -> str:
    """The counters, gauges and histograms of caches, of their parts and of their stores, in Prometheus' text
    format: `hicache_NAME` (`_total` for counters; `_bucket`, `_sum` and `_count` for histograms),
    `hicache_part_NAME{part=...}` and `hicache_storage_NAME`.

    `labels`: of every line; not "le", "part" or "cache". More than one cache: each gets a label `cache`, its
    number in the call. Waits for nobody, stores included. Call it on the engine's thread, as all of a cache:
    other threads have `cache.reader().stats()`."""
    if taken := sorted(_OWN & set(labels or {})):
        raise ArgumentError(f"labels: {taken[0]!r} is what lines have of their own")
    families: dict[str, list[str]] = {}
    for number, cache in enumerate(caches):
        own = dict(labels or {})
        if len(caches) > 1:
            own["cache"] = str(number)
        _put(families, "hicache_", cache.stats().items(), own)
        for part in cache.parts:
            _put(families, "hicache_part_", cache.part_stats(part).items(), {**own, "part": part})
        store = cache.store_stats() or {}
        _put(families, "hicache_storage_", ((name, n) for name, n in store.items() if n is not None), own)
        for name, seen in cache.histograms().items():
            lines = families.setdefault(f"# TYPE hicache_{name} histogram\n", [])
            lines += _histogram(f"hicache_{name}", seen, own)
    return "".join(head + "".join(lines) for head, lines in families.items())


def _put(
    families: dict[str, list[str]],
    prefix: str,
    values: Iterable[tuple[str, int]],
    labels: Mapping[str, str],
) -> None:
    text = _labels(labels)
    for name, value in values:
        full, kind = (prefix + name, "gauge") if name in GAUGES else (f"{prefix}{name}_total", "counter")
        families.setdefault(f"# TYPE {full} {kind}\n", []).append(f"{full}{text} {value}\n")


def _histogram(name: str, seen: Histogram, labels: Mapping[str, str]) -> Iterable[str]:
    """Each bucket has what is in those before it, too."""
    bounds = [f"{bound!r}" for bound in seen.bounds] + ["+Inf"]
    for bound, count in zip(bounds, accumulate(seen.counts), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {count}\n"
    yield f"{name}_sum{_labels(labels)} {seen.sum!r}\n"
    yield f"{name}_count{_labels(labels)} {seen.count}\n"


def _labels(labels: Mapping[str, str]) -> str:
    text = ",".join(f'{_name(name)}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _name(label: str) -> str:
    if not _LABEL.fullmatch(label) or label.startswith("__"):
        raise ArgumentError(f"labels: {label!r} is no label's name")
    return label


def _escaped(value: str) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
