"""The numbers of a cache: each is documented once, and a scraper reads all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_engine import make

from hicache import ArgumentError, metrics

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
LINE = re.compile(
    r'(?P<name>hicache_[a-z_]+)(\{(?P<labels>[a-z]+="[^"]*"(,[a-z]+="[^"]*")*)\})? (?P<value>\d+)'
)


def read(text: str) -> dict[tuple[str, str], int]:
    """What a scraper reads, each sample once, all samples of a name under one type."""
    samples: dict[tuple[str, str], int] = {}
    kind = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kind = line.split()[2]
            assert text.count(f"# TYPE {kind} ") == 1
            continue
        found = LINE.fullmatch(line)
        assert found is not None, line
        assert found["name"] == kind
        assert (found["name"], found["labels"] or "") not in samples
        samples[found["name"], found["labels"] or ""] = int(found["value"])
    return samples


def test_every_number_is_documented_once(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    told = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", DOCUMENT.read_text(), re.M)))
    sections = DOCUMENT.read_text().split("\n## ")
    of_cache = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", sections[1], re.M)))
    assert sorted(of_cache) == sorted(engine.cache.stats())
    of_store = re.findall(r"^\| `([a-z_]+)` \|", sections[3], re.M)
    assert sorted(of_store) == sorted(engine.cache.store_stats() or ())
    assert set(told) >= {"inserted", "backed_up", "loaded"}


def test_a_scraper_reads_what_the_cache_counts(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    engine.finish(engine.run(list(range(8))))
    assert engine.cache.drain(10)
    samples = read(metrics.prometheus(engine.cache, labels={"model": 'a"b'.replace('"', "'")}))
    label = 'model="a\'b"'
    stats, store = engine.cache.stats(), engine.cache.store_stats()
    assert samples["hicache_stored_pages_total", label] == stats["stored_pages"] == 4
    assert samples["hicache_device_slots", label] == stats["device_slots"]
    assert store is not None
    assert samples["hicache_storage_written_pages_total", label] == store["written_pages"] == 4
    assert samples["hicache_storage_pages", label] == 4
    assert len(samples) == len(stats) + sum(value is not None for value in store.values())


def test_two_caches_and_two_readers_in_one_process() -> None:
    one, other = make(2), make(2)
    one.finish(one.run(list(range(8))))
    samples = read(metrics.prometheus(one.cache, other.cache))
    assert samples["hicache_inserted_pages_total", 'cache="0"'] == 4
    assert samples["hicache_inserted_pages_total", 'cache="1"'] == 0
    assert read(metrics.prometheus(one.cache)) == read(metrics.prometheus(one.cache))


@pytest.mark.parametrize("name", ["9", "a-b", "", "__x"])
def test_labels_that_a_scraper_refuses(name: str) -> None:
    with pytest.raises(ArgumentError, match="labels"):
        metrics.prometheus(make(2).cache, labels={name: "x"})
