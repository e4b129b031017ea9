"""`hicache store` on stores that are in use, damaged, empty and none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache.storage import Outcome, Page, Store
from hicache.storage import open as open_store
from hicache.testing.memory import MemoryStore

Call = Callable[..., Any]
OURS, THEIRS = b"\x11" * 32, b"\x22" * 32
KEYS = [bytes([at]) * 32 for at in range(10)]


def fill(store: Store, identity: bytes, keys: list[bytes], size: int = 1000) -> None:
    pages = [Page.of(key * size) for key in keys]
    assert set(store.put(identity, keys, [None] * len(keys), pages)) == {Outcome.HIT}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file store with 10 pages of one identity and 3 of another, of which one can be read about."""
    fields = {"model": "llama", "revision": "r1", "weights_epoch": "2"}
    with open_store(tmp_path / "a store", OURS, fields=fields) as store:
        fill(store, OURS, KEYS)
        fill(store, THEIRS, KEYS[:3], 2000)
    return tmp_path / "a store"


def pages(where: Path) -> list[Path]:
    """Files of pages, by path."""
    files = (file for file in where.rglob("*") if file.is_file())
    return sorted(file for file in files if file.stat().st_size >= 32_000 and file.suffix != ".json")


def text(result: Any) -> str:
    return " ".join(result.output.replace("│", " ").split())


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_what_it_holds(hicache: Call, store: Path) -> None:
    for url in (store, store.as_uri()):
        shown = text(hicache("store", "inspect", url))
        assert "13 pages" in shown
        assert str(store) in shown
    said = json.loads(hicache("store", "inspect", store, "--json").stdout)
    assert said["pages"] == 13
    assert said["bytes"] >= 10 * 32_000 + 3 * 64_000


def test_usage_by_identity(hicache: Call, store: Path) -> None:
    rows = json.loads(hicache("store", "usage", store, "--json").stdout)
    found = {row["identity"]: (row["pages"], row["bytes"]) for row in rows}
    assert found == {OURS.hex(): (10, 320_000), THEIRS.hex(): (3, 192_000)}
    assert rows[0]["fields"]["model"] == "llama"
    shown = text(hicache("store", "usage", store))
    assert "1111111111111111 llama r1 epoch 2 10 312.5 KiB" in shown
    assert "2222222222222222 ? 3 187.5 KiB" in shown


def test_all_is_whole(hicache: Call, store: Path) -> None:
    result = hicache("store", "verify", store, "--threads", 3)
    assert result.exit_code == 0, result.output
    assert "13 pages are whole (500.0 KiB)" in text(result)


def test_damage_is_found_and_taken_away(hicache: Call, store: Path) -> None:
    first, second, *_ = pages(store)
    content = bytearray(first.read_bytes())
    content[-5] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-1])
    result = hicache("store", "verify", store, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert (said["whole"], sum(said["bad"].values())) == (11, 2)
    assert "corrupt" in said["bad"]
    again = hicache("store", "verify", store)
    assert again.exit_code == 0, again.output
    assert "11 pages are whole" in text(again)


def test_clear_by_identity(hicache: Call, store: Path) -> None:
    assert text(hicache("store", "clear", store, "--identity", "22", "--yes")) == "3 of 3 pages are removed"
    with open_store(store) as left:
        assert {page.identity for page in left.list()} == {OURS}
    assert json.loads(hicache("store", "clear", store, "--all", "-y", "--json").stdout)["removed"] == 10
    assert "no pages" in text(hicache("store", "usage", store))


def test_clear_by_age(hicache: Call, store: Path) -> None:
    for file in pages(store)[:4]:
        age(file, 3 * 3600)
    result = hicache("store", "clear", store, "--older-than", "2h", "--yes")
    assert text(result) == "4 of 4 pages are removed"
    assert text(hicache("store", "clear", store, "--older-than", "2h", "--yes")) == "0 of 0 pages are removed"
    assert len(pages(store)) == 9


def test_clear_asks(hicache: Call, store: Path) -> None:
    result = hicache("store", "clear", store, "--all")
    assert result.exit_code == 1
    assert "Remove 13 pages (500.0 KiB)?" in text(result)
    assert len(pages(store)) == 13


def test_strangers_files_stay(hicache: Call, store: Path) -> None:
    for place in (store, store / OURS.hex()[:32]):
        (place / "notes.txt").write_text("not a page")
    hicache("store", "clear", store, "--all", "--yes")
    assert (store / "notes.txt").exists()
    assert (store / OURS.hex()[:32] / "notes.txt").exists()


def test_a_store_in_use_is_looked_at_all_the_same(hicache: Call, store: Path) -> None:
    with open_store(store) as used:
        assert hicache("store", "verify", store).exit_code == 0
        assert hicache("store", "compact", store).exit_code == 0
        fill(used, OURS, [b"new" + bytes(29)])
    assert "14 pages" in text(hicache("store", "inspect", store))


class Filled(MemoryStore):
    """A third party's, with pages in it."""

    def __init__(self) -> None:
        super().__init__()
        fill(self, OURS, KEYS)


def test_a_third_partys_store(hicache: Call) -> None:
    url = f"{Filled.__module__}:Filled?verify=no"
    assert "10 pages are whole" in text(hicache("store", "verify", url))
    assert "10 pages" in text(hicache("store", "inspect", url))
    assert hicache("store", "verify", f"python://{Filled.__module__}:Filled").exit_code == 1, (
        "without checksums"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["inspect", "file:///no/such/directory"], "there is no directory"),
        (["verify", "/no/such/directory"], "there is no directory"),
        (["inspect", "nothing://x"], "unknown store"),
        (["usage", "no.such:Store"], "there is no no.such:Store"),
        (["clear", "STORE"], "say which pages"),
        (["clear", "STORE", "--all", "--identity", "11"], "say which pages"),
        (["clear", "STORE", "--identity", "33"], "no identity with pages begins"),
        (["clear", "STORE", "--identity", ""], "say which pages"),
        (["clear", "STORE", "--older-than", "soon"], "is no age"),
        (["usage", "STORE", "--rank", "2/2"], "is not RANK/WORLD"),
        (["usage", "STORE", "--rank", "0.0/2"], "is not RANK/WORLD"),
        (["usage", "STORE", "--rank", "zero"], "is not RANK/WORLD"),
    ],
)
def test_what_is_refused_changes_nothing(
    hicache: Call, store: Path, arguments: list[str], reason: str
) -> None:
    result = hicache("store", *[str(store) if word == "STORE" else word for word in arguments])
    assert result.exit_code == 2, result.output
    assert reason in text(result)
    assert len(pages(store)) == 13
    assert not Path("/no/such/directory").exists()


def test_an_identity_must_be_one(hicache: Call, store: Path) -> None:
    with open_store(store) as more:
        fill(more, b"\x11" * 8 + bytes(24), KEYS[:1])
    result = hicache("store", "clear", store, "--identity", "1111", "--yes")
    assert result.exit_code == 2
    assert "several identities begin" in text(result)
