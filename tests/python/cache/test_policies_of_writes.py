"""What an engine's own policy says is written, and what isn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_engine import make, store_files
from policies import Logs, serve

from hicache.policy import Loading, Policy, Writes

PROMPT = list(range(24))


@pytest.mark.parametrize(
    ("answer", "first", "second"),
    [
        (None, (12, 12), (12, 12)),
        ("write_through", (12, 12), (12, 12)),
        ("write_through_selective", (0, 0), (12, 12)),
        ("write_back", (0, 0), (0, 0)),
        ("never", (0, 0), (0, 0)),
        (Writes(host="write_through", storage="never"), (12, 0), (12, 0)),
        (Writes(host="write_through", storage="write_through_selective"), (12, 0), (12, 12)),
        (Writes(storage="never"), (12, 0), (12, 0)),
        (Writes(host="never"), (0, 0), (0, 0)),
    ],
)
def test_what_is_written_is_its_decision(
    tmp_path: Path, answer: Any, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Pages on the host and in storage, after one request and after another one for the same."""
    engine = make(store=tmp_path, policy=Logs(write=answer), clean_reserve=0.0)
    for wanted in (first, second):
        serve(engine, PROMPT)
        engine.cache.poll()
        assert engine.cache.drain(10)
        assert (engine.cache.stats()["backed_up_pages"], len(store_files(tmp_path))) == wanted
    engine.cache.close()


@pytest.mark.parametrize(("kept", "host"), [("write_back", 12), ("never", 0)])
def test_before_it_leaves_only_what_is_wanted_is_copied(tmp_path: Path, kept: str, host: int) -> None:
    engine = make(store=tmp_path, policy=Logs(write=Writes(kept, "write_through")), clean_reserve=1.0)
    with engine.cache as cache:
        serve(engine, PROMPT)
        cache.poll()
        assert cache.drain(10)
        cache.evict(16)
        stats = cache.stats()
        assert (stats["host_resident"], stats["dropped_unsaved_pages"]) == (host, 0)
        assert engine.match(PROMPT).hit.host_length == 2 * host
    assert len(store_files(tmp_path)) == host


def test_requests_differ(tmp_path: Path) -> None:
    """One that wants nothing to be written takes nothing from one that does, and adds nothing."""

    class Short(Policy):
        def write(self, loading: Loading) -> str:
            return "write_through" if loading.prompt <= 8 else "never"

    engine = make(store=tmp_path, policy=Short(), clean_reserve=1.0)
    with engine.cache as cache:
        serve(engine, PROMPT[:8])
        serve(engine, PROMPT)
        cache.evict(16)
        assert cache.stats()["host_resident"] == 4
        serve(engine, PROMPT)
        engine.check()
    assert len(store_files(tmp_path)) == 4
