"""Where host memory that outlives the process is: each rank of a grid has a directory of its own below the
one that `Host(restart=...)` names.

On error: `ArgumentError` names `host restart` or `identity`; nothing was made.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

from hicache.config import Host
from hicache.errors import ArgumentError
from hicache.identity import ModelIdentity


def directory(host: Host | None, identity: ModelIdentity | None) -> str | None:
    """The directory of this rank, if the host tier is to outlive the process."""
    if host is None or host.restart is None:
        return None
    if not isinstance(host.restart, (str, os.PathLike)):
        raise ArgumentError(f"host restart: need a directory's path, got {host.restart!r}")
    if identity is None:
        raise ArgumentError("identity: host restart needs one, so that no other model's pages are served")
    if host.size == "auto":
        raise ArgumentError('host restart: size "auto" is another one after each restart: say a size')
    path = Path(host.restart)
    if prod(identity.world) > 1:
        rank, world = (".".join(map(str, numbers)) for numbers in (identity.rank, identity.world))
        path /= f"rank-{rank}-of-{world}"
    return str(path)
