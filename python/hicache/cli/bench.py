"""`hicache bench multiturn`: growing conversations on the reference engine, with real bytes, tier by tier.

For: what each tier is worth on a workload that outgrows the device first and the host later.
Assumes: nothing.
Refuses to know: torch, until the options are checked.
On error: a refused value names its option, exit 2. A missing package, or answers of exact arithmetic that
differ between configurations: exit 1.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hicache.cli import bench_report as report
from hicache.cli.bench_options import (
    HIDDEN,
    LAYERS,
    MOST_CLIENTS,
    MOST_HIDDEN,
    MOST_LAYERS,
    POSITIONS,
    WIDTH,
    configuration_names,
    model_shape,
    tier_sizes,
)
from hicache.cli.bench_plan import CONFIGURATIONS, Sizes, Workload
from hicache.cli.options import MOST_AT_ONCE, refused
from hicache.cli.stores import output_directory, output_file, store_directory
from hicache.cli.ways import (
    PrefetchName,
    PrefetchPolicy,
    Throttle,
    WriteName,
    WritePolicy,
    check_throttle,
)

if TYPE_CHECKING:
    from hicache.cli.bench_run import ModelChoice

app = typer.Typer(add_completion=False, no_args_is_help=True)
NAME = "multiturn"


class BenchModel(StrEnum):
    """Whose weights."""

    random = "random"
    smollm2 = "smollm2"


@app.callback()
def bench() -> None:
    """Measure the cache on the reference engine, with real bytes."""


@app.command()
def multiturn(
    clients: Annotated[int, typer.Option(min=1, max=MOST_CLIENTS, help="Conversations.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, max=POSITIONS, help="Turns of each conversation.")] = 16,
    new_input: Annotated[
        int, typer.Option("--input", min=1, max=POSITIONS, help="New tokens of each turn.")
    ] = 128,
    new_output: Annotated[
        int, typer.Option("--output", min=1, max=POSITIONS, help="Generated tokens of each turn.")
    ] = 16,
    page_size: Annotated[int, typer.Option(min=1, max=POSITIONS, help="Tokens a page.")] = 16,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            help="Size of the device pool, as 20000 or 20k; 'unbounded' is room for everything.",
            show_default="what is full after 30 % of the rounds",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="TOKENS", help="Size of the host pool.", show_default="twice the device pool"),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An empty directory for the store.", show_default="a temporary one"),
    ] = None,
    configurations: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Which tiers: device, host (with device), storage (all three)."),
    ] = "device,host,storage",
    running: Annotated[
        int, typer.Option(min=1, max=MOST_AT_ONCE, help="Requests in flight at most; the others queue.")
    ] = 2,
    model: Annotated[
        BenchModel,
        typer.Option(help="Random weights in float64 (answers must not differ), or SmolLM2-135M in float32."),
    ] = BenchModel.random,
    layers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_LAYERS, help="Of the random model.", show_default=str(LAYERS)),
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            min=WIDTH, max=MOST_HIDDEN, help=f"Its width, a multiple of {WIDTH}.", show_default=str(HIDDEN)
        ),
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            metavar="LETTERS",
            help="Its layers' kinds, over and over: F (full attention), W (sliding window), S (state).",
            show_default="F",
        ),
    ] = None,
    write_policy: WritePolicy = WriteName.write_through,
    prefetch_policy: PrefetchPolicy = PrefetchName.wait_complete,
    throttle: Throttle = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the token ids and the random weights.")
    ] = 20260626,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_AT_ONCE,
            help="For computing; copies need a core, too.",
            show_default="all cores but one",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the picture and the JSON document go.")
    ] = Path("hicache-bench"),
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw the picture.")] = True,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="The JSON document.", show_default=f"{NAME}.json in --out"
        ),
    ] = None,
) -> None:
    """Many clients, each with a conversation that grows by a turn a round, on one tier, on two, on three.

    In each round every client sends its whole conversation so far and new random tokens; the next round
    begins when all have their answers. Times to first token count from the beginning of the round.
    """
    workload = Workload(clients, rounds, new_input, new_output, page_size, seed)
    names = configuration_names(configurations)
    chosen_sizes = tier_sizes(workload, names, device, host)
    shape = model_shape(model is BenchModel.random, layers, hidden, kinds)
    if store is not None and "storage" not in names:
        raise refused("--store", "only together with the configuration 'storage'")
    check_throttle(throttle)
    if throttle is not None and "storage" not in names:
        raise refused("--throttle", "only together with the configuration 'storage'")
    output_file("--json", json_file)
    if plot or json_file is None:
        output_directory(out)
    with store_directory(store) as directory:
        ways = (write_policy.value, prefetch_policy.value, throttle)
        outcomes = _run(workload, names, chosen_sizes, (model, *shape), running, threads, directory, ways)
    differing = report.different_answers(outcomes)
    settings = {"model": model.value, "kinds": shape[2], "running": running, **vars(workload)}
    settings |= dict(zip(("write", "prefetch", "throttle"), ways, strict=True))
    tiers = [one.document() for one in outcomes]
    file = json_file or out / f"{NAME}.json"
    _write({**settings, "different_answers": differing, "configurations": tiers}, file)
    _show(workload, outcomes)
    typer.echo(f"JSON: {file}")
    if plot:
        _draw(workload, outcomes, out / f"{NAME}.png")
    _verdict(model, outcomes, differing)


def _run(
    workload: Workload,
    names: list[str],
    chosen: Sizes,
    model: tuple[BenchModel, int, int, str],
    running: int,
    threads: int | None,
    store: Path,
    ways: tuple[str, str, float | None],
) -> list[report.Outcome]:
    """One outcome for each configuration, under one progress bar."""
    import torch

    from hicache._hicache import processors
    from hicache.cli.bench_run import ModelChoice, run
    from hicache.cli.stack import Ways

    torch.set_num_threads(threads or max(1, processors() - 1))
    kind, layers, hidden, kinds = model
    weights = _loaded(ModelChoice(kind is BenchModel.smollm2, layers, hidden, kinds, workload.seed))
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = []
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("requests", total=len(names) * workload.clients * workload.rounds)
        for name in names:
            bar.update(task, description=CONFIGURATIONS[name])
            outcomes.append(
                run(weights, workload, name, chosen, running, store, lambda: bar.advance(task), Ways(*ways))
            )
            console.print(f"{CONFIGURATIONS[name]}: {outcomes[-1].wall_s:.1f} s", highlight=False)
    return outcomes


def _loaded(choice: ModelChoice) -> Any:
    from hicache.engines.reference.tokenizer import MissingPackage

    try:
        return choice.load()
    except MissingPackage as error:
        typer.echo(f"error: {error}\n`make demo` installs it", err=True)
        raise typer.Exit(1) from error


def _show(workload: Workload, outcomes: list[report.Outcome]) -> None:
    console = Console()
    first, page_size = outcomes[0], workload.page_size
    host = next((one.host_pages for one in outcomes if one.host_pages is not None), None)
    console.print(
        f"{_title(workload)}; the device pool holds {first.device_pages * page_size:,} tokens"
        + ("" if host is None else f", the host pool {host * page_size:,}"),
        highlight=False,
    )
    for table in (report.hits_table, report.first_token_table, report.totals_table):
        console.print(table(outcomes))


def _title(workload: Workload) -> str:
    return (
        f"{workload.clients} clients × {workload.rounds} rounds, {workload.input} tokens in and "
        f"{workload.output} out a turn, pages of {workload.page_size}"
    )


def _write(document: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n")


def _draw(workload: Workload, outcomes: list[report.Outcome], file: Path) -> None:
    try:
        from hicache.cli.plots import multiturn_picture
    except ModuleNotFoundError as error:
        typer.echo(f"no picture: {error.name} is not installed", err=True)
        return
    multiturn_picture(outcomes, _title(workload), file)
    typer.echo(f"picture: {file}")


def _verdict(model: BenchModel, outcomes: list[report.Outcome], differing: int) -> None:
    answers = sum(len(one.generated) for one in outcomes)
    if differing == 0:
        typer.echo(f"identical: {answers:,} answers; no configuration generated another token")
        return
    typer.echo(f"{differing} conversations went another way than in the first configuration", err=True)
    if model is BenchModel.random:
        typer.echo("error: in float64 that is no rounding: wrong KV was served", err=True)
        raise typer.Exit(1)
    typer.echo("(two best logits closer than float32 rounding; see the reference engine's tests)", err=True)
