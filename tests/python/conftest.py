"""What all Python tests share: where things are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: threads that spin while they wait take the cores from each other and from the
# threads that copy. Beside other work the real model's tests took four times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """Small inputs that belong to the tests."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the clone, with real traces; without it the test is skipped."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder 'shared' with the real traces is not beside this clone")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A skipped test is a promise not kept in this run: says how many, in capitals."""
    skipped = len(terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(
            f"{skipped} TESTS WERE SKIPPED, for the reasons above", yellow=True, bold=True
        )
