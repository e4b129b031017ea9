"""The examples of the README, of docs/hybrids.md, speculative.md and policies.md, and of docstrings, as a
reader would run them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.M)


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


def test_the_example_for_drafts_prints_what_it_says() -> None:
    text = (ROOT / "docs" / "speculative.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    said = re.findall(r"^print\(.*#\s*(.*)$", code, re.M)
    assert said == ["47 32"]
    assert printed(code).splitlines() == said


def test_the_example_for_policies_prints_what_it_says() -> None:
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    said = re.findall(r"^print\(.*#\s*(.*)$", code, re.M)
    assert said == ["16"]
    assert printed(code).splitlines() == said


def examples_of(source: str) -> list[str]:
    """Indented parts of docstrings that are Python. Tables and formulas are none."""
    found = []
    for node in ast.walk(ast.parse(source)):
        text = (ast.get_docstring(node) or "") if isinstance(node, DOCUMENTED) else ""
        found += [textwrap.dedent(part) for part in INDENTED.findall(text + "\n") if is_python(part)]
    return found


def is_python(part: str) -> bool:
    try:
        return bool(ast.parse(textwrap.dedent(part)).body)
    except SyntaxError:
        return False


def test_every_example_in_a_docstring_prints_what_it_says() -> None:
    sources = sorted((ROOT / "python" / "hicache").rglob("*.py"))
    root = ROOT / "python" / "hicache"
    examples = {
        path.relative_to(root).as_posix(): examples_of(path.read_text(encoding="utf-8")) for path in sources
    }
    examples = {name: codes for name, codes in examples.items() if codes}
    # Those that print nothing name something of the reader's own.
    shown = {name for name, codes in examples.items() if not any("print(" in code for code in codes)}
    assert (shown, set(examples) - shown) == (
        {"testing/doubles.py", "testing/stores/__init__.py"},
        {"unified.py"},
    )
    for code in (code for name in examples.keys() - shown for code in examples[name]):
        said = re.findall(r"^ *print\(.*\S +# (.*)$", code, re.M)
        assert said
        assert printed(code).splitlines() == said


def test_an_example_is_found_and_a_table_is_not() -> None:
    table = '"""What it is.\n\n    name    what\n    S_t     a_t S_{t-1}\n\nOn error: none.\n"""\n'
    function = 'def f():\n    """Does it:\n\n        f()\n        f()    # again\n\n    And more."""\n'
    assert examples_of(table) == []
    assert [code.strip() for code in examples_of(table + function)] == ["f()\nf()    # again"]


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
