"""`hicache store`: what a store holds, whether it is whole, and what can go.

For: people who look after a store. Each command takes the URL that a cache is given.
Assumes: the store can list its pages (`hicache.storage.Store.list`), except for `inspect` and `compact`.
Refuses to know: how any store keeps them.
On error: a store that can't be opened is named with the reason, exit 2: so is one that is one process's at a
time (slab), while a cache has it, or whose size in the URL is less than it takes. No store is ever made.
Damaged pages make `verify` exit with 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hicache.cli.options import refused
from hicache.cli.store_pages import (
    Chosen,
    Usage,
    age_text,
    batches,
    by_identity,
    duration,
    identities,
    size_text,
    whole,
)
from hicache.cli.store_places import looked_at
from hicache.cli.store_verify import Checked, verified
from hicache.errors import HiCacheError
from hicache.storage import Held, Opened
from hicache.storage import open as open_store

#: Pages that are removed at once.
BATCH = 1024

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__.splitlines()[0].split(": ", 1)[1])

Url = Annotated[
    str, typer.Argument(metavar="URL", help="The store, as a cache is given it: file:///directory, …")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Rank = Annotated[
    str | None,
    typer.Option(metavar="RANK/WORLD", help="Of which rank, where each has a directory: 0.1/2.4, say."),
]
Identity = Annotated[
    str | None, typer.Option(metavar="HEX", help="Only pages of this identity: the beginning is enough.")
]


@contextmanager
def opened(url: str, rank: str | None) -> Iterator[Opened]:
    """The store, closed at the end."""
    coordinates = whole("--rank", rank)
    url = looked_at(url, *coordinates)
    try:
        store = open_store(url, rank=coordinates[0], world=coordinates[1])
    except HiCacheError as error:
        raise refused("URL", str(error)) from error
    try:
        yield store
    finally:
        store.close()


def held(store: Opened, url: str) -> Sequence[Held]:
    """All its pages."""
    try:
        return store.list()
    except HiCacheError as error:
        raise refused("URL", f"{url}: {error}") from error


@app.command()
def inspect(url: Url, rank: Rank = None, as_json: Json = False) -> None:
    """What it is, what it holds, and what it may hold."""
    with opened(url, rank) as store:
        about: dict[str, Any] = {"store": store.describe(), **store.statistics()}
        # A store that counts nothing beforehand can still list.
        if not about["pages"]:
            pages = held(store, url)
            about |= {"pages": len(pages), "bytes": sum(page.bytes for page in pages)}
    if as_json:
        typer.echo(json.dumps(about))
        return
    capacity = about["capacity"]
    typer.echo(about["store"])
    typer.echo(f"{about['pages']:,} pages, {size_text(about['bytes'])}")
    typer.echo("room for " + ("any number" if capacity is None else size_text(capacity)))


@app.command()
def usage(url: Url, rank: Rank = None, as_json: Json = False) -> None:
    """Pages, bytes and ages by identity, the largest first."""
    with opened(url, rank) as store:
        rows = by_identity(held(store, url), identities(url))
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows]))
        return
    table = Table("identity", "model", "pages", "size", "newest", "oldest", box=None)
    for row in rows:
        ages = age_text(row.newest), age_text(row.oldest)
        table.add_row(row.identity[:16], _model(row), f"{row.pages:,}", size_text(row.bytes), *ages)
    Console().print(table if rows else "no pages")


def _model(row: Usage) -> str:
    fields = row.fields
    named = [fields.get(name, "") for name in ("model", "revision", "dtype")]
    epoch = fields.get("weights_epoch", "0")
    return " ".join([*filter(None, named), *([f"epoch {epoch}"] if epoch != "0" else [])]) or "?"


@app.command()
def verify(
    url: Url,
    identity: Identity = None,
    rank: Rank = None,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Reads at once.")] = 4,
    as_json: Json = False,
) -> None:
    """Reads and checks every page. Damaged ones are taken away by the store as it finds them; exit 1 then."""
    with opened(url, rank) as store:
        pages = Chosen(identity).of(held(store, url))
        checked = verified(store, pages, threads, Console(stderr=True, quiet=as_json))
    if as_json:
        typer.echo(json.dumps(checked.as_dict()))
    else:
        _print_checked(checked)
    raise typer.Exit(1 if checked.bad else 0)


def _print_checked(checked: Checked) -> None:
    typer.echo(f"{checked.whole:,} pages are whole ({size_text(checked.bytes)})")
    for outcome, count in checked.bad.items():
        typer.echo(f"{count:,} pages are not: {outcome}")
    if checked.gone:
        typer.echo(f"{checked.gone:,} pages went meanwhile")


@app.command()
def clear(
    url: Url,
    identity: Identity = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only pages written longer ago: 90s, 5m, 36h, 7d.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All pages of all identities.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    rank: Rank = None,
    as_json: Json = False,
) -> None:
    """Removes pages by identity, by age, or all of them. Nothing but pages is ever removed."""
    if everything == bool(identity or older_than):
        raise refused("--identity", "say which pages: --identity, --older-than (or both), or --all")
    age = 0 if older_than is None else duration("--older-than", older_than)
    with opened(url, rank) as store:
        pages = Chosen(identity, age).of(held(store, url))
        size = sum(page.bytes for page in pages)
        if pages and not yes and not typer.confirm(f"Remove {len(pages):,} pages ({size_text(size)})?"):
            raise typer.Exit(1)
        removed = remove(store, pages)
    if as_json:
        typer.echo(json.dumps({"chosen": len(pages), "removed": removed}))
    else:
        typer.echo(f"{removed:,} of {len(pages):,} pages are removed")


def remove(store: Opened, pages: Sequence[Held]) -> int:
    """How many of them were there and are gone."""
    removed = 0
    for batch in batches(pages, BATCH):
        outcomes = store.remove(batch[0].identity, [page.key for page in batch])
        removed += sum(outcome.value == "hit" for outcome in outcomes)
        if any(outcome.value not in ("hit", "absent") for outcome in outcomes):
            typer.echo("error: some pages could not be removed", err=True)
    return removed


@app.command()
def compact(url: Url, rank: Rank = None, as_json: Json = False) -> None:
    """Gives back room that is taken for nothing, as far as the store knows any."""
    with opened(url, rank) as store:
        try:
            freed = store.compact()
        except HiCacheError as error:
            typer.echo(f"error: {error}", err=True)
            sys.exit(1)
    typer.echo(json.dumps({"bytes": freed}) if as_json else f"{size_text(freed)} given back")
