"""The command line, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hicache.cli import app

Call = Callable[..., Any]
Replayed = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def hicache() -> Call:
    """Calls `hicache` with the arguments given (as text)."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})

    def call(*arguments: object) -> Any:
        return runner.invoke(app, [str(argument) for argument in arguments])

    return call


@pytest.fixture(scope="session")
def replayed(hicache: Call) -> Replayed:
    """What `hicache replay ... --json` prints."""

    def call(*arguments: object) -> dict[str, Any]:
        result = hicache("replay", *arguments, "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    return call
