"""Replay beside a naive model, the article's workload, and the figures known for real traces."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_replay import NaiveReplay

from hicache._hicache import Replay

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Replayed

ARTICLE = [
    "--multiturn",
    "48x60",
    "--input",
    "4096",
    "--output",
    "16",
    "--page-size",
    "64",
    "--device",
    "3550000",
]
POLICY = ["--eviction", "lru", "--host-copies", "keep"]
HOST = ["--host", "7100000"]
STORAGE = ["--storage", "unbounded"]


@settings(max_examples=300, deadline=None)
@given(
    page_size=st.integers(1, 3),
    device=st.none() | st.integers(1, 12),
    requests=st.lists(
        st.tuples(st.lists(st.integers(0, 2), max_size=24), st.integers(0, 24)), min_size=1, max_size=30
    ),
)
def test_one_tier_equals_the_naive_model(
    page_size: int, device: int | None, requests: list[tuple[list[int], int]]
) -> None:
    tree = Replay(page_size=page_size, device=device, host=0, storage=False)
    naive = NaiveReplay(page_size=page_size, device=device, host=0, storage=False)
    for path, prompt in requests:
        prompt = min(prompt, len(path))
        assert tree.request(array("q", path), prompt) == naive.request(path, prompt)
        assert tree.evicted() == naive.evicted()
        assert tree.resident() == naive.resident()


@pytest.fixture(scope="module")
def article(replayed: Replayed) -> dict[str, dict]:
    """The article's three configurations."""
    return {
        "device": replayed(*ARTICLE, *POLICY),
        "host": replayed(*ARTICLE, *HOST, *POLICY),
        "storage": replayed(*ARTICLE, *HOST, *STORAGE, *POLICY),
    }


def test_the_article_looks_up_361_million_tokens(article: dict[str, dict]) -> None:
    assert {run["total"]["looked_up_tokens"] for run in article.values()} == {361_152_000}
    assert round(article["device"]["total"]["recomputed_tokens"] / 1e6, 1) == 330.3
    assert round(article["storage"]["total"]["recomputed_tokens"] / 1e6, 1) == 11.9


@pytest.mark.parametrize(
    ("number", "device", "host", "storage"),
    [
        (5, 83.3, 83.3, 83.3),
        (15, 93.7, 93.7, 93.7),
        (18, None, 94.7, 94.7),
        (19, 0.0, 95.0, 95.0),
        (35, 0.0, 97.2, 97.2),
        (37, 0.0, 0.0, 97.4),
        (55, 0.0, 0.0, 98.2),
    ],
)
def test_the_articles_hit_rates_by_round(
    article: dict[str, dict], number: int, device: float | None, host: float, storage: float
) -> None:
    def rate(name: str) -> float:
        row = article[name]["rounds"][number]
        return 100 * sum(row["hit_tokens"].values()) / row["looked_up_tokens"]

    assert rate("host") == pytest.approx(host, abs=0.1)
    assert rate("storage") == pytest.approx(storage, abs=0.1)
    if device is None:  # the round in which the device runs out
        assert 18 <= rate("device") <= 19.5
    else:
        assert rate("device") == pytest.approx(device, abs=0.1)


@pytest.mark.parametrize(
    ("trace", "options", "hits", "looked_up"),
    [
        ("conversation_trace.jsonl", [], 105_710, 288_500),
        ("synthetic_trace.jsonl", [], 77_953, 121_877),
        ("synthetic_trace.jsonl", ["--limit", 1000], 4_007, 23_787),
        ("kv-cache-tester/trace_0291.json", [], 31_603, 35_209),
        ("kv-cache-tester/trace_0058.json", [], 2_388, 3_277),
    ],
)
def test_unlimited_traces_exactly(
    replayed: Replayed, shared: Path, trace: str, options: list[object], hits: int, looked_up: int
) -> None:
    document = replayed(shared / "traces" / trace, *options)
    page, total = document["page_size"], document["total"]
    assert total["hit_tokens"] == {"device": hits * page, "host": 0, "storage": 0}
    assert total["looked_up_tokens"] == looked_up * page
    assert total["ceiling_tokens"] == hits * page
    assert total["evicted_pages"] == 0


def test_pages_of_sixteen_ids(replayed: Replayed, shared: Path) -> None:
    total = replayed(shared / "traces" / "synthetic_trace.jsonl", "--page-size", 16 * 512)["total"]
    assert total["hit_tokens"]["device"] == 64_800 * 512
    assert total["cacheable_tokens"] == 99_456 * 512


def test_pages_of_an_eighth_of_an_id_change_nothing(replayed: Replayed, shared: Path) -> None:
    total = replayed(shared / "traces" / "synthetic_trace.jsonl", "--page-size", 64)["total"]
    assert total["hit_tokens"]["device"] == 77_953 * 512


@pytest.mark.parametrize(
    ("trace", "hits_by_size"),
    [
        (
            "conversation_trace.jsonl",
            {1_000: 12_847, 5_000: 32_260, 10_000: 61_046, 20_000: 83_035, 50_000: 102_290, 100_000: 104_924},
        ),
        (
            "synthetic_trace.jsonl",
            {1_000: 10_252, 5_000: 34_043, 10_000: 51_669, 20_000: 69_686, 50_000: 77_953, 100_000: 77_953},
        ),
    ],
)
def test_lru_at_a_size_within_one_percent(
    replayed: Replayed, shared: Path, trace: str, hits_by_size: dict[int, int]
) -> None:
    for pages, hits in hits_by_size.items():
        total = replayed(shared / "traces" / trace, "--device", pages * 512)["total"]
        assert total["hit_tokens"]["device"] == pytest.approx(hits * 512, rel=0.01), pages


def test_evictions_of_the_synthetic_trace(replayed: Replayed, shared: Path) -> None:
    total = replayed(shared / "traces" / "synthetic_trace.jsonl", "--device", 10_000 * 512)["total"]
    assert total["evicted_pages"] == pytest.approx(60_208, rel=0.01)
