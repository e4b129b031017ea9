"""The numbers of a cache: each is documented once, and a scraper reads all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_engine import make

from hicache import ArgumentError, metrics

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
LINE = re.compile(
    r'(?P<name>hicache_[a-z_]+)(\{(?P<labels>[a-z]+="[^"]*"(,[a-z]+="[^"]*")*)\})? (?P<value>[0-9.e+-]+)'
)
PARTS = ("_bucket", "_sum", "_count")


def read(text: str) -> dict[tuple[str, str], float]:
    """What a scraper reads, each sample once, all samples of a name under one type."""
    samples: dict[tuple[str, str], float] = {}
    family, kind = "", ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family, kind = line.split()[2:]
            assert text.count(f"# TYPE {family} ") == 1
            assert family.endswith("_total") == (kind == "counter")
            continue
        found = LINE.fullmatch(line)
        assert found is not None, line
        names = [family + part for part in PARTS] if kind == "histogram" else [family]
        assert found["name"] in names
        assert (found["name"], found["labels"] or "") not in samples
        samples[found["name"], found["labels"] or ""] = float(found["value"])
    return samples


def buckets(samples: dict[tuple[str, str], float], name: str) -> dict[str, float]:
    """What a scraper's histogram has up to each bound, in order."""
    found = ((labels, value) for (of, labels), value in samples.items() if of == f"{name}_bucket")
    return {labels.rpartition('le="')[2].strip('"'): value for labels, value in found}


def test_every_number_is_documented_once(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    told = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", DOCUMENT.read_text(), re.M)))
    sections = DOCUMENT.read_text().split("\n## ")
    of_cache = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", sections[1], re.M)))
    assert sorted(of_cache) == sorted(engine.cache.stats())
    measured = re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", sections[2], re.M)))
    assert sorted(measured) == sorted(engine.cache.histograms())
    of_store = re.findall(r"^\| `([a-z_]+)` \|", sections[4], re.M)
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
    lines = sum(len(seen.counts) + 2 for seen in engine.cache.histograms().values())
    assert len(samples) == len(stats) + sum(value is not None for value in store.values()) + lines


def test_histograms_are_what_prometheus_expects(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    for _ in range(2):
        engine.finish(engine.run(list(range(8))))
        assert engine.cache.drain(10)
        engine.cache.evict(16)
        engine.cache.evict(16, "host")
    seen = engine.cache.histograms()
    counts = {name: (seen[name].count, seen[name].sum) for name in seen if not name.endswith("_seconds")}
    assert counts == {
        "backup_pages": (1, 4),
        "load_pages": (1, 4),
        "store_pages": (1, 4),
        "read_pages": (1, 4),
        "exists_pages": (2, 8),
        "request_prompt_tokens": (2, 16),
        "request_device_tokens": (2, 0),
        "request_host_tokens": (2, 0),
        "request_storage_tokens": (2, 8),
    }
    samples = read(metrics.prometheus(engine.cache))
    for name, histogram in seen.items():
        cumulative = buckets(samples, f"hicache_{name}")
        assert list(cumulative)[-1] == "+Inf"
        assert [float(bound) for bound in cumulative][:-1] == list(histogram.bounds)
        assert sorted(cumulative.values()) == list(cumulative.values())
        assert cumulative["+Inf"] == histogram.count == samples[f"hicache_{name}_count", ""]
        assert samples[f"hicache_{name}_sum", ""] == histogram.sum
    tokens = buckets(samples, "hicache_request_storage_tokens")
    assert (tokens["0.0"], tokens["16.0"]) == (1, 2)


def test_seconds_of_a_wait_are_those_of_the_engines_clock() -> None:
    engine = make(2)
    request = engine.match(list(range(8)), at=100.0)
    engine.cache.poll(at=100.0)
    engine.cache.decide(request.hit)
    engine.cache.poll(at=102.5)
    engine.load(request)
    engine.finish(request)
    assert engine.cache.histograms()["request_wait_seconds"].sum == pytest.approx(2.5, abs=1e-3)


def test_nothing_goes_down(tmp_path: Path) -> None:
    engine = make(2, store=tmp_path)
    cache = engine.cache
    before: dict[tuple[str, str], float] = {}
    gauges = {f"hicache_{name}" for name in metrics.GAUGES}

    def grown() -> None:
        nonlocal before
        samples = read(metrics.prometheus(cache)).items()
        # A store's own counts begin with it.
        now = {name: value for name, value in samples if not name[0].startswith("hicache_storage_")}
        fallen = [name for name, value in before.items() if now[name] < value and name[0] not in gauges]
        assert not fallen
        before = now

    for _ in range(2):
        engine.finish(engine.run(list(range(8))))
        assert cache.drain(10)
        grown()
        cache.reset()
        grown()
        cache.clear()
        grown()
        cache.detach()
        grown()
        cache.attach(engine.device.pools)
        grown()
        cache.detach_store()
        grown()
        cache.attach_store(f"file://{tmp_path}")
        engine.finish(engine.run(list(range(8))))
        assert cache.drain(10)
    assert cache.histograms()["backup_pages"].sum == 12, "of three requests that found nothing"


def test_two_caches_and_two_readers_in_one_process() -> None:
    one, other = make(2), make(2)
    one.finish(one.run(list(range(8))))
    samples = read(metrics.prometheus(one.cache, other.cache))
    assert samples["hicache_inserted_pages_total", 'cache="0"'] == 4
    assert samples["hicache_inserted_pages_total", 'cache="1"'] == 0
    assert read(metrics.prometheus(one.cache)) == read(metrics.prometheus(one.cache))


@pytest.mark.parametrize("name", ["9", "a-b", "", "__x", "le", "part", "cache"])
def test_labels_that_a_scraper_refuses(name: str) -> None:
    with pytest.raises(ArgumentError, match="labels"):
        metrics.prometheus(make(2).cache, labels={name: "x"})
