"""`hicache store` on a slab store: refused while it is in use, and at no page's cost when it is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hicache.storage import Outcome, Page, Store
from hicache.storage import open as open_store

Call = Callable[..., Any]
OURS, THEIRS = b"\x11" * 32, b"\x22" * 32
KEYS = [bytes([at]) * 32 for at in range(10)]
SIZE = 32_000
OPTIONS = "size=16MiB&extent=1MiB&free=0&threads=2"
COMMANDS = [
    ["inspect", "URL"],
    ["usage", "URL"],
    ["verify", "URL"],
    ["compact", "URL"],
    ["clear", "URL", "--all", "--yes"],
    ["clear", "URL", "--identity", "11", "--yes"],
    ["clear", "URL", "--older-than", "1s", "--yes"],
]


def fill(store: Store, identity: bytes, keys: list[bytes]) -> None:
    pages = [Page.of(key * (SIZE // 32)) for key in keys]
    assert set(store.put(identity, keys, [None] * len(keys), pages)) == {Outcome.HIT}


def whole(store: Store, identity: bytes, keys: list[bytes]) -> int:
    """How many of them are there, each with its bytes."""
    buffers = [bytearray(SIZE) for _ in keys]
    outcomes = store.get(identity, keys, [Page.of(buffer) for buffer in buffers])
    for key, buffer, outcome in zip(keys, buffers, outcomes, strict=True):
        assert outcome in (Outcome.HIT, Outcome.ABSENT)
        assert outcome is Outcome.ABSENT or buffer == key * (SIZE // 32)
    return sum(outcome is Outcome.HIT for outcome in outcomes)


def text(result: Any) -> str:
    return " ".join(result.output.replace("│", " ").split())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A slab store with 10 pages of one identity and 3 of another, of which one can be read about."""
    where = f"slab://{tmp_path}/store?{OPTIONS}"
    with open_store(where, OURS, fields={"model": "llama", "revision": "r1"}) as store:
        fill(store, OURS, KEYS)
        fill(store, THEIRS, KEYS[:3])
    return where


@pytest.fixture
def used(url: str) -> Iterator[Store]:
    """It is in use."""
    with open_store(url) as store:
        yield store


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_in_use_is_refused_and_nothing_happens_to_it(
    hicache: Call, url: str, used: Store, command: list[str]
) -> None:
    result = hicache("store", *[url if word == "URL" else word for word in command])
    assert result.exit_code == 2, result.output
    assert "is in use by another process" in text(result)
    assert "file:///directory" in text(result), "what can be shared"
    assert (whole(used, OURS, KEYS), whole(used, THEIRS, KEYS)) == (10, 3)
    fill(used, OURS, [b"new" + bytes(29)])
    used.close()
    shown = json.loads(hicache("store", "inspect", url, "--json").stdout)
    assert shown["pages"] == 14, "what it did meanwhile is there, too"


def test_what_it_holds(hicache: Call, url: str) -> None:
    assert "13 pages, 406.2 KiB" in text(hicache("store", "inspect", url))
    shown = text(hicache("store", "usage", url))
    assert "1111111111111111 llama r1 10 312.5 KiB" in shown
    assert "2222222222222222 ? 3 93.8 KiB" in shown
    assert "13 pages are whole" in text(hicache("store", "verify", url))
    assert hicache("store", "compact", url).exit_code == 0
    assert "13 pages are whole" in text(hicache("store", "verify", url, "--threads", 2))


def test_damage_is_found_and_taken_away(hicache: Call, url: str, tmp_path: Path) -> None:
    for data in sorted((tmp_path / "store" / "all").glob("data-*")):
        content = bytearray(data.read_bytes())
        at = content.find(KEYS[4] * 8)
        if at >= 0:
            content[at + 77] ^= 1
            data.write_bytes(content)
    result = hicache("store", "verify", url, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert (said["whole"], said["bad"]) == (12, {"corrupt": 1})
    assert hicache("store", "verify", url).exit_code == 0
    with open_store(url) as store:
        fill(store, OURS, KEYS)
        assert whole(store, OURS, KEYS) == 10


def test_only_our_pages_go_and_no_strangers_file(hicache: Call, url: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    strangers = [
        root / "notes.txt",
        root / "all" / "notes.txt",
        root / "all" / "data.bin",
        root / "all" / "log-book",
        root / "another model" / "weights.bin",
        root / OURS.hex()[:32] / "11" / "page",
    ]
    for file in strangers:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"not a page")
    assert "10 of 10 pages are removed" in text(hicache("store", "clear", url, "--identity", "1111", "-y"))
    with open_store(url) as store:
        assert (whole(store, OURS, KEYS), whole(store, THEIRS, KEYS)) == (0, 3)
    assert json.loads(hicache("store", "clear", url, "--all", "-y", "--json").stdout)["removed"] == 3
    assert "no pages" in text(hicache("store", "usage", url))
    assert [file.read_bytes() for file in strangers] == [b"not a page"] * len(strangers)
    with open_store(url) as store:
        fill(store, OURS, KEYS)


def test_clear_by_age_and_asking(hicache: Call, url: str) -> None:
    assert "0 of 0 pages" in text(hicache("store", "clear", url, "--older-than", "1h", "--yes"))
    result = hicache("store", "clear", url, "--all")
    assert (result.exit_code, "Remove 13 pages" in text(result)) == (1, True)
    assert "13 pages" in text(hicache("store", "inspect", url))


def test_less_room_than_it_takes_is_a_mistake(hicache: Call, url: str) -> None:
    """A size is part of the URL: a wrong one would give pages up when it is opened."""
    small = url.replace("size=16MiB", "size=1536KiB").replace("extent=1MiB&", "")
    with open_store(url) as store:
        for at in range(10):
            fill(store, OURS, [bytes([at, other]) * 16 for other in range(16)])
    for command in COMMANDS:
        result = hicache("store", *[small if word == "URL" else word for word in command])
        assert result.exit_code == 2, result.output
        assert "its pages take more" in text(result)
    with open_store(url) as store:
        assert (whole(store, OURS, KEYS), whole(store, THEIRS, KEYS)) == (10, 3)
        assert store.statistics()["pages"] == 13 + 160 - 10, "16 bytes of two: ten of them were there"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", ["slab", "file", "path"])
def test_where_there_is_no_store_none_is_made(
    hicache: Call, tmp_path: Path, command: list[str], kind: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    url = {"slab": f"slab://{tmp_path}?{OPTIONS}", "file": tmp_path.as_uri(), "path": str(tmp_path)}[kind]
    result = hicache("store", *[url if word == "URL" else word for word in command])
    assert result.exit_code == 2, result.output
    assert f"there is no {'slab' if kind == 'slab' else 'file'} store in" in text(result)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_ranks_are_told_apart(hicache: Call, tmp_path: Path) -> None:
    url = f"slab://{tmp_path}?{OPTIONS}"
    for rank in (0, 1):
        with open_store(url, OURS, rank=[rank], world=[2]) as store:
            fill(store, OURS, KEYS[: 4 + rank])
    result = hicache("store", "inspect", url)
    assert result.exit_code == 2
    assert "there are rank-0-of-2, rank-1-of-2" in text(result)
    assert hicache("store", "inspect", url, "--rank", "0/3").exit_code == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["rank-0-of-2", "rank-1-of-2"]
    for rank in (0, 1):
        assert f"{4 + rank} pages" in text(hicache("store", "inspect", url, "--rank", f"{rank}/2"))
    # One rank's is cleared while the other one's is in use.
    with open_store(url, OURS, rank=[1], world=[2]) as other:
        result = hicache("store", "clear", url, "--rank", "0/2", "--all", "--yes")
        assert "4 of 4 pages are removed" in text(result)
        assert whole(other, OURS, KEYS) == 5
