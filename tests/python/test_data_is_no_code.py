"""Nothing that is read, from a store, a file or a process, can ever be code: what could run it is nowhere.

The search is shown planted violations, so that finding nothing means something.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python" / "hicache"
#: Modules whose data may be programs.
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "shelve",
    "yaml",
}
#: Functions that run, or unpickle, what they are given; as attributes of a module.
CALLS = {("torch", "load"), ("torch", "save"), ("np", "load"), ("numpy", "load"), ("torch.jit", "load")}
BUILTINS = {"eval", "exec", "compile", "__import__"}
#: Modules with which a process can be reached from outside.
LISTENING = {
    "aiohttp",
    "asyncio",
    "fastapi",
    "flask",
    "http.server",
    "multiprocessing.connection",
    "socket",
    "socketserver",
    "uvicorn",
    "xmlrpc",
    "zmq",
}
#: The conformance kit makes a pickle, to see that nobody loads it.
MAKES_ONE = PYTHON / "testing" / "stores" / "damage.py"


def found_in(text: str) -> set[str]:
    """What of a Python source could run data."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.add(str(node.module))
        elif isinstance(node, ast.Call):
            found |= _called(node.func)
    return found


def _called(function: ast.expr) -> set[str]:
    if isinstance(function, ast.Name) and function.id in BUILTINS:
        return {function.id}
    if isinstance(function, ast.Attribute):
        owner = ast.unparse(function.value)
        if (owner, function.attr) in CALLS or (owner.split(".")[-1] in MODULES and function.attr != "dumps"):
            return {f"{owner}.{function.attr}"}
    return set()


def test_no_source_can_run_data() -> None:
    files = sorted(PYTHON.rglob("*.py"))
    assert len(files) > 30
    found = {file.relative_to(ROOT).as_posix(): found_in(file.read_text()) for file in files}
    assert {file: words for file, words in found.items() if words} == {
        MAKES_ONE.relative_to(ROOT).as_posix(): {"pickle"}
    }
    assert set(re.findall(r"pickle\.\w+", MAKES_ONE.read_text())) == {"pickle.dumps"}


def test_nor_can_the_core() -> None:
    files = [*(ROOT / "rust").rglob("*.rs"), *(ROOT / "rust").rglob("Cargo.toml"), ROOT / "Cargo.lock"]
    assert len(files) > 100
    words = r"(?i)pickle|\bmarshal\b|py_run|run_bound|\.eval\(|py_eval"
    assert [file.name for file in files if re.search(words, file.read_text())] == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import pickle", "pickle"),
        ("import os, dill as d", "dill"),
        ("from marshal import loads", "marshal"),
        ("def f(x):\n    import shelve", "shelve"),
        ("torch.load(path)", "torch.load"),
        ("x = np.load(path, allow_pickle=True)", "np.load"),
        ("a.pickle.loads(b)", "a.pickle.loads"),
        ("eval(text)", "eval"),
        ("compile(text, 'x', 'exec')", "compile"),
    ],
)
def test_planted_ones_are_found(text: str, word: str) -> None:
    assert found_in(text) == {word}


def test_what_only_sounds_like_it_is_not() -> None:
    assert found_in("re.compile(x); json.loads(x); model.eval(); store.load(x)") == set()


def listens(text: str) -> set[str]:
    """Modules of a Python source with which it could listen."""
    named = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named.add(node.module or "")
    return {name for name in named if name in LISTENING or name.split(".")[0] in LISTENING}


def test_nothing_listens() -> None:
    """Who could reach a cache from outside could clear it: nobody can."""
    found = {file.name: listens(file.read_text()) for file in sorted(PYTHON.rglob("*.py"))}
    assert {file: names for file, names in found.items() if names} == {}
    rust = sorted((ROOT / "rust").rglob("*.rs"))
    words = r"\bTcp(Listener|Stream)\b|\bUdpSocket\b|\bUnix(Listener|Datagram)\b|\bhyper::|tokio::net"
    assert [file.name for file in rust if re.search(words, file.read_text())] == []
    assert listens("import socket\nfrom http.server import HTTPServer") == {"socket", "http.server"}
