"""The pictures of `demo` and `bench`.

For: PNG files beside the printed tables.
Assumes: matplotlib (importing this module fails without it), and no display.
Refuses to know: how figures were measured.
On error: an `OSError` where the file cannot be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from hicache.cli.bench_report import Outcome
    from hicache.cli.demo_report import Source

#: Parts of a bar; the ceiling; and a colour for each configuration.
RESTORING, PREFIX, QUESTION, CEILING = "#1b9e77", "#d95f02", "#7570b3", "#999999"
LINES = ("#d95f02", "#7570b3", "#1b9e77")
NAMES = {"cold": "nowhere", "device": "device", "host": "host", "storage": "storage,\nafter a restart"}
DPI = 150


def first_token_picture(sources: Sequence[Source], question_s: float, file: Path) -> None:
    """Stacked bars of restoring and computing; those that needed no prefill once more, on their own scale.

    `question_s`: what computing the question alone takes, in seconds.
    """
    restored = [source for source in sources if source.name != "cold"]
    panels = [(list(sources), 1.0, "seconds")]
    if restored and len(restored) < len(sources):
        panels.append((restored, 1000.0, "milliseconds"))
    widths = [len(shown) for shown, _, _ in panels]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(10, 4.8), squeeze=False, width_ratios=widths, layout="constrained"
    )
    for axis, (shown, scale, unit) in zip(axes[0], panels, strict=True):
        _source_bars(axis, shown, question_s, scale, unit)
    axes[0][0].legend(loc="upper right", frameon=False)
    if len(panels) > 1:
        axes[0][1].set_title("the same without the first bar", fontsize=10, color="#555555")
    prefix = max((source.prefix_tokens for source in sources), default=0)
    figure.suptitle(f"Time to first token by where a prefix of {prefix:,} tokens came from (medians)")
    _save(figure, file)


def _source_bars(axis: Any, sources: Sequence[Source], question_s: float, scale: float, unit: str) -> None:
    below = [0.0] * len(sources)
    for label, color, seconds in _parts(sources, question_s):
        heights = [scale * each for each in seconds]
        axis.bar(range(len(sources)), heights, width=0.6, bottom=below, color=color, label=label)
        below = [low + high for low, high in zip(below, heights, strict=True)]
    for place, (source, top) in enumerate(zip(sources, below, strict=True)):
        text = f"{source.first_token_s:.2f}"
        if scale > 1:
            text = f"{scale * source.first_token_s:.0f}\nrestoring {scale * source.restoring_s:.1f}"
        axis.annotate(text, (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=9)
        each = [scale * seconds for seconds in source.first_token_s_each]
        name = "single answers" if place == 0 else None
        axis.scatter([place + 0.36] * len(each), each, s=9, color="black", alpha=0.45, label=name)
    axis.set_xticks(range(len(sources)), [NAMES[source.name] for source in sources])
    axis.set_ylabel(unit)
    axis.margins(y=0.15)
    axis.set_ylim(bottom=0)
    _plain(axis)


def _parts(sources: Sequence[Source], question_s: float) -> list[tuple[str, str, list[float]]]:
    """Label, colour and seconds of each part of the bars. What a question costs is known from the others."""
    prefix = [max(0.0, one.computing_s - question_s) if one.name == "cold" else 0.0 for one in sources]
    question = [one.computing_s - part for one, part in zip(sources, prefix, strict=True)]
    return [
        ("restoring the prefix", RESTORING, [one.restoring_s for one in sources]),
        ("computing the prefix", PREFIX, prefix),
        ("computing the question", QUESTION, question),
    ]


def multiturn_picture(outcomes: Sequence[Outcome], title: str, file: Path) -> None:
    """Hit rate by round, mean time to first token by round, effective input throughput."""
    figure, (hits, times, bars) = plt.subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    rounds = [figures.round for figures in outcomes[0].rounds]
    ceiling = [100 * figures.ceiling_rate for figures in outcomes[0].rounds]
    hits.plot(rounds, ceiling, color=CEILING, linestyle="--", linewidth=1.2, label="ceiling", zorder=4)
    for outcome, color in zip(outcomes, LINES, strict=False):
        style = {"color": color, "marker": "o", "markersize": 3.5, "linewidth": 1.8, "label": outcome.name}
        hits.plot(rounds, [100 * figures.hit_rate for figures in outcome.rounds], **style)
        times.plot(rounds, [figures.mean_first_token_s for figures in outcome.rounds], **style)
    hits.set(title="Prompt-token hit rate", xlabel="round", ylabel="%", ylim=(-3, 103))
    times.set(title="Mean time to first token", xlabel="round", ylabel="seconds")
    times.set_ylim(bottom=0)
    figure.legend(*hits.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    _throughput_bars(bars, outcomes)
    for axis in (hits, times):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        _plain(axis)
    figure.suptitle(title)
    _save(figure, file)


def _throughput_bars(axis: Any, outcomes: Sequence[Outcome]) -> None:
    rates = [outcome.input_tokens_per_s for outcome in outcomes]
    names = [outcome.name.replace(" + ", "\n+ ") for outcome in outcomes]
    axis.bar(names, rates, width=0.6, color=LINES[: len(rates)])
    for number, rate in enumerate(rates):
        axis.annotate(f"{rate:,.0f}", (number, rate), (0, 4), textcoords="offset points", ha="center")
    axis.set(title="Effective input throughput", ylabel="prompt tokens per second")
    axis.margins(y=0.12)
    _plain(axis)


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.25)
    axis.set_axisbelow(True)


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, dpi=DPI)
    plt.close(figure)
