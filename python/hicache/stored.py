"""What a cache's store says of itself.

On error: nothing here fails. No call waits for the store, which may hang.
"""

from __future__ import annotations

from hicache import _hicache


class WithStore:
    """What `HiCache` knows of its store."""

    _core: _hicache.Cache

    def store_stats(self) -> dict[str, int | None] | None:
        """The store's own counts by name, as of the last batch of storage work: what it holds (`pages`,
        `bytes`, `capacity`), read, wrote, evicted, found damaged; `mismatched_pages`: misses for which there
        are pages of the same model under another identity (`store_description` says in which fields they
        differ). What a store in Python holds is what it said last, which may be a call earlier. None without
        a store. Waits for nobody; stays after `close`."""
        about = self._core.about_store()
        return None if about is None else about[1]

    def store_description(self) -> str | None:
        """What the store is and how it works, in one line for people, as of the last batch of storage work.
        None without a store. Waits for nobody; stays after `close`."""
        about = self._core.about_store()
        return None if about is None else about[0]
