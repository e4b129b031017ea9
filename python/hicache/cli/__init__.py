"""The `hicache` command.

For: the root of the command line and its list of commands.
Assumes: each command is a module of this package with an `app` (a `typer.Typer`).
Refuses to know: what a command needs. A command is imported when it is called for, so that `hicache replay`
works where torch or a drawing library is missing.
On error: a refused value names its option and exits with 2; a missing package is named, exit 1.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from hicache.cli.lazy import LazyGroup

__all__ = ["app", "main"]

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"hicache {version('hicache')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """HiCache: a KV cache for LLM inference in three tiers (device, host, storage) under one radix tree."""


def main() -> None:
    """Entry point of the `hicache` console script."""
    app(prog_name="hicache")
