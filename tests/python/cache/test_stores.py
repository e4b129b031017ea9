"""Stores by URL or path, and identities, through a whole cache."""

from __future__ import annotations

import json
import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH, store_files

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.identity import rope_digest
from hicache.testing.memory import MemoryStore

TOKENS = list(range(8))


def with_store(storage: Any, identity: ModelIdentity | None = None) -> HiCache:
    pool = pools.latent("kv", [torch.arange(32.0).reshape(32, 1)])
    identity = identity or ModelIdentity(model="m", dtype="float32")
    return HiCache([pool], 2, host=Host(tokens=32), storage=storage, identity=identity, **ANY_LENGTH)


def persist(storage: Any, stored: int = 4) -> None:
    with with_store(storage) as cache:
        hit = cache.match_prefix(TOKENS)
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        cache.insert(hit, TOKENS, slots)
        hit.release()
        assert cache.drain(10)
        assert cache.stats()["stored_pages"] == stored


@pytest.mark.parametrize("name", ["plain", "a b", "50%", "a%20b", "a?b", "a#b", "ü", "a&b=c"])
@pytest.mark.parametrize("kind", ["path", "uri", "text"])
def test_a_directory_is_the_one_that_was_named(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "text" and "?" in name:
        pytest.skip("refused: it may be meant to begin options")
    persist({"path": path, "uri": path.as_uri(), "text": str(path)}[kind])
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert len(store_files(path)) == 4


def test_a_relative_path_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    persist(Path("here"))
    assert len(store_files(tmp_path / "here")) == 4


@pytest.mark.parametrize("url", ["memory://?size=1MiB", "null://", "sim://?latency_us=1&size=1GB"])
def test_stores_without_a_directory(url: str, tmp_path: Path) -> None:
    persist(url)


def test_a_bounded_directory_stays_bounded(tmp_path: Path) -> None:
    """Files of 136 bytes and 8 of payload: the first two pages of a prompt stay, the others aren't taken."""
    persist(f"{tmp_path.as_uri()}?size=300", stored=2)
    assert [file.stat().st_size for file in store_files(tmp_path)] == [144, 144]


class Bomb:
    """Runs a command where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_pickle_in_a_pages_place_is_corrupt_and_never_run(tmp_path: Path) -> None:
    store, marker = tmp_path / "store", tmp_path / "marker"
    persist(store)
    for file in store_files(store):
        file.write_bytes(pickle.dumps(Bomb(marker)).ljust(file.stat().st_size, b"."))
    with with_store(store) as cache:
        hit = cache.match_prefix(TOKENS)
        assert cache.prefetch(hit)
        assert cache.drain(10)
        assert cache.stats()["corrupt_pages"] >= 1
        assert cache.stats()["prefetched_pages"] == 0
        hit.release()
    assert not marker.exists()


def test_identities_are_written_down_for_people(tmp_path: Path) -> None:
    persist(tmp_path)
    with_store(tmp_path, ModelIdentity(model="m", dtype="float32", rank=(1, 0), world=(2, 2))).close()
    said = [json.loads(file.read_text())["fields"] for file in (tmp_path / "identities").iterdir()]
    assert sorted(fields["rank"] for fields in said) == ["0", "1.0"]
    assert {fields["model"] for fields in said} == {"m"}
    assert {"dtype", "rope", "weights_epoch", "page_size", "format", "codec", "keys"} <= set(said[0])


ROPE = {"rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4.0}, "hidden_size": 8}


def test_settings_of_positions_have_a_digest_of_their_own() -> None:
    digest = rope_digest(ROPE)
    assert digest == rope_digest(dict(reversed(ROPE.items())))
    assert digest == rope_digest({**ROPE, "hidden_size": 9})
    others = [
        {**ROPE, "rope_theta": 1e5},
        {**ROPE, "rope_scaling": None},
        {**ROPE, "partial_rotary_factor": 0.5},
        {"text_config": ROPE},
        {**ROPE, "max_position_embeddings": 4096},
    ]
    assert len({digest, *map(rope_digest, others)}) == 6
    assert rope_digest({"hidden_size": 8}) == ""


def test_an_identity_of_a_configuration_says_its_positions() -> None:
    identity = ModelIdentity.of(ROPE, [], model="m")
    assert identity.rope == rope_digest(ROPE)
    assert ModelIdentity.of(ROPE, [], model="m", rope="ours").rope == "ours"
    fields, rank, world = replace(identity, rank=(1,), world=(2,)).fields()
    assert (dict(fields)["rope"], rank, world) == (identity.rope, [1], [2])


def test_pages_of_another_rope_are_not_found(tmp_path: Path) -> None:
    persist(tmp_path)
    for identity, found in (("", 4), ("other", 0)):
        with with_store(tmp_path, ModelIdentity(model="m", dtype="float32", rope=identity)) as cache:
            hit = cache.match_prefix(TOKENS)
            assert cache.prefetch(hit)
            assert cache.drain(10)
            assert cache.stats()["prefetched_pages"] == found
            hit.release()


@pytest.mark.parametrize("url", ["file://{}", "slab://{}?size=8MiB&extent=1MiB&free=0&threads=2"])
def test_pages_of_another_configuration_are_told_where_statistics_are(tmp_path: Path, url: str) -> None:
    """A miss that has a reason: how often, and which."""
    storage = url.format(tmp_path)
    persist(storage)
    for epoch, found, missed in ((1, 0, 4), (0, 4, 0)):
        identity = ModelIdentity(model="m", dtype="float32", weights_epoch=epoch)
        with with_store(storage, identity) as cache:
            hit = cache.match_prefix(TOKENS)
            assert cache.prefetch(hit)
            assert cache.drain(10)
            assert cache.stats()["prefetched_pages"] == found
            hit.release()
            about, said = cache.store_stats(), cache.store_description()
            assert about is not None
            assert (about["mismatched_pages"], about["pages"], about["read_pages"]) == (missed, 4, found)
            assert said is not None
            assert str(tmp_path) in said
            assert ('weights_epoch is "0" there, "1" here' in said) == (missed > 0)
        assert cache.store_stats() == about, "its last word"


def test_without_a_store_nothing_is_said() -> None:
    pool = pools.latent("kv", [torch.zeros(8, 1)])
    with HiCache([pool], 2, host=Host(tokens=8)) as cache:
        assert (cache.store_stats(), cache.store_description()) == (None, None)


def test_nobody_waits_for_what_a_store_says() -> None:
    """Its calls hang, and so does whatever else it is asked."""
    hangs = threading.Event()

    class Slow(MemoryStore):
        def put(self, identity: Any, keys: Any, parents: Any, pages: Any) -> Any:
            hangs.wait(20)
            return super().put(identity, keys, parents, pages)

        def describe(self) -> str:
            return "a slow one"

    store = Slow()
    with with_store(store) as cache:
        hit = cache.match_prefix(TOKENS)
        cache.load([hit])
        slots = cache.allocate(4)
        assert slots is not None
        cache.insert(hit, TOKENS, slots)
        hit.release()
        cache.poll()
        about = cache.store_stats()
        assert about is not None
        assert about["written_pages"] == 0
        assert "a slow one" in (cache.store_description() or "")
        hangs.set()
        assert cache.drain(10)
        about = cache.store_stats()
        assert about is not None
        assert about["written_pages"] == 4
