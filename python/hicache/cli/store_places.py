"""Where stores are, before they are opened: opening makes one, and gives pages up where there is less room.

For: the commands of `hicache store`, which must do neither.
Assumes: what the core calls a store's directories (`tmp`; `all/STORE`, `rank-0.1-of-2.4/STORE`).
Refuses to know: what is in them.
On error: `typer.BadParameter` naming the argument, exit 2; nothing was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hicache.cli.options import refused

#: Stores that are a directory.
_DIRECTORIES = ("file", "slab")


def place(url: str) -> Path | None:
    """The directory that a URL names, if its kind of store is one."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme in _DIRECTORIES and parts.path else None


def looked_at(url: str, rank: Sequence[int], world: Sequence[int]) -> str:
    """The URL that opens the store that is there, at no page's cost. Refused where there is none."""
    root = place(url)
    if root is None:
        return url
    if not root.is_dir():
        raise refused("URL", f"{url}: there is no directory {root}")
    if not url.startswith("slab:"):
        if "names=sglang" not in url and not (root / "tmp").is_dir():
            raise refused("URL", f"{url}: there is no file store in {root}")
        return url
    name = _home(rank, world)
    if not (root / name / "STORE").is_file():
        others = sorted(file.parent.name for file in root.glob("*/STORE"))
        if not others:
            raise refused("URL", f"{url}: there is no slab store in {root}")
        raise refused("--rank", f"{root} has no {name}: there are {', '.join(others)}")
    return url if "shrink=" in url else f"{url}{'&' if '?' in url else '?'}shrink=no"


def _home(rank: Sequence[int], world: Sequence[int]) -> str:
    """A rank's directory."""
    if prod(world) <= 1:
        return "all"
    at, of = (".".join(map(str, numbers)) for numbers in (rank, world))
    return f"rank-{at}-of-{of}"
