"""What a bench measured: figures by round and by configuration, as tables and as JSON.

For: `hicache bench`.
Assumes: times are in seconds, amounts in tokens.
Refuses to know: how they were measured.
On error: nothing can fail here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from rich.table import Table

TIERS = ("device", "host", "storage")


@dataclass
class Round:
    """Sums over a round's requests, and each one's time to first token."""

    round: int
    prompt_tokens: int = 0
    ceiling_tokens: int = 0
    hit_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    computed_tokens: int = 0
    first_token_s: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that were found in any tier."""
        return sum(self.hit_tokens.values()) / self.prompt_tokens

    @property
    def ceiling_rate(self) -> float:
        """The most that `hit_rate` can be."""
        return self.ceiling_tokens / self.prompt_tokens

    @property
    def mean_first_token_s(self) -> float:
        return sum(self.first_token_s) / len(self.first_token_s)

    @property
    def p90_first_token_s(self) -> float:
        """The smallest time that at least 90 % of the requests did not exceed."""
        return sorted(self.first_token_s)[ceil(0.9 * len(self.first_token_s)) - 1]

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "round": self.round,
            "looked_up_tokens": self.prompt_tokens,
            "hit_tokens": dict(self.hit_tokens),
            "recomputed_tokens": self.computed_tokens,
            "ceiling_tokens": self.ceiling_tokens,
            "hit_rate": self.hit_rate,
            "ceiling_rate": self.ceiling_rate,
            "mean_first_token_s": self.mean_first_token_s,
            "p90_first_token_s": self.p90_first_token_s,
        }


@dataclass
class Outcome:
    """One configuration's run. `generated`: tokens by (client, round). `stats`: the cache's counters.

    As in `hicache replay`, recomputed are all prompt tokens that were computed, new ones too.
    """

    name: str
    device_pages: int
    host_pages: int | None
    rounds: list[Round] = field(default_factory=list)
    wall_s: float = 0.0
    generated: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """The name for a narrow column: the last tier."""
        *before, last = self.name.split(" + ")
        return f"+ {last}" if before else last

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self.rounds)

    @property
    def computed_tokens(self) -> int:
        return sum(one.computed_tokens for one in self.rounds)

    @property
    def lost_tokens(self) -> int:
        """Prompt tokens that were computed though they had been before: what was missed of the ceiling."""
        return sum(one.ceiling_tokens - sum(one.hit_tokens.values()) for one in self.rounds)

    @property
    def input_tokens_per_s(self) -> float:
        """Effective input throughput: whole prompts, what was found included, over the time of the run."""
        return self.prompt_tokens / self.wall_s

    def hit_tokens(self, tier: str) -> int:
        return sum(one.hit_tokens[tier] for one in self.rounds)

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "configuration": self.name,
            "device_pages": self.device_pages,
            "host_pages": self.host_pages,
            "wall_s": self.wall_s,
            "looked_up_tokens": self.prompt_tokens,
            "hit_tokens": {tier: self.hit_tokens(tier) for tier in TIERS},
            "recomputed_tokens": self.computed_tokens,
            "lost_tokens": self.lost_tokens,
            "effective_input_tokens_per_s": self.input_tokens_per_s,
            "rounds": [one.document() for one in self.rounds],
            "stats": self.stats,
        }


def different_answers(outcomes: list[Outcome]) -> int:
    """Answers of a later configuration that differ from the first one's.

    Once an answer differs, that client's next prompts are others too: only the first difference counts.
    """
    count = 0
    for outcome in outcomes[1:]:
        differing: set[int] = set()
        for (client, number), tokens in sorted(outcome.generated.items(), key=lambda item: item[0][1]):
            if client not in differing and tokens != outcomes[0].generated[client, number]:
                differing.add(client)
        count += len(differing)
    return count


def hits_table(outcomes: list[Outcome]) -> Table:
    """Hit rate by round."""
    table = Table(title="prompt-token hit rate by round, %", title_justify="left")
    for name in ("round", "prompt tokens", "ceiling", *(outcome.short for outcome in outcomes)):
        table.add_column(name, justify="right")
    for number, first in enumerate(outcomes[0].rounds):
        rates = [outcome.rounds[number].hit_rate for outcome in outcomes]
        table.add_row(
            str(first.round),
            f"{first.prompt_tokens:,}",
            *(f"{100 * rate:.1f}" for rate in (first.ceiling_rate, *rates)),
        )
    return table


def first_token_table(outcomes: list[Outcome]) -> Table:
    """Mean and 90th percentile of the time to first token by round."""
    table = Table(title="time to first token by round, ms: mean and p90", title_justify="left")
    table.add_column("round", justify="right")
    for outcome in outcomes:
        table.add_column(outcome.short, justify="right")
        table.add_column("p90", justify="right")
    for number, first in enumerate(outcomes[0].rounds):
        cells = []
        for outcome in outcomes:
            one = outcome.rounds[number]
            cells += [f"{1000 * one.mean_first_token_s:,.0f}", f"{1000 * one.p90_first_token_s:,.0f}"]
        table.add_row(str(first.round), *cells)
    return table


def totals_table(outcomes: list[Outcome]) -> Table:
    """A line an amount, a column a configuration."""
    table = Table(title="in total", title_justify="left")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.short, justify="right")

    def row(name: str, *cells: str) -> None:
        table.add_row(name, *cells)

    base = outcomes[0].input_tokens_per_s
    row("effective input, tokens/s", *(f"{one.input_tokens_per_s:,.0f}" for one in outcomes))
    row("against the first", *(f"{one.input_tokens_per_s / base:.1f} ×" for one in outcomes))
    row("wall time, s", *(f"{one.wall_s:.1f}" for one in outcomes))
    row("prompt tokens", *(f"{one.prompt_tokens:,}" for one in outcomes))
    for tier in TIERS:
        row(f"hit, {tier}", *(f"{one.hit_tokens(tier):,}" for one in outcomes))
    row("recomputed", *(f"{one.computed_tokens:,}" for one in outcomes))
    row("of these, seen before", *(f"{one.lost_tokens:,}" for one in outcomes))
    return table
