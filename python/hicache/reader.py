"""Readers: views of a cache for other threads.

For: routers, admission and monitoring beside the engine's thread. Neither waits for the other.
Refuses to know: slots and bytes; what it says is advice about this moment, not a hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hicache import tensors
from hicache.config import Namespace

if TYPE_CHECKING:
    from hicache import _hicache
    from hicache.tensors import Integers


@dataclass(frozen=True)
class WouldHit:
    """How many tokens would hit now, whole pages: on the device, and on device or host."""

    device_length: int
    host_length: int


class Reader:
    """A frozen view: every method may be called from any thread at any time, also after `close`."""

    def __init__(self, core: _hicache.Reader) -> None:
        self._core = core

    def would_hit(self, tokens: Integers, namespace: Namespace | None = None) -> WouldHit:
        """What `match_prefix` would find now. Pages that come or go meanwhile may or may not count; one
        guess in 2^61 is wrong, since prefixes are told apart by fingerprints here."""
        space = namespace or Namespace()
        fields = (space.extra_key, space.salt, space.adapter)
        return WouldHit(*self._core.would_hit(tensors.integers("tokens", tokens), *fields))

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name, as of the engine's last call that changed something."""
        return self._core.stats()
