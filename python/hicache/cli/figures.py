"""What a replay counted, as numbers, as JSON and as a table.

For: `hicache replay`.
Assumes: all amounts are tokens, but evictions, which are pages.
Refuses to know: where the numbers come from.
On error: nothing can fail here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

TIERS = ("device", "host", "storage")


def _no_hits() -> dict[str, int]:
    return dict.fromkeys(TIERS, 0)


@dataclass
class Figures:
    """Sums over requests. A prompt's last, incomplete page is looked up but not cacheable."""

    round: int | None = None
    requests: int = 0
    looked_up_tokens: int = 0
    cacheable_tokens: int = 0
    ceiling_tokens: int = 0
    hit_tokens: dict[str, int] = field(default_factory=_no_hits)
    evicted_pages: dict[str, int] = field(default_factory=lambda: {"device": 0, "host": 0})

    @property
    def recomputed_tokens(self) -> int:
        return self.looked_up_tokens - sum(self.hit_tokens.values())

    def add(self, other: Figures) -> None:
        """Adds another's sums to these."""
        self.requests += other.requests
        self.looked_up_tokens += other.looked_up_tokens
        self.cacheable_tokens += other.cacheable_tokens
        self.ceiling_tokens += other.ceiling_tokens
        for tier, tokens in other.hit_tokens.items():
            self.hit_tokens[tier] += tokens
        for tier, pages in other.evicted_pages.items():
            self.evicted_pages[tier] += pages

    def document(self) -> dict[str, Any]:
        """The figures as a JSON object; `round` only where there is one."""
        return ({} if self.round is None else {"round": self.round}) | {
            "requests": self.requests,
            "looked_up_tokens": self.looked_up_tokens,
            "cacheable_tokens": self.cacheable_tokens,
            "hit_tokens": dict(self.hit_tokens),
            "recomputed_tokens": self.recomputed_tokens,
            "ceiling_tokens": self.ceiling_tokens,
            "evicted_pages": sum(self.evicted_pages.values()),
            "evicted_pages_by_tier": dict(self.evicted_pages),
        }


def rounds_table(rounds: list[Figures]) -> Table:
    """A line a round; hits as shares of all prompt tokens."""
    table = Table(title="hits by round, % of the prompt tokens", title_justify="left")
    for name in ("round", "prompt tokens", *TIERS, "all", "ceiling", "evicted pages"):
        table.add_column(name, justify="right")
    for row in rounds:
        looked_up = row.looked_up_tokens
        shares = [_percent(row.hit_tokens[tier], looked_up) for tier in TIERS]
        table.add_row(
            str(row.round),
            f"{looked_up:,}",
            *shares,
            _percent(sum(row.hit_tokens.values()), looked_up),
            _percent(row.ceiling_tokens, looked_up),
            f"{sum(row.evicted_pages.values()):,}",
        )
    return table


def total_table(total: Figures) -> Table:
    """A line an amount, in tokens and as a share of all prompt tokens."""
    table = Table(title=f"total of {total.requests:,} requests", title_justify="left")
    table.add_column("")
    table.add_column("tokens", justify="right")
    table.add_column("%", justify="right")
    amounts = [("looked up", total.looked_up_tokens), ("in whole pages", total.cacheable_tokens)]
    amounts += [(f"hit, {tier}", total.hit_tokens[tier]) for tier in TIERS]
    amounts += [("recomputed", total.recomputed_tokens), ("ceiling", total.ceiling_tokens)]
    for name, tokens in amounts:
        table.add_row(name, f"{tokens:,}", _percent(tokens, total.looked_up_tokens))
    table.add_section()
    for tier, pages in total.evicted_pages.items():
        table.add_row(f"evicted, {tier}", f"{pages:,} pages", "")
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
