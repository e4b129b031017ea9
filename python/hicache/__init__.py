"""A hierarchical KV cache for LLM engines: device, host and storage under one radix tree.

For: engines, which import `HiCache` and call its verbs. `import hicache` costs nothing: each name is loaded
when it is first used, so that commands without tensors need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hicache import pools, unified
    from hicache.cache import HiCache
    from hicache.config import Host, Namespace
    from hicache.copies import GpuCopies
    from hicache.errors import (
        ArgumentError,
        ClosedError,
        DeadlineError,
        DetachedError,
        DeviceError,
        HiCacheError,
        HitError,
        InvariantError,
        StaleCursor,
        StorageError,
    )
    from hicache.explain import Explanation, Reason
    from hicache.forward import Forward
    from hicache.histograms import Histogram
    from hicache.hit import Hit, Inserted, Load
    from hicache.identity import ModelIdentity
    from hicache.lifecycle import Cleared, LeftBehind
    from hicache.reader import Reader, WouldHit
    from hicache.warming import Warm

_HOME = {
    "HiCache": "cache",
    "Hit": "hit",
    "Inserted": "hit",
    "Load": "hit",
    "Explanation": "explain",
    "Reason": "explain",
    "Forward": "forward",
    "Histogram": "histograms",
    "GpuCopies": "copies",
    "Host": "config",
    "Namespace": "config",
    "Reader": "reader",
    "WouldHit": "reader",
    "Cleared": "lifecycle",
    "LeftBehind": "lifecycle",
    "Warm": "warming",
    "ModelIdentity": "identity",
    "ArgumentError": "errors",
    "ClosedError": "errors",
    "DeadlineError": "errors",
    "DetachedError": "errors",
    "DeviceError": "errors",
    "HiCacheError": "errors",
    "HitError": "errors",
    "InvariantError": "errors",
    "StaleCursor": "errors",
    "StorageError": "errors",
}

__all__ = [
    "ArgumentError",
    "Cleared",
    "ClosedError",
    "DeadlineError",
    "DetachedError",
    "DeviceError",
    "Explanation",
    "Forward",
    "GpuCopies",
    "HiCache",
    "HiCacheError",
    "Histogram",
    "Hit",
    "HitError",
    "Host",
    "Inserted",
    "InvariantError",
    "LeftBehind",
    "Load",
    "ModelIdentity",
    "Namespace",
    "Reader",
    "Reason",
    "StaleCursor",
    "StorageError",
    "Warm",
    "WouldHit",
    "pools",
    "unified",
]


def __getattr__(name: str) -> Any:
    if name in ("pools", "unified"):
        return import_module(f"hicache.{name}")
    if name == "__version__":
        return import_module("hicache._hicache").__version__
    if name in _HOME:
        return getattr(import_module(f"hicache.{_HOME[name]}"), name)
    raise AttributeError(f"module 'hicache' has no attribute {name!r}")
