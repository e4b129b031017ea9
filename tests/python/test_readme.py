"""The examples of the README and of docs/hybrids.md, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_readmes_example_runs_and_hits(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(examples) == 1
    code = examples[0].replace("file:///tmp/hicache-readme", (tmp_path / "store").as_uri())
    assert printed(code) == "992 tokens came from the device\n"


def test_the_example_for_hybrids_prints_what_it_says() -> None:
    text = (ROOT / "docs" / "hybrids.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    said = re.findall(r"^print\(.*#\s*(\([^)]*\)):", code, re.M)
    assert len(said) == 4
    assert printed(code).splitlines() == said


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
