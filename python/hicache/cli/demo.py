"""`hicache demo`: a real model answers questions about more text than the pools hold, and after a restart.

For: seeing the three tiers at work within two minutes.
Assumes: nothing. The model runs in two processes, one after the other (`demo_part.py`), on one store.
Refuses to know: torch.
On error: a refused value names its option, exit 2. A missing package, a tier that did not give what it had
to, or different answers to the same question: exit 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hicache.cli import demo_report as report
from hicache.cli.demo_plan import LEAST_DOCUMENTS, MODULES, Answer, Settings
from hicache.cli.options import refused
from hicache.cli.stores import output_directory, output_file, store_directory
from hicache.cli.ways import (
    PrefetchName,
    PrefetchPolicy,
    Throttle,
    WriteName,
    WritePolicy,
    check_host_mode,
    check_throttle,
)

app = typer.Typer(add_completion=False)
MOST_TOKENS = 2048
# Fewer, and what is left of a document when another pushes it out is no small part of it.
LEAST_PAGES = 4
PICTURE = "time-to-first-token.png"


class DemoModel(StrEnum):
    """Who answers."""

    smollm2 = "smollm2"
    random = "random"


@app.command()
def demo(
    documents: Annotated[
        int, typer.Option(min=LEAST_DOCUMENTS, max=len(MODULES), help="Files of Python's standard library.")
    ] = 7,
    tokens: Annotated[
        int,
        typer.Option(min=128, max=MOST_TOKENS, help="Tokens of each file, from its beginning; whole pages."),
    ] = 1024,
    answer_tokens: Annotated[int, typer.Option(min=1, max=128, help="Most tokens of an answer.")] = 32,
    page_size: Annotated[int, typer.Option(min=1, help="Tokens a page. A question is shorter than 32.")] = 32,
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An empty directory for the store.", show_default="a temporary one"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the picture goes.")] = Path("hicache-demo"),
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw the picture.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON, too.")
    ] = None,
    model: Annotated[
        DemoModel,
        typer.Option(help="SmolLM2-135M-Instruct, or a tiny random model that says nothing, in seconds."),
    ] = DemoModel.smollm2,
    write_policy: WritePolicy = WriteName.write_through,
    prefetch_policy: PrefetchPolicy = PrefetchName.wait_complete,
    host_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="cache: the host keeps pages. buffer_only: they only pass through it.",
        ),
    ] = "cache",
    throttle: Throttle = None,
) -> None:
    """Let a small real model answer questions about several files of Python's standard library.

    The device pool has room for two of them and the host pool for four, so that the same file is seen cold,
    from the device, from the host and, after a restart, from storage. The same question must get the same
    answer, under every policy; what comes from where is promised for write_through and wait_complete. With
    `--host-mode buffer_only` the host has room for two documents in passing, and what would come from the
    host comes from storage.
    """
    check_host_mode(host_mode)
    check_throttle(throttle)
    if LEAST_PAGES * page_size > tokens:
        raise refused("--page-size", f"a document needs {LEAST_PAGES} pages, and has {tokens} tokens")
    chosen = Settings(
        model.value,
        documents,
        tokens,
        answer_tokens,
        page_size,
        "",
        write_policy,
        prefetch_policy,
        throttle,
        host_mode,
    )
    output_file("--json", json_file)
    if plot:
        output_directory(out)
    with store_directory(store) as directory:
        answers = _both_parts(replace(chosen, store=str(directory)))
    broken = report.broken_promises(answers, chosen.planned)
    _show(chosen, answers)
    if json_file is not None:
        document = report.document(replace(chosen, store=str(store or "")), answers, broken)
        json_file.write_text(json.dumps(document, indent=2) + "\n")
        typer.echo(f"JSON: {json_file}")
    if plot:
        _draw(answers, out / PICTURE)
    _verdict(chosen, answers, broken)


def _both_parts(settings: Settings) -> list[Answer]:
    console = Console()
    console.rule("1: the first process")
    first = _part(settings, 1)
    console.rule("2: it has ended; another process opens the same store")
    return first + _part(settings, 2)


def _part(settings: Settings, part: int) -> list[Answer]:
    """Answers of a process that is started for them and has ended when this returns."""
    with tempfile.TemporaryDirectory(prefix="hicache-demo-") as directory:
        results = Path(directory) / "answers.json"
        command = [sys.executable, "-m", "hicache.cli.demo_part"]
        arguments = [json.dumps(asdict(settings)), str(part), str(results)]
        # Threads that spin while they wait would take the cores from the threads that copy.
        environment = {"OMP_WAIT_POLICY": "passive"} | os.environ
        done = subprocess.run([*command, *arguments], env=environment, check=False)
        if done.returncode:
            raise typer.Exit(done.returncode if done.returncode > 0 else 1)
        return [Answer.of(plain) for plain in json.loads(results.read_text())]


def _show(settings: Settings, answers: list[Answer]) -> None:
    console = Console()
    console.rule("what it shows")
    console.print(report.ways(settings), highlight=False)
    console.print(report.answers_table(answers))
    sources = report.by_source(answers)
    console.print(report.sources_table(sources))
    comparison = report.comparison(sources)
    if comparison:
        console.print(comparison, highlight=False)


def _draw(answers: list[Answer], file: Path) -> None:
    try:
        from hicache.cli.plots import first_token_picture
    except ModuleNotFoundError as error:
        typer.echo(f"no picture: {error.name} is not installed", err=True)
        return
    sources = report.by_source(answers)
    first_token_picture(sources, report.question_s(sources), file)
    typer.echo(f"picture: {file}")


def _verdict(settings: Settings, answers: list[Answer], broken: list[str]) -> None:
    console = Console()
    for sentence in broken:
        console.print(f"[bold red]NOT AS PROMISED[/] {sentence}", highlight=False)
    if broken:
        raise typer.Exit(1)
    questions, count = report.asked_again(answers)
    places = "every prefix came from the tier that it had to come from"
    console.print(
        f"[bold green]identical[/]: {count} answers to {questions} questions that were asked again; "
        + (places if settings.planned else report.as_planned(settings, answers)),
        highlight=False,
    )
