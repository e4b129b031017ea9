"""What crosses into the core and comes back as tuples."""

from __future__ import annotations

#: Name; planes as (layer, role, bytes of a row); (heads, head groups); whether rows are pages; whose slots;
#: needs: 0 all pages, 1 the last one, else 1 + a window's tokens.
Pool = tuple[str, list[tuple[int, int, int]], tuple[int, int], bool, str, int]
#: (address, bytes) of each plane of each pool.
Memory = list[list[tuple[int, int]]]
#: Slots, layout, shared, threads that touch it beforehand, NUMA node.
Host = tuple[list[int], str, bool, int, int | None]
#: The model's fields (name and text), rank, world.
Identity = tuple[list[tuple[str, str]], list[int], list[int]]
#: As `Cache.undecided` has them.
Undecided = tuple[int, int, int, int, int, int | None, bool, int, int]
#: Backups, loads, stores, prefetches, strays.
Counts = tuple[int, int, int, int, int]
#: Of pages that came: their namespace's seed, extra key and adapter, the page before, tokens.
Came = tuple[bytes | None, str | None, str | None, bytes | None, list[int]]
#: An event: what, tier, pages, what came, how many were lost.
Told = tuple[str, str, list[bytes], Came | None, int]
