"""What can go wrong by the caller's doing, and bugs. Outcomes (no room, declined) are values instead."""

from __future__ import annotations


class HiCacheError(Exception):
    """Any error of this library."""


class ArgumentError(HiCacheError, ValueError):
    """An argument or setting that can't be meant; the text begins with its name. Nothing was changed."""


class StaleCursor(HiCacheError, LookupError):
    """The place of a released hit was evicted, or these tokens can't follow it (with bigram keys the first
    one must be the one that its last pair ends with): pass all tokens instead of `after`."""


class HitError(HiCacheError, RuntimeError):
    """A hit was used in a state that doesn't allow it: released, not loaded, loaded already."""


class ClosedError(HiCacheError, RuntimeError):
    """The cache is closed."""


class DeviceError(HiCacheError, RuntimeError):
    """A GPU, or copies to and from it, can't be had or failed."""


class DetachedError(HiCacheError, RuntimeError):
    """There is no device memory: it was detached, or never attached."""


class DeadlineError(HiCacheError, TimeoutError):
    """A wait outlasted its deadline."""


class StorageError(HiCacheError, RuntimeError):
    """A store failed at what an operator asked of it (`HiCache.clear`). Requests never see one."""


class InvariantError(HiCacheError, AssertionError):
    """A numbered invariant (ARCHITECTURE.md) doesn't hold: a bug in this library."""
