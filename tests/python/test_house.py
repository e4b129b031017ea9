"""The house rules that a text search can check (ARCHITECTURE.md, dependency rules). Each checker is shown a
planted violation too, so that a rule which finds nothing is known to be able to find something.

What a search cannot see is left to review: a noun that reaches another through a name re-exported at the
crate's root is caught only where it spells the module.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "rust" / "hicache-core" / "src"
LINES = 300
NOUNS = ("tree", "host", "transfer", "storage", "unified")
ALLOWED_EDGES = {("transfer", "host")}
UNSAFE = (
    "rust/hicache-core/src/soon.rs",  # a hint to the machine
    "rust/hicache-core/src/host/slab.rs",
    "rust/hicache-core/src/huge/",  # maps memory, and asks the kernel what it is in
    "rust/hicache-core/src/host/numa.rs",
    "rust/hicache-core/src/restart/table.rs",
    "rust/hicache-core/src/transfer/cpu/mod.rs",
    "rust/hicache-core/src/transfer/cpu/walk.rs",
    "rust/hicache-core/src/transfer/cpu/buffer.rs",
    "rust/hicache-core/src/transfer/cpu/nontemporal.rs",
    "rust/hicache-core/src/transfer/cuda/",
    "rust/hicache-core/build.rs",  # names the CUDA compiler through the environment
    "rust/hicache-core/src/storage/workers.rs",
    "rust/hicache-core/src/storage/disk/",  # addresses, to the kernel and back
    "rust/hicache-core/src/assemble.rs",
    "rust/hicache-core/src/gpu.rs",
    "benches/copies/",  # its flat copies and its regions
    "tests/rust/",  # the tests' own devices, and an allocator that counts
    "benches/growth.rs",  # the same
    "benches/fio.rs",  # a slab's bytes as a slice
    "rust/hicache-py/src/",
)
IMPURE = r"\bstd::(time|thread|fs|net|io|env)\b|\b(Instant|SystemTime|RandomState)\b|\brand::|\bunsafe\b"
NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.S)
SOURCES = ("rust", "python", "tests", "benches", "cuda")
SUFFIXES = {".rs", ".py", ".pyi", ".cu", ".cuh", ".h", ".cpp"}


def code(text: str) -> str:
    """Rust without comments and texts, so that words in them count for nothing."""
    return NOT_CODE.sub(" ", text)


def modules_named(text: str) -> set[str]:
    """First names behind `crate::` or a chain of `super::`, also in groups: `crate::{host::Slab, tree}`."""
    names: set[str] = set()
    for match in re.finditer(r"\b(?:crate|super)::(?:super::)*(\w+|\{)", code(text)):
        if match[1] == "{":
            names |= _first_names(code(text)[match.end() :])
        else:
            names.add(match[1])
    return names


def _first_names(group: str) -> set[str]:
    """Names at the outermost level of a `{...}` group, whose opening brace is already read."""
    depth, outermost = 1, ""
    for letter in group:
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            break
        if depth == 1:
            outermost += letter
    return {name for part in outermost.split(",") if (name := part.strip().split("::")[0].strip())}


def forbidden_edges(noun: str, text: str) -> set[str]:
    """Nouns that a file of `noun` may not name, but does."""
    return {name for name in modules_named(text) & set(NOUNS) if name != noun} - {
        to for start, to in ALLOWED_EDGES if start == noun
    }


def impurities(text: str) -> list[str]:
    """Clocks, threads, I/O, randomness, `unsafe`, and walks in a hash map's order."""
    body = code(text)
    found = [match[0] for match in re.finditer(IMPURE, body)]
    for name in re.findall(r"\b(\w+)\s*:\s*&?(?:mut )?Hash(?:Map|Set)\b", body):
        walk = rf"\b{name}\s*\.\s*(?:iter|iter_mut|keys|values|values_mut|drain|into_iter|retain)\b"
        loop = rf"\bin &?(?:mut )?(?:self\.)?{name}\b\s*\{{"
        found += [match[0] for match in re.finditer(f"{walk}|{loop}", body)]
    return found


def uses_unsafe(text: str) -> bool:
    """An `unsafe` block, function or impl; the lints' names do not count."""
    return re.search(r"\bunsafe\b(?!_)", code(text)) is not None


def too_long(text: str) -> bool:
    return len(text.splitlines()) > LINES


def sources(*folders: str, suffixes: set[str] = SUFFIXES) -> list[Path]:
    """Source files below the folders that exist."""
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob("*")))
    return [file for file in files if file.suffix in suffixes and "__pycache__" not in file.parts]


def of_noun(noun: str) -> list[Path]:
    files = [*sorted((CORE / noun).rglob("*.rs")), CORE / f"{noun}.rs"]
    return [file for file in files if file.exists()]


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("noun", NOUNS)
def test_nouns_do_not_know_each_other(noun: str) -> None:
    files = of_noun(noun)
    assert files, f"no source of {noun}: has the house moved?"
    found = {relative(file): forbidden_edges(noun, file.read_text()) for file in files}
    assert {file: edges for file, edges in found.items() if edges} == {}


@pytest.mark.parametrize(
    ("noun", "text", "edges"),
    [
        ("tree", "use crate::host::Slab;", {"host"}),
        ("tree", "use crate::{ids::Slot, storage::{Store, queue}, page};", {"storage"}),
        ("tree", "use super::super::transfer;", {"transfer"}),
        ("unified", "use crate::tree::Tree;", {"tree"}),
        ("storage", "fn f(tree: &crate::tree::Tree) {}", {"tree"}),
        ("host", "use super::{tree, layout};", {"tree"}),
        ("transfer", "use crate::host::layout; // crate::tree", set()),
        ("tree", "use crate::{ids::{host, Slot}}; use crate::tree::node;", set()),
    ],
)
def test_a_planted_edge_is_found(noun: str, text: str, edges: set[str]) -> None:
    assert forbidden_edges(noun, text) == edges


@pytest.mark.parametrize("module", ["tree", "policy", "unified"])
def test_decisions_are_pure(module: str) -> None:
    files = of_noun(module)
    assert files, f"no source of {module}: has the house moved?"
    found = {relative(file): impurities(file.read_text()) for file in files}
    assert {file: words for file, words in found.items() if words} == {}


def test_policies_know_no_noun() -> None:
    found = {relative(file): modules_named(file.read_text()) & set(NOUNS) for file in of_noun("policy")}
    assert {file: nouns for file, nouns in found.items() if nouns} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("let now = std::time::Instant::now();", 2),
        ("std::thread::spawn(|| ());", 1),
        ("unsafe { x }", 1),
        ("struct T { kids: HashMap<u32, u32> }\nfor k in self.kids.keys() {}", 1),
        ("let kids: HashSet<u32> = f();\nfor k in &kids { }", 1),
        ("struct T { kids: HashMap<u32, u32> }\nself.kids.get(&3); // unsafe, std::time", 0),
        ('const WHY: &str = "unsafe";', 0),
    ],
)
def test_planted_impurity_is_found(text: str, count: int) -> None:
    assert len(impurities(text)) == count


def test_unsafe_stays_where_it_is_named() -> None:
    files = sources("rust", "tests/rust", "benches", suffixes={".rs"})
    assert files
    found = [relative(file) for file in files if uses_unsafe(file.read_text())]
    assert [file for file in found if not file.startswith(UNSAFE)] == []


def test_planted_unsafe_is_found() -> None:
    assert uses_unsafe("fn f() { unsafe { g() } }")
    assert not uses_unsafe("#![deny(unsafe_code)] // unsafe")


def test_the_core_knows_no_python() -> None:
    manifest = tomllib.loads((CORE.parent / "Cargo.toml").read_text())
    tables = [manifest.get(name, {}) for name in ("dependencies", "build-dependencies", "dev-dependencies")]
    assert [name for table in tables for name in table if name.startswith(("pyo3", "numpy"))] == []
    assert [relative(file) for file in sorted(CORE.rglob("*.rs")) if "pyo3" in code(file.read_text())] == []


def test_cargo_builds_the_core_alone_by_default() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    assert workspace["default-members"] == ["rust/hicache-core"]
    binding = tomllib.loads((ROOT / "rust" / "hicache-py" / "Cargo.toml").read_text())
    features = binding["dependencies"]["pyo3"]["features"]
    assert "abi3-py311" in features
    assert "extension-module" not in features


def counts_processors(text: str) -> bool:
    """Whether it asks how many there are; names in texts count, too."""
    return (
        re.search(r"\bcpu_count\b|\bavailable_parallelism\b|\bnum_cpus\b|_SC_NPROCESSORS", text) is not None
    )


def test_processors_are_counted_in_one_place() -> None:
    """Where what the process may use is asked for, not what the machine has: its control groups may allow
    less."""
    files = [file for file in sources("rust", "python") if counts_processors(file.read_text())]
    assert [relative(file) for file in files] == ["rust/hicache-core/src/processors.rs"]
    assert counts_processors("threads = os.cpu_count() or 1")
    assert not counts_processors("processors::allowed()")


def test_files_are_short() -> None:
    files = sources(*SOURCES)
    assert files
    assert [relative(file) for file in files if too_long(file.read_text())] == []
    assert too_long("x\n" * (LINES + 1))
    assert not too_long("x\n" * LINES)


def test_what_is_installed_says_what_it_is() -> None:
    about = metadata("hicache")
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert about["Version"] == cargo["workspace"]["package"]["version"]
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == cargo["workspace"]["package"]["license"] == "Apache-2.0"
    needed = {re.split(r"[^\w-]", line)[0] for line in about.get_all("Requires-Dist", [])}
    assert needed == {"numpy", "torch", "rich", "typer"}
    assert [point.value for point in entry_points(group="console_scripts", name="hicache")] == [
        "hicache.cli:main"
    ]
    assert (ROOT / "python" / "hicache" / "py.typed").exists()


def test_no_lock_file_spells_a_registry_for_python() -> None:
    assert [
        name for name in ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock") if (ROOT / name).exists()
    ] == []
    for name in ("pyproject.toml", "Makefile", ".ci/run"):
        assert not re.search(r"(?i)index[-_]url|find-links|simple/|pypi\.", (ROOT / name).read_text()), name
