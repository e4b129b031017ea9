"""Reading every page of a store.

For: `hicache store verify`.
Assumes: the store checks what it reads; so a page that it serves is whole.
Refuses to know: what a page means.
On error: outcomes are counted; a page that went meanwhile is no fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hicache.cli.store_pages import batches
from hicache.storage import Held, Outcome, Page, Store

#: Bytes that one batch reads, and pages of it, at most.
BATCH_BYTES, BATCH_PAGES = 32 << 20, 128


@dataclass
class Checked:
    """Pages that were read whole and their bytes, those that went meanwhile, and what the others are."""

    whole: int = 0
    bytes: int = 0
    gone: int = 0
    bad: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"whole": self.whole, "bytes": self.bytes, "gone": self.gone, "bad": dict(self.bad)}


def verified(store: Store, pages: Sequence[Held], threads: int, console: Console) -> Checked:
    """Reads all of them, `threads` batches at once, with a progress bar."""
    checked = Checked()
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(threads) as pool:
        task = progress.add_task("verifying", total=len(pages))
        parts = list(batches(pages, BATCH_PAGES, BATCH_BYTES))
        for batch, outcomes in zip(parts, pool.map(lambda part: _read(store, part), parts), strict=True):
            for page, outcome in zip(batch, outcomes, strict=True):
                _count(checked, page, outcome)
            progress.advance(task, len(batch))
    return checked


def _count(checked: Checked, page: Held, outcome: Outcome) -> None:
    if outcome is Outcome.HIT:
        checked.whole += 1
        checked.bytes += page.bytes
    elif outcome is Outcome.ABSENT:
        checked.gone += 1
    else:
        checked.bad[outcome.value] += 1


def _read(store: Store, batch: Sequence[Held]) -> Sequence[Outcome]:
    pages = [Page.of(bytearray(page.bytes)) for page in batch]
    return store.get(batch[0].identity, [page.key for page in batch], pages)
