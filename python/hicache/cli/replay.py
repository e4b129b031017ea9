"""`hicache replay`: a trace through the real tree, with pools that hold no bytes.

For: how much of a workload would hit, at any tier size, in seconds.
Assumes: the extension's `Replay`, which decides everything; torch is not needed.
Refuses to know: how the tree evicts.
On error: a refused value or a bad trace names its option and exits with 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hicache._hicache import Replay
from hicache.cli.figures import TIERS, Figures, rounds_table, total_table
from hicache.cli.multiturn import Multiturn
from hicache.cli.options import (
    MOST_PAGE_SIZE,
    MOST_TURN,
    UNBOUNDED,
    clients_by_rounds,
    refused,
    tier_pages,
)
from hicache.cli.traces import Request, Trace, TraceError, TraceFormat, read_trace

MULTITURN_PAGE_SIZE = 64
MULTITURN_INPUT = 4096
MULTITURN_OUTPUT = 16

app = typer.Typer(add_completion=False)


class Storage(StrEnum):
    """Whether there is a storage tier."""

    none = "none"
    unbounded = "unbounded"


class Eviction(StrEnum):
    """Which pages a full tier gives up."""

    lru = "lru"


class HostCopies(StrEnum):
    """What becomes of a host copy while its page is on the device too."""

    keep = "keep"


@dataclass(frozen=True)
class Tiers:
    """Sizes in pages; None is unbounded, 0 is no such tier."""

    device: int | None
    host: int | None
    storage: bool


@app.command()
def replay(
    trace: Annotated[
        Path | None, typer.Argument(help="A request trace: Mooncake (.jsonl) or kv-cache-tester (.json).")
    ] = None,
    multiturn: Annotated[
        str | None,
        typer.Option(metavar="CLIENTSxROUNDS", help="Instead of a trace: growing conversations, as 48x60."),
    ] = None,
    new_input: Annotated[
        int | None,
        typer.Option(
            "--input",
            min=1,
            max=MOST_TURN,
            help="With --multiturn: new tokens a turn.",
            show_default=str(MULTITURN_INPUT),
        ),
    ] = None,
    new_output: Annotated[
        int | None,
        typer.Option(
            "--output",
            min=0,
            max=MOST_TURN,
            help="With --multiturn: generated tokens a turn.",
            show_default=str(MULTITURN_OUTPUT),
        ),
    ] = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PAGE_SIZE,
            help="Tokens a page.",
            show_default=f"what an id of the trace stands for; {MULTITURN_PAGE_SIZE} with --multiturn",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(metavar="TOKENS", help="Size of the device tier, as 3550000 or 3.55M, or 'unbounded'."),
    ] = UNBOUNDED,
    host: Annotated[
        str, typer.Option(metavar="TOKENS", help="Size of the host tier, or 'unbounded', or 'none'.")
    ] = "none",
    storage: Annotated[Storage, typer.Option(help="The storage tier behind the host tier.")] = Storage.none,
    eviction: Annotated[Eviction, typer.Option(help="Which pages a full tier gives up.")] = Eviction.lru,
    host_copies: Annotated[
        HostCopies, typer.Option(help="A host copy of a page that is on the device too: keep it.")
    ] = HostCopies.keep,
    trace_format: Annotated[
        TraceFormat, typer.Option("--format", help="The trace's format; 'auto' looks at the file.")
    ] = TraceFormat.auto,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first requests, this many.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
) -> None:
    """Send a request trace through the tree and count hits by tier; pools hold no bytes.

    Sizes are tokens, rounded down to whole pages. Without sizes the device tier is unbounded.
    A request's pages are the engine's while it runs: its whole path is inserted, then each tier is trimmed.
    """
    if multiturn is None:
        source = _from_file(trace, trace_format, page_size, new_input, new_output)
    elif trace is not None:
        raise refused("--multiturn", "give a trace or this option, not both")
    else:
        source = _multiturn(multiturn, page_size, new_input, new_output)
    source = source.first(limit)
    tiers = _tiers(device, host, storage, source.page_size)
    rounds = list(_run(source, tiers))
    settings = {"eviction": eviction.value, "host_copies": host_copies.value, "storage": storage.value}
    _report(source, tiers, settings, rounds, as_json)


def _from_file(
    file: Path | None, form: TraceFormat, page_size: int | None, new_input: int | None, new_output: int | None
) -> Trace:
    if file is None:
        raise refused("TRACE", "give a trace, or --multiturn")
    for option, value in (("--input", new_input), ("--output", new_output)):
        if value is not None:
            raise refused(option, "only together with --multiturn")
    try:
        return read_trace(file, form, page_size)
    except OSError as error:
        raise refused("TRACE", f"{file}: {error.strerror}") from error
    except TraceError as error:
        raise refused("TRACE", f"{file}: {error}") from error


def _multiturn(text: str, page_size: int | None, new_input: int | None, new_output: int | None) -> Trace:
    clients, rounds = clients_by_rounds("--multiturn", text)
    load = Multiturn(
        clients,
        rounds,
        MULTITURN_INPUT if new_input is None else new_input,
        MULTITURN_OUTPUT if new_output is None else new_output,
    )
    return load.trace(MULTITURN_PAGE_SIZE if page_size is None else page_size)


def _tiers(device: str, host: str, storage: Storage, page_size: int) -> Tiers:
    tiers = Tiers(
        tier_pages("--device", device, page_size, none=False),
        tier_pages("--host", host, page_size, none=True),
        storage is Storage.unbounded,
    )
    if tiers.storage and tiers.host == 0:
        raise refused("--storage", "pages reach storage through the host tier: give --host a size too")
    return tiers


def _run(trace: Trace, tiers: Tiers) -> Iterator[Figures]:
    """The figures of each round; of all requests, where there are no rounds."""
    tree = Replay(
        page_size=trace.page_size // trace.unit,
        device=tiers.device,
        host=tiers.host,
        storage=tiers.storage,
    )
    evicted = (0, 0)
    for number, requests in groupby(_shown(trace), key=lambda request: request.round):
        figures = Figures(round=number)
        for request in requests:
            _count(figures, trace, request, tree.request(request.path, request.prompt))
        device, host = tree.evicted()
        figures.evicted_pages = {"device": device - evicted[0], "host": host - evicted[1]}
        evicted = (device, host)
        yield figures


def _count(figures: Figures, trace: Trace, request: Request, found: tuple[int, int, int, int]) -> None:
    *hits, ceiling = found
    tokens = request.prompt * trace.unit
    figures.requests += 1
    figures.looked_up_tokens += tokens
    figures.cacheable_tokens += tokens - tokens % trace.page_size
    figures.ceiling_tokens += ceiling * trace.unit
    for tier, units in zip(TIERS, hits, strict=True):
        figures.hit_tokens[tier] += units * trace.unit


def _shown(trace: Trace) -> Iterable[Request]:
    """The trace's requests, with a progress bar on a terminal's standard error."""
    bar = Progress(
        TextColumn("replaying {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        yield from bar.track(trace.requests, total=trace.count, description=trace.name)


def _report(
    trace: Trace, tiers: Tiers, settings: dict[str, str], rounds: list[Figures], as_json: bool
) -> None:
    total = Figures()
    for figures in rounds:
        total.add(figures)
    by_round = [figures for figures in rounds if figures.round is not None]
    if as_json:
        document: dict[str, Any] = {
            "trace": trace.name,
            "format": trace.format,
            "page_size": trace.page_size,
            "device_pages": tiers.device,
            "host_pages": tiers.host,
            **settings,
        }
        if by_round:
            document["rounds"] = [figures.document() for figures in by_round]
        typer.echo(json.dumps(document | {"total": total.document()}, indent=2))
        return
    console = Console()
    console.print(
        f"{trace.name}: pages of {trace.page_size} tokens, device {_pages(tiers.device)}, "
        f"host {_pages(tiers.host)}, storage {settings['storage']}",
        highlight=False,
    )
    if by_round:
        console.print(rounds_table(by_round))
    console.print(total_table(total))


def _pages(pages: int | None) -> str:
    return UNBOUNDED if pages is None else f"{pages:,} pages" if pages else "none"
