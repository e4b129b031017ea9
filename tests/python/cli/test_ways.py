"""`--write-policy`, `--prefetch-policy`, `--host-mode`, `--throttle`: what they change, what is refused."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hicache.cli.demo_plan import LEAST_DOCUMENTS
from hicache.storage import Outcome, Page
from hicache.testing.memory import MemoryStore
from hicache.testing.throttled import Throttled

if TYPE_CHECKING:
    from conftest import Call

SMALL = (
    "--model",
    "random",
    "--documents",
    LEAST_DOCUMENTS,
    "--tokens",
    256,
    "--answer-tokens",
    4,
    "--no-plot",
)
#: A small run of the benchmark that outgrows the device.
BENCH = (
    "--clients",
    2,
    "--rounds",
    3,
    "--input",
    32,
    "--output",
    4,
    "--layers",
    1,
    "--hidden",
    64,
    "--no-plot",
)


def demo(hicache: Call, folder: Path, *options: object) -> tuple[dict[str, Any], str]:
    """Its JSON document and what it printed, of a run that ended well."""
    result = hicache("demo", *SMALL, "--json", folder / "demo.json", *options)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    return document, result.output


def sources(document: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Answers by where their prefix was planned to come from, and where it came from."""
    return Counter((answer["expected"], answer["source"]) for answer in document["answers"])


def test_who_never_waits_computes_what_a_slow_store_has(hicache: Call, tmp_path: Path) -> None:
    document, said = demo(hicache, tmp_path, "--prefetch-policy", "best_effort", "--throttle", 1)
    found = sources(document)
    assert found["storage", "storage"] < LEAST_DOCUMENTS
    # The tiers in memory are what they were.
    assert (found["device", "device"], found["host", "host"]) == (3, 4)
    assert "waits for storage: best_effort; the store throttled to 1 MB/s" in said
    line = re.search(
        r"with write_through and best_effort (\d+) of (\d+) prefixes came from where a cache", said
    )
    assert line is not None
    planned = sum(count for (expected, source), count in found.items() if expected == source)
    assert [int(number) for number in line.groups()] == [planned, sum(found.values())]
    settings = document["settings"]
    assert (settings["prefetch"], settings["throttle"]) == ("best_effort", 1.0)


def test_who_waits_gets_it_from_a_slow_store_too(hicache: Call, tmp_path: Path) -> None:
    document, said = demo(hicache, tmp_path, "--throttle", 4)
    assert sources(document)["storage", "storage"] == LEAST_DOCUMENTS
    assert "every prefix came from the tier that it had to come from" in said
    # Bytes take their time: seven pages at least of 32 tokens, with 2 layers of 2 x 32 elements of 8 bytes.
    read = [answer["restoring_s"] for answer in document["answers"] if answer["source"] == "storage"]
    assert min(read) >= 7 * 32 * 2 * 2 * 32 * 8 / 4e6


def test_where_the_host_keeps_nothing_the_store_gives_it(hicache: Call, tmp_path: Path) -> None:
    document, said = demo(hicache, tmp_path, "--host-mode", "buffer_only")
    # Of the first process what the host would have, and all of the second one's.
    assert sources(document) == {
        ("cold", "cold"): LEAST_DOCUMENTS,
        ("device", "device"): 3,
        ("storage", "storage"): 4 + LEAST_DOCUMENTS,
    }
    assert all(answer["host_tokens"] == 0 for answer in document["answers"])
    assert "the host is staging" in said
    assert "every prefix came from the tier that it had to come from" in said
    assert document["settings"]["host_mode"] == "buffer_only"


@pytest.mark.parametrize("policy", ["write_through_selective", "write_back"])
def test_what_is_not_written_is_computed(hicache: Call, tmp_path: Path, policy: str) -> None:
    document, said = demo(hicache, tmp_path, "--write-policy", policy)
    # Documents that were asked once are in no store.
    assert sources(document)["storage", "cold"] > 0
    assert f"writes: {policy};" in said
    assert f"with {policy} and wait_complete " in said


def test_the_benchmark_has_them_too(hicache: Call, tmp_path: Path) -> None:
    options = ("--write-policy", "write_through_selective", "--prefetch-policy", "timeout", "--throttle", 50)
    result = hicache("bench", "multiturn", *BENCH, "--json", tmp_path / "bench.json", *options)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "bench.json").read_text())
    assert (document["write"], document["prefetch"], document["throttle"]) == (
        "write_through_selective",
        "timeout",
        50.0,
    )
    assert document["different_answers"] == 0


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--write-policy", "never", "write_through"),
        ("--prefetch-policy", "sometimes", "best_effort"),
        ("--host-mode", "disk", "unknown mode"),
        ("--throttle", 0, "--throttle"),
        ("--throttle", -1, "--throttle"),
        ("--throttle", "nan", "--throttle"),
        ("--throttle", "inf", "--throttle"),
        ("--throttle", "fast", "--throttle"),
    ],
)
def test_a_refused_value_names_its_option(
    hicache: Call, capfd: pytest.CaptureFixture[str], option: str, value: object, reason: str
) -> None:
    result = hicache("demo", *SMALL, option, value)
    said = result.output + capfd.readouterr().err
    assert result.exit_code == 2
    assert option in said
    assert reason in said


def test_a_store_that_is_not_there_is_not_slowed_down(hicache: Call) -> None:
    result = hicache("bench", "multiturn", *BENCH, "--configurations", "device", "--throttle", 5)
    assert result.exit_code == 2
    assert "--throttle" in result.output


def test_a_throttled_store_carries_every_byte_and_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    store = Throttled(MemoryStore(), rate=1000.0)
    keys, identity = [bytes([n]) * 32 for n in range(3)], bytes(32)
    written = [bytearray([n]) * 500 for n in (1, 2)]
    done = store.put(identity, keys[:2], [None, keys[0]], [Page([memoryview(page)]) for page in written])
    assert list(done) == [Outcome.HIT] * 2
    read = [bytearray(500) for _ in keys]
    found = store.get(identity, keys, [Page([memoryview(page)]) for page in read])
    assert list(found) == [Outcome.HIT, Outcome.HIT, Outcome.ABSENT]
    assert read[:2] == written
    # A second for what was written, and another one behind it for what was there to read.
    assert (slept, store.carried) == ([1.0, 2.0], 2000)
    with pytest.raises(ValueError, match="rate"):
        Throttled(MemoryStore(), rate=0.0)
