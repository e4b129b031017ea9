"""A conformance kit for stores: every clause of `hicache.storage.Store`, as tests for pytest, on a CPU.

    from hicache.testing.stores import StoreKit

    class TestMine(StoreKit):
        def open(self, where):          # a fresh directory, or the one of an earlier store
            return MyStore(where)

`persistent`, `shared`, `verifies`, `sizes` and `kills` say what the store promises; `open_bounded` and
`objects` let the kit check its bounds and damage its files. What isn't promised is skipped, which shows.
"""

from hicache.testing.stores.base import Base
from hicache.testing.stores.contents import Contents
from hicache.testing.stores.crash import Crash
from hicache.testing.stores.damage import Damage
from hicache.testing.stores.limits import Limits
from hicache.testing.stores.races import Races

__all__ = ["Base", "StoreKit"]


class StoreKit(Contents, Races, Limits, Damage, Crash):
    """All clauses. Subclass it with a name that pytest collects, and override `open`."""

    __test__ = False

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        cls.__test__ = cls.__dict__.get("__test__", True)
