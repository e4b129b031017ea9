"""The directory that a command's storage tier lies in.

For: `demo` and `bench`, whose first requests must find nothing in storage.
Assumes: nobody else writes to the directory.
Refuses to know: what a store looks like inside.
On error: `typer.BadParameter` naming `--store`, exit 2.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hicache.cli.options import refused


@contextmanager
def store_directory(given: Path | None) -> Iterator[Path]:
    """`given`, which must be empty or new and is kept; or a temporary one, which is removed at the end."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="hicache-store-") as directory:
            yield Path(directory)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
        used = any(given.iterdir())
        with tempfile.TemporaryFile(dir=given):
            pass
    except OSError as error:
        raise refused("--store", f"{given}: {error.strerror}") from error
    if used:
        raise refused("--store", f"{given}: is not empty, and pages of an earlier run would be found again")
    yield given


def output_directory(given: Path) -> Path:
    """`given`, made if it is not there."""
    try:
        given.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=given):
            pass
    except OSError as error:
        raise refused("--out", f"{given}: {error.strerror}") from error
    return given


def output_file(option: str, given: Path | None) -> None:
    """Refuses a file that cannot be written, before the work that would fill it."""
    if given is None:
        return
    try:
        with given.open("a"):
            pass
    except OSError as error:
        raise refused(option, f"{given}: {error.strerror}") from error
