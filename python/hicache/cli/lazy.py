"""Commands that are imported when they are called for.

For: a root command that starts quickly and whose commands don't share their dependencies.
Assumes: the module `hicache.cli.NAME` has `app`, a `typer.Typer`, for every NAME in COMMANDS.
Refuses to know: what the commands do.
On error: a command whose module cannot be imported stays in the list, says what is missing, and exits with 1.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

COMMANDS = ("demo", "bench", "replay", "store")


class LazyGroup(TyperGroup):
    """A group whose commands are modules beside this one.

    (A context is `Any` here: newer versions of typer bring their own click, older ones import it.)
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        return _load(cmd_name) if cmd_name in COMMANDS else None


def _load(name: str) -> TyperCommand | TyperGroup:
    try:
        app: typer.Typer = import_module(f"hicache.cli.{name}").app
    except ModuleNotFoundError as error:
        app = _missing(str(error.name))
    command = cast(TyperCommand | TyperGroup, typer.main.get_command(app))
    command.name = name
    return command


def _missing(package: str) -> typer.Typer:
    app = typer.Typer(add_completion=False)

    @app.command(
        help=f"(not available: {package} is not installed)",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def refuse() -> NoReturn:
        typer.echo(f"error: this command needs {package}, which is not installed", err=True)
        raise typer.Exit(1)

    return app
