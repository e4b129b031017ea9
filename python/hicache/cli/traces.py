"""Request traces, read into paths of units.

For: `hicache replay`: two public trace formats, one interface.
Assumes: an id stands for a fixed number of tokens and, behind the same ids, for the same tokens. So a unit's
token is the id itself: the tree tells prefixes apart by their path, and an id that comes again behind other
ids needs no number of its own.
Refuses to know: tiers, hits and how requests are timed. Order is all that counts.
On error: `TraceError` with the place in the file (a line or an entry); a missing file is an `OSError`.

A *unit* is the longest run of tokens that divides pages and ids: gcd(page size, tokens per id) tokens.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice, repeat
from math import gcd
from pathlib import Path
from typing import Any

MOONCAKE_TOKENS_PER_ID = 512
MOST_TOKENS_PER_ID = 2**20  # more is no page either, and with short pages no memory has room for the units
_INT64 = "q"


class TraceError(ValueError):
    """The text is not a trace of the format it was taken for."""


class TraceFormat(StrEnum):
    """How a trace is written; `auto` looks at the text."""

    auto = "auto"
    mooncake = "mooncake"
    kv_cache_tester = "kv-cache-tester"


@dataclass(frozen=True)
class Request:
    """One request: int64 units, the prompt and then what was generated; `prompt` of them are looked up."""

    path: array[int]
    prompt: int
    round: int | None = None


@dataclass(frozen=True)
class Trace:
    """Requests in order. `unit` and `page_size` are tokens; `count` is how many requests there are."""

    name: str
    format: str
    page_size: int
    unit: int
    count: int
    requests: Iterable[Request]

    def first(self, limit: int | None) -> Trace:
        """The same trace, cut after `limit` requests."""
        if limit is None or limit >= self.count:
            return self
        return Trace(
            self.name, self.format, self.page_size, self.unit, limit, islice(iter(self.requests), limit)
        )


def read_trace(file: Path, form: TraceFormat, page_size: int | None) -> Trace:
    """Reads `file`. Without a page size, a page is what one id of the trace stands for."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"not a text file: {error}") from error
    form = _guess(text) if form is TraceFormat.auto else form
    if form is TraceFormat.mooncake:
        per_id, paths = MOONCAKE_TOKENS_PER_ID, list(_mooncake(text))
    else:
        per_id, paths = _kv_cache_tester(text)
    page = per_id if page_size is None else page_size
    unit = gcd(page, per_id)
    return Trace(file.name, form.value, page, unit, len(paths), _Units(paths, per_id // unit))


@dataclass(frozen=True)
class _Units:
    """Requests made from paths of ids when they are asked for: in units, a trace may be large."""

    paths: Sequence[array[int]]
    times: int

    def __iter__(self) -> Iterator[Request]:
        for ids in self.paths:
            path = ids if self.times == 1 else array(_INT64, _repeated(ids, self.times))
            yield Request(path, len(path))


def _repeated(ids: Iterable[int], times: int) -> Iterator[int]:
    return chain.from_iterable(map(repeat, ids, repeat(times)))


def _guess(text: str) -> TraceFormat:
    """A kv-cache-tester file is one JSON object; a Mooncake file has one on every line."""
    try:
        first = json.loads(text.lstrip().split("\n", 1)[0])
    except json.JSONDecodeError:
        return TraceFormat.kv_cache_tester
    single = isinstance(first, dict) and "requests" in first
    return TraceFormat.kv_cache_tester if single else TraceFormat.mooncake


def _mooncake(text: str) -> Iterator[array[int]]:
    """One object a line with `hash_ids`, one for each 512 tokens; a partial last one counts in full."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"line {number}"
            yield _ids(_loads(line, place), place)


def _kv_cache_tester(text: str) -> tuple[int, list[array[int]]]:
    """One session: tokens per id, and the paths in order of time.

    The requests of a sub-agent share the session's ids. Their times count from the sub-agent's start; they
    are merged with the session's own by time (at equal times: in the order of the file).
    """
    session = _loads(text, "file")
    size = session.get("block_size") if isinstance(session, dict) else None
    if not isinstance(size, int) or not 1 <= size <= MOST_TOKENS_PER_ID:
        raise TraceError(f"file: no session with a 'block_size' from 1 to {MOST_TOKENS_PER_ID}")
    timed = sorted(_timed(session, 0.0, "session"), key=lambda entry: entry[0])
    return size, [ids for _, ids in timed]


def _timed(session: dict[str, Any], start: float, place: str) -> Iterator[tuple[float, array[int]]]:
    entries = session.get("requests")
    if not isinstance(entries, list):
        raise TraceError(f"{place}: no list 'requests'")
    for number, entry in enumerate(entries):
        here = f"{place}.requests[{number}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("t"), int | float):
            raise TraceError(f"{here}: no number 't'")
        if "requests" in entry:
            yield from _timed(entry, start + entry["t"], here)
        else:
            yield start + entry["t"], _ids(entry, here)


def _loads(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{place}: not JSON ({error})") from error


def _ids(entry: Any, place: str) -> array[int]:
    ids = entry.get("hash_ids") if isinstance(entry, dict) else None
    if not isinstance(ids, list):
        raise TraceError(f"{place}: no list 'hash_ids'")
    try:
        path = array(_INT64, ids)
    except (TypeError, OverflowError) as error:
        raise TraceError(f"{place}: 'hash_ids' must be whole numbers below 2**63") from error
    if path and min(path) < 0:
        raise TraceError(f"{place}: 'hash_ids' must not be negative")
    return path
