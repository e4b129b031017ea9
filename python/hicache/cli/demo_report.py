"""What the demo's answers show: tables, the JSON document, and whether it is what was promised.

For: `demo.py`, and `demo_part.py` for the line below each answer.
Assumes: times are seconds up to the first token.
Refuses to know: how answers came about.
On error: nothing can fail here; broken promises are returned as sentences.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.table import Table

from hicache.cli.demo_plan import SOURCES, Answer, Settings

NAMES = {"cold": "none: computed", "device": "device", "host": "host", "storage": "storage"}

WANTED = {
    "cold": "computed",
    "device": "on the device",
    "host": "brought from the host",
    "storage": "brought from storage",
}


def tier_lines(answer: Answer) -> str:
    """Prompt tokens by tier, and the time to the first token, as two lines of markup."""
    return (
        f"[dim]  {answer.prompt_tokens:,} prompt tokens: device {answer.device_tokens:,}, "
        f"host {answer.host_tokens:,}, storage {answer.storage_tokens:,}, "
        f"computed {answer.computed_tokens:,}\n"
        f"  first token after {duration(answer.first_token_s)}: restoring {duration(answer.restoring_s)}, "
        f"computing {duration(answer.computing_s)}[/]"
    )


def duration(seconds: float) -> str:
    """Three digits at least: seconds from one second on, else milliseconds."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


@dataclass(frozen=True)
class Source:
    """Answers whose prefix came from the same place: medians, in seconds."""

    name: str
    answers: int
    prefix_tokens: int
    first_token_s: float
    restoring_s: float
    computing_s: float
    first_token_s_each: list[float]


def by_source(answers: list[Answer]) -> list[Source]:
    """One for each place that occurred, in the order of SOURCES."""
    found = []
    for name in SOURCES:
        own = [answer for answer in answers if answer.source == name]
        if own:
            found.append(
                Source(
                    name=name,
                    answers=len(own),
                    prefix_tokens=own[0].prefix_tokens,
                    first_token_s=median(answer.first_token_s for answer in own),
                    restoring_s=median(answer.restoring_s for answer in own),
                    computing_s=median(answer.computing_s for answer in own),
                    first_token_s_each=[answer.first_token_s for answer in own],
                )
            )
    return found


def broken_promises(answers: list[Answer], planned: bool = True) -> list[str]:
    """Sentences, none if all is well: each prefix came from where it had to (as far as that was `planned`),
    answers to the same question are the same, and the process was another one after the restart."""
    broken = [
        f"{answer.document}: the prefix had to be {WANTED[answer.expected]}, but of {answer.prompt_tokens:,} "
        f"prompt tokens the device gave {answer.device_tokens:,}, host {answer.host_tokens:,}, storage "
        f"{answer.storage_tokens:,}, and {answer.computed_tokens:,} were computed"
        for answer in answers
        if planned and answer.source != answer.expected
    ]
    for (document, question), texts in _answers_by_question(answers).items():
        if len(set(texts)) > 1:
            broken.append(f"{document}: {len(set(texts))} different answers to the question: {question}")
    if len({answer.process for answer in answers}) < 2:
        broken.append("all answers came from one process: it was not restarted")
    return broken


def asked_again(answers: list[Answer]) -> tuple[int, int]:
    """Questions that were asked more than once, and the answers to them."""
    counts = [len(texts) for texts in _answers_by_question(answers).values() if len(texts) > 1]
    return len(counts), sum(counts)


def _answers_by_question(answers: list[Answer]) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    groups: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for answer in answers:
        groups.setdefault((answer.document, answer.question), []).append(tuple(answer.tokens))
    return groups


def ways(settings: Settings) -> str:
    """When pages are written and waited for, as a line."""
    speed = "at its own speed" if settings.throttle is None else f"throttled to {settings.throttle:g} MB/s"
    host = "" if settings.host_mode == "cache" else "; the host is staging"
    return f"writes: {settings.write}; waits for storage: {settings.prefetch}; the store {speed}{host}"


def as_planned(settings: Settings, answers: list[Answer]) -> str:
    """How many prefixes came from where the plan has them, which the chosen policies may change."""
    count = sum(answer.source == answer.expected for answer in answers)
    found = f"with {settings.write} and {settings.prefetch} {count} of {len(answers)} prefixes"
    return f"{found} came from where a cache that writes and awaits all has them"


def answers_table(answers: list[Answer]) -> Table:
    """A line an answer."""
    table = Table(title="prompt tokens by tier, and time to the first token", title_justify="left")
    table.add_column("document")
    table.add_column("process", justify="right")
    for name in ("device", "host", "storage", "computed"):
        table.add_column(name, justify="right")
    table.add_column("first token", justify="right")
    process = answers[0].process
    for answer in answers:
        if answer.process != process:
            table.add_section()
            process = answer.process
        tokens = (answer.device_tokens, answer.host_tokens, answer.storage_tokens, answer.computed_tokens)
        cells = [f"{count:,}" if count else "·" for count in tokens]
        table.add_row(answer.document, str(answer.process), *cells, duration(answer.first_token_s))
    return table


def sources_table(sources: list[Source]) -> Table:
    """A line a place, medians."""
    table = Table(
        title="time to the first token by where the prefix came from, medians", title_justify="left"
    )
    table.add_column("prefix from")
    for name in ("answers", "restoring", "computing", "first token", "speed-up"):
        table.add_column(name, justify="right")
    cold = next((source.first_token_s for source in sources if source.name == "cold"), None)
    for source in sources:
        times = (source.restoring_s, source.computing_s, source.first_token_s)
        faster = f"{cold / source.first_token_s:.1f} ×" if cold and source.name != "cold" else ""
        table.add_row(NAMES[source.name], str(source.answers), *map(duration, times), faster)
    return table


def question_s(sources: list[Source]) -> float:
    """Seconds for computing a question alone: what an answer takes whose prefix is on the device."""
    return next((source.computing_s for source in sources if source.name == "device"), 0.0)


def comparison(sources: list[Source]) -> str | None:
    """The figures that matter most: what a prefix costs to compute and to restore."""
    found = {source.name: source for source in sources}
    below = [name for name in ("host", "storage") if name in found]
    if "cold" not in found or "storage" not in found:
        return None
    cold = found["cold"]
    waits = " and ".join(f"{duration(found[name].restoring_s)} from {name}" for name in below)
    return (
        f"A prefix of {cold.prefix_tokens:,} tokens costs about "
        f"{duration(cold.computing_s - question_s(sources))} to compute. "
        f"Restoring it made a request wait {waits}; the rest of the copying runs beside the computing of the "
        "question, layer by layer."
    )


def document(settings: Settings, answers: list[Answer], broken: list[str]) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "settings": asdict(settings),
        "processes": sorted({answer.process for answer in answers}, key=[a.process for a in answers].index),
        "answers": [asdict(answer) | {"source": answer.source} for answer in answers],
        "sources": [asdict(source) for source in by_source(answers)],
        "broken_promises": broken,
    }
