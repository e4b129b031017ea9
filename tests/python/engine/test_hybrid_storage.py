"""Hybrids from storage: after a restart only the store knows anything, and it has windows and states too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cached_hybrids import Stack
from hybrids import hybrid, some_tokens

from hicache.engines.reference import Model, Result

KINDS = ["WF", "SF", "SWF", "WS"]
PROMPT = some_tokens(30).tolist()
AGAIN = PROMPT[:29] + some_tokens(5, 9).tolist()
DOCUMENT = some_tokens(64, 20).tolist()


def model_of(kinds: str) -> Model:
    return hybrid(kinds, **({"window": 9} if "W" in kinds else {}))


def tokens_of(result: Result) -> tuple[int, int, int]:
    return result.device_tokens, result.host_tokens, result.storage_tokens


@pytest.mark.parametrize(
    ("first", "second"), [("page_unified", "page_unified"), ("layer_first", "page_head")]
)
@pytest.mark.parametrize("kinds", KINDS)
def test_hits_after_a_restart(kinds: str, first: str, second: str, tmp_path: Path) -> None:
    """The layout of the host may be another one: what is stored is the same in all."""
    with Stack(model_of(kinds), store=tmp_path, layout=first) as stack:
        stack.ask(PROMPT)
        stack.settle()
    with Stack(model_of(kinds), store=tmp_path, layout=second) as stack:
        assert tokens_of(stack.ask(AGAIN)) == (0, 0, 28)
        stack.settle()
        assert tokens_of(stack.ask([*AGAIN[:31], 1])) == (28, 0, 0)
        stack.check_books()


@pytest.mark.parametrize(
    ("kinds", "part"), [("WF", "window"), ("SF", "state"), ("SWF", "window"), ("SWF", "state")]
)
def test_windows_and_states_alone_come_from_storage(kinds: str, part: str, tmp_path: Path) -> None:
    """KV is on the device; a part has left device and host."""
    with Stack(model_of(kinds), store=tmp_path) as stack:
        stack.ask(PROMPT)
        stack.ask([*AGAIN, *range(20)], 1)
        stack.settle()
        # What is deeper keeps the shared pages inside of the tree, so that they stay where they are.
        before = stack.cache.stats()["device_resident"]
        stack.forget_part(part)
        stack.forget_part(part, "host")
        print(f"\n{before} pages of KV were there, {stack.cache.stats()['device_resident']} are left")
        given = stack.ask([*PROMPT[:29], 5, 6])
        assert tokens_of(given) == (0, 0, 28)
        stack.check_books()


@pytest.mark.parametrize("kinds", ["SF", "SWF"])
def test_ten_of_ten_requests_recover_a_shared_document_after_a_restart(kinds: str, tmp_path: Path) -> None:
    with Stack(hybrid(kinds), sizes=(700, 700, 60), chunk_tokens=128, store=tmp_path) as stack:
        for request in range(2):
            stack.ask(own(request), 1)
            stack.settle()
    for request in range(2, 12):
        with Stack(hybrid(kinds), sizes=(700, 700, 60), chunk_tokens=128, store=tmp_path) as stack:
            assert tokens_of(stack.ask(own(request), 1)) == (0, 0, 64)


def own(number: int) -> list[int]:
    return DOCUMENT + some_tokens(36, 100 + number).tolist()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_store_that_lost_some_pages_gives_less_and_never_wrong(kinds: str, tmp_path: Path) -> None:
    """Of KV, windows and states every so manieth file is gone, or damaged."""
    source, gave = tmp_path / "source", []
    with Stack(model_of(kinds), store=source) as stack:
        stack.ask(PROMPT)
        stack.settle()
    for number, damage in enumerate([False, True] * 6):
        store = tmp_path / f"copy{number}"
        shutil.copytree(source, store)
        files = sorted(file for file in store.rglob("*") if file.is_file() and file.parent.name != "tmp")
        for file in files[number % 7 :: 7]:
            if damage:
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 1
                file.write_bytes(data)
            else:
                file.unlink()
        with Stack(model_of(kinds), store=store) as stack:
            gave.append(sum(tokens_of(stack.ask(AGAIN))))
            stack.check_books()
    print(f"\nhits from damaged stores: {gave}")
    assert set(gave) <= set(range(0, 29, 4))
    assert min(gave) < 28, "what was lost was not needed"
