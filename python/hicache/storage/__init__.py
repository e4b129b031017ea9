"""Stores: any place for pages outside of memory.

`Store` is the specification and the base of one's own; `open` opens any; `hicache.testing.stores` tests one.
"""

from hicache.storage.opening import Opened, Served, Storage, open, served  # noqa: A004
from hicache.storage.store import Held, Outcome, Page, Store

__all__ = ["Held", "Opened", "Outcome", "Page", "Served", "Storage", "Store", "open", "served"]
