"""Keys of every length, names of every kind, and arrays that their owner changes afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import PLAIN, Device, Engine, make, store_files

import hicache
from hicache import ArgumentError, HiCache, Host, ModelIdentity, Namespace, WouldHit, pools

EIGHT = [0, 1, 2, 3, 4, 5, 6, 7]
#: Separators, paths, escapes, and what another field's text would be.
NAMES = [
    "a",
    "b",
    "a/b",
    "a-b",
    "a_b",
    "a.b",
    "a@b",
    "a%b",
    "a%2Fb",
    "a b",
    "a\nb",
    "..",
    "../a",
    "/",
    "ä",
    "A",
]
NAMES += [
    "a:b",
    "a,b",
    "a=b",
    "a|b",
    '"a"',
    "None",
    "True",
    "0",
    "salt",
    "salt=a",
    "a" * 300,
    "a" * 301,
    "a\0b",
]


@pytest.mark.parametrize("keys", ["tokens", "bigrams"])
@pytest.mark.parametrize("page_size", [1, 2, 3, 16, 64])
def test_whole_pages_hit_at_every_length(page_size: int, keys: str) -> None:
    """Pairs need one token more. What is shorter than a page is nothing, and leaves nothing in the tree."""
    more = int(keys == "bigrams")
    lengths = sorted({max(0, page_size * pages + by + more) for pages in (0, 1, 4) for by in (-2, -1, 0, 1)})
    for inserted in lengths:
        with HiCache([pools.latent("kv", [torch.zeros(8 * page_size, 1)])], page_size, keys=keys) as cache:
            tokens = list(range(inserted + 3))
            whole = max(0, inserted - more) // page_size
            hit = cache.match_prefix(tokens[:inserted])
            cache.load([hit])
            slots = cache.allocate(whole)
            assert slots is not None
            assert cache.insert(hit, tokens[:inserted], slots).length == whole * page_size
            hit.release()
            assert (cache.stats()["device_resident"], cache.stats()["nodes"] == 0) == (whole, whole == 0)
            reader = cache.reader()
            for length in sorted(
                {*range(page_size * 2 + 2), *range(inserted - 3, inserted + 4)} - {-3, -2, -1}
            ):
                expected = max(0, min(length, inserted) - more) // page_size * page_size
                found = cache.match_prefix(tokens[:length])
                assert found.device_length == expected, f"{length} of {inserted}"
                assert reader.would_hit(tokens[:length]) == WouldHit(expected, expected)
                found.release()
            assert len(cache.evict(1)) == min(whole, 1), "pages, not tokens"
            assert len(cache.evict(99)) == max(0, whole - 1)
            cache.check()
            assert cache.stats()["nodes"] == 0


def stored_by(engine: Engine, namespace: Namespace = PLAIN) -> int:
    """What a request finds; it is computed and stored, if it found nothing."""
    request = engine.match(EIGHT, namespace)
    engine.fetch(request)
    engine.load(request)
    found = request.hit.length
    engine.compute(request)
    engine.verify(request)
    engine.finish(request)
    assert engine.cache.drain(10)
    return found


def test_no_two_namespaces_share_a_page_whatever_they_are_called(tmp_path: Path) -> None:
    """Also where a name moves from one field to another, or two fields together spell a third."""
    spaces = [Namespace(**{field: name}) for name in NAMES for field in ("salt", "adapter", "extra_key")]
    spaces += [Namespace(salt=a, adapter=b) for a, b in combinations(NAMES[:6], 2)]
    spaces += [Namespace(extra_key=a, salt=b) for a, b in combinations(NAMES[:6], 2)]
    engine = make(2, device_pages=16, host_pages=16, store=tmp_path)
    assert [space for space in spaces if stored_by(engine, space)] == []
    assert len(store_files(tmp_path)) == 4 * len(spaces)
    fresh = make(2, device_pages=16, host_pages=64, store=tmp_path)
    assert {stored_by(fresh, space) for space in spaces} == {8}
    assert stored_by(fresh) == 0


def test_no_two_models_share_a_page_whatever_they_are_called(tmp_path: Path) -> None:
    identities = [ModelIdentity(model=name) for name in NAMES]
    identities += [ModelIdentity(model="m", revision=name) for name in NAMES]
    identities += [ModelIdentity(model=a, revision=b) for a, b in combinations(NAMES[:5], 2)]
    store = tmp_path / "below" / "store"
    for identity in identities:
        engine = make(2, store=store, identity=identity)
        assert stored_by(engine) == 0, identity
        engine.cache.close()
    for identity in identities:
        engine = make(2, store=store, identity=identity)
        assert stored_by(engine) == 8, identity
        engine.cache.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["below"], "nothing left the store's directory"
    assert [entry.name for entry in store.parent.iterdir()] == ["store"]


IDENTITY = """
import sys, torch
from hicache import ModelIdentity
config = {name: {"rope": 1.5, "type": torch.float16, "kinds": set(sys.argv)} for name in sys.argv[1:]}
weights = [(name, torch.arange(9.0) + len(name)) for name in sys.argv[1:]]
print(ModelIdentity.of(config, weights, model="m").fields())
"""


def test_an_identity_does_not_depend_on_the_process_that_computes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another seed of the interpreter's hashes, another order of what has none."""
    names = ["alpha", "beta", "c", "dd"]
    source = str(Path(hicache.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", IDENTITY, *reversed(names)],
        env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    monkeypatch.setattr(sys, "argv", ["-c", *names])
    exec(IDENTITY, {})
    assert done.stdout == capsys.readouterr().out
    assert "weights" in done.stdout


@pytest.mark.parametrize("value", [object(), lambda: 0, {"in": [object()]}, {object()}])
def test_a_configuration_that_no_other_process_could_say_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^identity: config: "):
        ModelIdentity.of({"value": value}, [], model="m")


@pytest.mark.parametrize(
    "make_array",
    [
        lambda values: torch.tensor(values, dtype=torch.int32),
        lambda values: torch.tensor(values, dtype=torch.int64),
        lambda values: np.array(values, dtype=np.int32),
        list,
    ],
    ids=["int32", "int64", "numpy", "list"],
)
def test_arrays_that_change_afterwards_change_nothing(make_array: Any) -> None:
    """The tree owns what it keeps, and what it hands out is the caller's."""
    engine = make(2)
    hit = engine.match([]).hit
    engine.cache.load([hit])
    slots = engine.cache.allocate(4)
    assert slots is not None
    ours = slots.tolist()
    tokens, given = make_array(EIGHT), make_array(ours)
    done = engine.cache.insert(hit, tokens, given)
    for array in (tokens, given, done.slots, slots):
        for at in range(len(array)):
            array[at] = 9
    assert hit.slots.tolist() == ours
    hit.slots.zero_()
    assert hit.slots.tolist() == ours
    again = engine.match(EIGHT)
    assert again.hit.device_length == 8
    engine.load(again)
    assert again.table == ours
    engine.cache.check()


def test_slots_that_are_handed_out_keep_nothing_else_alive() -> None:
    """A page of a large pool is four bytes, not a view of all of them."""
    device = Device(4096, 1)
    with HiCache(device.pools, 1, host=Host(tokens=1)) as cache:
        for pages in (1, 7, 4096):
            slots = cache.allocate(pages)
            assert slots is not None
            assert slots.untyped_storage().nbytes() == 4 * pages
            assert slots[:1].clone().untyped_storage().nbytes() == 4
            cache.free(slots)
