"""`hicache replay`: what it prints and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Call, Replayed

FIGURES = {
    "requests",
    "looked_up_tokens",
    "cacheable_tokens",
    "hit_tokens",
    "recomputed_tokens",
    "ceiling_tokens",
    "evicted_pages",
    "evicted_pages_by_tier",
}


def test_an_excerpt_counted_by_hand(replayed: Replayed, data: Path) -> None:
    document = replayed(data / "mooncake_excerpt.jsonl")
    assert document["page_size"] == 512
    assert "rounds" not in document
    total = document["total"]
    assert total.keys() == FIGURES
    # ids that hit: 0 5 6 5 | 0 1 1 | 0 1 2, of 6 6 6 6 | 1 1 1 | 2 3 4
    assert total["hit_tokens"] == {"device": 21 * 512, "host": 0, "storage": 0}
    assert total["looked_up_tokens"] == total["cacheable_tokens"] == 36 * 512
    assert total["recomputed_tokens"] == 15 * 512
    assert total["ceiling_tokens"] == 21 * 512
    assert total["evicted_pages"] == 0


def test_pages_longer_than_ids_leave_tails_that_nobody_can_cache(replayed: Replayed, data: Path) -> None:
    total = replayed(data / "session.json", "--page-size", 128)["total"]
    # prompts of 3, 2, 4 and 3 ids of 64 tokens: 1, 1, 2 and 1 whole pages, of which 0, 0, 1 and 1 hit
    assert (total["looked_up_tokens"], total["cacheable_tokens"]) == (12 * 64, 5 * 128)
    assert total["hit_tokens"]["device"] == 2 * 128
    assert total["recomputed_tokens"] == 12 * 64 - 2 * 128


def test_a_full_device_gives_up_the_tail_of_the_oldest(replayed: Replayed, data: Path) -> None:
    document = replayed(data / "session.json", "--device", 4 * 64, "--host", "unbounded")
    total = document["total"]
    # paths 123, 17, 1234, 178 and four places: 7 goes for 4, so it hits on the host; 3 and 4 go for 7 and 8
    assert document["device_pages"] == 4
    assert total["hit_tokens"] == {"device": (0 + 1 + 3 + 1) * 64, "host": 64, "storage": 0}
    assert total["evicted_pages_by_tier"] == {"device": 3, "host": 0}
    assert total["evicted_pages"] == 3


def test_rounds_add_up_to_the_total(replayed: Replayed) -> None:
    sizes = ("--device", 600, "--host", 1200, "--storage", "unbounded")
    document = replayed("--multiturn", "4x6", "--input", 64, "--output", 16, "--page-size", 16, *sizes)
    rounds, total = document["rounds"], document["total"]
    assert [row["round"] for row in rounds] == [0, 1, 2, 3, 4, 5]
    assert all(row.keys() == FIGURES | {"round"} for row in rounds)
    for name in FIGURES - {"hit_tokens", "evicted_pages_by_tier"}:
        assert total[name] == sum(row[name] for row in rounds)
    for tier in ("device", "host", "storage"):
        assert total["hit_tokens"][tier] == sum(row["hit_tokens"][tier] for row in rounds)
    assert all(total["hit_tokens"].values())
    assert sum(total["hit_tokens"].values()) == total["ceiling_tokens"]


def test_sizes_may_be_written_short(replayed: Replayed, data: Path) -> None:
    file = data / "session.json"
    sizes = [replayed(file, "--device", size)["device_pages"] for size in ("6400", "6.4k", "0.0064M", "6463")]
    assert sizes == [100, 100, 100, 100]


def test_only_the_first_requests(replayed: Replayed, data: Path) -> None:
    assert replayed(data / "mooncake_excerpt.jsonl", "--limit", 3)["total"]["requests"] == 3
    document = replayed("--multiturn", "4x6", "--limit", 5)
    assert [row["requests"] for row in document["rounds"]] == [4, 1]


def test_tables_say_the_same(hicache: Call, data: Path) -> None:
    result = hicache("replay", data / "mooncake_excerpt.jsonl")
    assert result.exit_code == 0
    assert "18,432" in result.stdout
    assert "10,752" in result.stdout
    assert "58.3" in result.stdout
    result = hicache("replay", "--multiturn", "2x3")
    assert "hits by round" in result.stdout


def test_every_option_has_help(hicache: Call) -> None:
    page = hicache("replay", "--help").stdout
    assert hicache("--help").exit_code == 0
    for option in ("--multiturn", "--input", "--output", "--page-size", "--device", "--host", "--storage"):
        assert option in page
    for option in ("--eviction", "--host-copies", "--format", "--limit", "--json"):
        assert option in page


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["TRACE", "--eviction", "fifo"], "--eviction"),
        (["TRACE", "--host-copies", "give_way"], "--host-copies"),
        (["TRACE", "--storage", "s3"], "--storage"),
        (["TRACE", "--storage", "unbounded"], "--storage"),
        (["TRACE", "--format", "csv"], "--format"),
        (["TRACE", "--format", "kv-cache-tester"], "TRACE"),
        (["TRACE", "--device", "0"], "--device"),
        (["TRACE", "--device", "511"], "--device"),
        (["TRACE", "--device", "-512"], "--device"),
        (["TRACE", "--device", "none"], "--device"),
        (["TRACE", "--host", "much"], "--host"),
        (["TRACE", "--host", "511"], "--host"),
        (["TRACE", "--page-size", "0"], "--page-size"),
        (["TRACE", "--page-size", "x"], "--page-size"),
        (["TRACE", "--page-size", "99999999999999"], "--page-size"),
        (["TRACE", "--device", "99999999999999999999999g"], "--device"),
        (["TRACE", "--device", str(2**32 * 512)], "--device"),
        (["TRACE", "--host", "9" * 5000], "--host"),
        (["TRACE", "--limit", "0"], "--limit"),
        (["TRACE", "--input", "16"], "--input"),
        (["TRACE", "--output", "16"], "--output"),
        (["TRACE", "--multiturn", "2x2"], "--multiturn"),
        (["--multiturn", "48"], "--multiturn"),
        (["--multiturn", "0x3"], "--multiturn"),
        (["--multiturn", "99999999999x2"], "--multiturn"),
        (["--multiturn", "2x1000001"], "--multiturn"),
        (["--multiturn", "9" * 5000 + "x2"], "--multiturn"),
        (["--multiturn", "2x2", "--page-size", str(2**20 + 1)], "--page-size"),
        (["--multiturn", "2x2", "--input", "99999999999999"], "--input"),
        (["--multiturn", "2x2", "--output", "99999999999999"], "--output"),
        (["--multiturn", "2x2", "--input", "0"], "--input"),
        (["--multiturn", "2x2", "--output", "-1"], "--output"),
        (["/no/such/trace"], "TRACE"),
        (["/"], "TRACE"),
        ([], "TRACE"),
    ],
)
def test_what_is_refused_is_named(hicache: Call, data: Path, arguments: list[str], named: str) -> None:
    trace = str(data / "mooncake_excerpt.jsonl")
    result = hicache("replay", *(trace if word == "TRACE" else word for word in arguments))
    assert result.exit_code == 2
    assert f"Invalid value for '{named}'" in result.stderr
    assert result.stdout == ""


def test_replay_needs_neither_torch_nor_a_drawing_library(data: Path) -> None:
    """The packages are made impossible to import, in a process of their own."""
    code = (
        "import sys; sys.modules.update(torch=None, matplotlib=None, numpy=None); "
        "from hicache.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "replay", data / "session.json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    help_page = subprocess.run([*command[:3], "--help"], capture_output=True, text=True, check=False)
    assert "replay" in help_page.stdout
