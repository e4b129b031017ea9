"""Without a GPU these tests are skipped, and say so; with HICACHE_REQUIRE_GPU=1 they fail instead."""

from __future__ import annotations

import pytest
from device import EMULATED, REQUIRED, missing


@pytest.fixture(autouse=True, scope="session")
def _gpu() -> None:
    why = missing()
    if why is None:
        return
    if REQUIRED:
        pytest.fail(f"HICACHE_REQUIRE_GPU=1, but there is no GPU: {why}")
    pytest.skip(f"NO GPU, NOTHING OF THE GPU COPIES WAS RUN: {why}")


def pytest_report_header() -> str:
    return "GPU: emulated: this only rehearses the tests" if EMULATED else f"GPU: {missing() or 'found'}"
