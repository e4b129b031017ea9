"""Pages of a store for people: which ones are meant, whose they are, how large and how old.

For: the commands of `hicache store`.
Assumes: identities are written down as JSON in a folder `identities` of a store's directory, if it has one.
Refuses to know: stores.
On error: `typer.BadParameter` naming the option, exit 2; an identity that isn't written down has no fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from hicache.cli.options import refused
from hicache.cli.store_places import place
from hicache.storage import Held

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: A file that says more of an identity than this is none.
_MOST_BYTES = 1 << 20


@dataclass
class Usage:
    """What a store holds of one identity. Ages in seconds."""

    identity: str
    pages: int
    bytes: int
    newest: int
    oldest: int
    fields: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Chosen:
    """Pages of an identity (the beginning of its name; None: of any), at least so many seconds old."""

    identity: str | None
    age: int = 0

    def of(self, pages: Sequence[Held]) -> list[Held]:
        """Those of `pages`. An identity that none of them has, or that several begin like, is refused."""
        if self.identity is None:
            return [page for page in pages if page.age >= self.age]
        names = {page.identity.hex() for page in pages}
        wanted = self.identity.lower()
        found = [name for name in names if wanted and name.startswith(wanted)]
        if len(found) != 1:
            how = "several identities begin" if found else "no identity with pages begins"
            raise refused("--identity", f"{how} like that: {self.identity!r}")
        return [page for page in pages if page.identity.hex() == found[0] and page.age >= self.age]


def by_identity(pages: Sequence[Held], known: Mapping[str, dict[str, str]]) -> list[Usage]:
    """The largest first."""
    rows = []
    for identity, group in groupby(sorted(pages), key=lambda page: page.identity.hex()):
        some = list(group)
        ages, size = [page.age for page in some], sum(page.bytes for page in some)
        rows.append(Usage(identity, len(some), size, min(ages), max(ages), dict(known.get(identity, {}))))
    return sorted(rows, key=lambda row: (-row.bytes, row.identity))


def batches(pages: Sequence[Held], most: int, most_bytes: int = 1 << 62) -> Iterator[list[Held]]:
    """Pages of one identity each, so many of them and of their bytes at most (or a single one)."""
    batch: list[Held] = []
    size = 0
    for page in sorted(pages):
        full = len(batch) == most or size + page.bytes > most_bytes
        if batch and (full or batch[0].identity != page.identity):
            yield batch
            batch, size = [], 0
        batch.append(page)
        size += page.bytes
    if batch:
        yield batch


def identities(url: str) -> dict[str, dict[str, str]]:
    """The fields of every identity that is written down, by its fingerprint in hexadecimal."""
    root, known = place(url), {}
    if root is None:
        return {}
    for file in [*root.glob("identities/*.json"), *root.glob("*/identities/*.json")]:
        try:
            if file.stat().st_size > _MOST_BYTES:
                continue
            said = json.loads(file.read_text())
            known[str(said["fingerprint"])] = {str(k): str(v) for k, v in dict(said["fields"]).items()}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return known


def whole(option: str, text: str | None) -> tuple[list[int], list[int]]:
    """A rank and the world it is in, as 0.1/2.4."""
    if text is None:
        return [], []
    grid = [part.split(".") for part in text.split("/")]
    if all(re.fullmatch(r"\d{1,9}", axis) for part in grid for axis in part) and len(grid) == 2:
        rank, world = ([int(axis) for axis in part] for part in grid)
        if len(rank) == len(world) and all(at < size for at, size in zip(rank, world, strict=True)):
            return rank, world
    raise refused(option, f"{text!r} is not RANK/WORLD, as 0/2 or 0.1/2.4")


def duration(option: str, text: str) -> int:
    """Seconds from a text such as 36h."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text.strip().lower())
    if match is None:
        raise refused(option, f"{text!r} is no age: use 90s, 5m, 36h or 7d")
    return int(match[1]) * _SECONDS[match[2]]


def size_text(size: int) -> str:
    """Bytes for people."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{size} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def age_text(seconds: int) -> str:
    """An age for people, in its largest unit."""
    unit = next((unit for unit in "dhm" if seconds >= 2 * _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"
