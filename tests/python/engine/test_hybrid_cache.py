"""Hybrids on the cache, on real bytes: windows only, states only, both. Tokens and logits are those of a
naive computation of the whole sequence, wherever a hit came from; a part that is a page off is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import naive
import pytest
import torch
from cached_hybrids import Stack
from hybrids import SEEN, hybrid, off, some_tokens

from hicache import Hit, Inserted
from hicache.engines.reference import Request, Result

KINDS = ["WF", "SF", "SWF", "WS", "WWFS"]
LAYOUTS = ["page_unified", "layer_first", "page_first", "page_head"]
PROMPT = some_tokens(30).tolist()
#: The prompt's first 29 tokens, and others: a hit may reach 28 tokens, 7 pages.
AGAIN = PROMPT[:29] + some_tokens(5, 9).tolist()
DOCUMENT = some_tokens(64, 20).tolist()


def tokens_of(result: Result) -> tuple[int, int, int]:
    return result.device_tokens, result.host_tokens, result.storage_tokens


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", KINDS)
def test_hits_from_device_and_host(kinds: str, layout: str) -> None:
    with Stack(hybrid(kinds, **window_of(kinds, 9)), layout=layout) as stack:
        assert tokens_of(stack.ask(PROMPT)) == (0, 0, 0)
        stack.settle()
        assert tokens_of(stack.ask(AGAIN)) == (28, 0, 0)
        stack.settle()
        stack.forget("device")
        assert tokens_of(stack.ask([*AGAIN[:31], 5, 6])) == (0, 28, 0)
        assert tokens_of(stack.ask([*AGAIN[:31], 7])) == (28, 0, 0)
        stack.check_books()


def window_of(kinds: str, tokens: int) -> dict[str, Any]:
    return {"window": tokens} if "W" in kinds else {}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(
    ("window", "chunk_tokens", "page_size"), [(1, 30, 4), (5, 7, 1), (12, 3, 8), (6, 11, 3)]
)
def test_any_window_page_and_step(kinds: str, window: int, chunk_tokens: int, page_size: int) -> None:
    model = hybrid(kinds, **window_of(kinds, window))
    with Stack(model, chunk_tokens=chunk_tokens, page_size=page_size) as stack:
        for tier in ("device", "host"):
            stack.ask(PROMPT)
            stack.settle()
            given = stack.ask([*PROMPT, 1, 2, 3, 4])
            assert sum(tokens_of(given)) > 0
            stack.settle()
            stack.forget("device")
            given = stack.ask([*PROMPT, 1, 2, 3, 4, 5] if tier == "host" else [*PROMPT, 1, 2])
            assert tokens_of(given)[1] > 0
        stack.check_books()


#: Models, and a part that they have.
PARTS = [("WF", "window"), ("SF", "state"), ("SWF", "window"), ("SWF", "state")]


@pytest.mark.parametrize("tier", ["device", "host"])
@pytest.mark.parametrize("recent", [0, 13, 21])
@pytest.mark.parametrize(("kinds", "part"), PARTS)
def test_windows_and_states_leave_and_come_back_one_by_one(
    kinds: str, part: str, recent: int, tier: str
) -> None:
    """However many have gone, the answer is the naive one; and what was computed again is there again. What a
    request for the first `recent` tokens has used leaves last."""
    model, lengths = hybrid(kinds, **window_of(kinds, 9)), []
    for gone in range(1, 8):
        with Stack(model) as stack:
            stack.ask(PROMPT)
            if recent:
                stack.ask(PROMPT[:recent], 1)
            stack.settle()
            assert len(stack.cache.evict_part(part, gone)) <= gone
            if tier == "device":
                # Nor on the host: what is not on the device must be computed.
                stack.forget_part(part, "host")
            lengths.append(sum(tokens_of(stack.ask(AGAIN))))
            stack.settle()
            assert sum(tokens_of(stack.ask([*AGAIN, 3]))) == 32, "mended"
            stack.check_books()
    print(f"\nhits after so many {part} slots had gone: {lengths}")
    if tier == "host":
        assert lengths == [28] * 7, "whatever the device lost the host brings"
    else:
        assert len(set(lengths)) >= 2, "nothing that was needed ever left"


@pytest.mark.parametrize("help_", [True, False])
@pytest.mark.parametrize("kinds", ["SF", "SWF"])
def test_ten_of_ten_requests_recover_a_shared_document(
    kinds: str, help_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of 64 tokens, then 36 of one's own. The second request is told that a checkpoint behind the
    document would help, and makes it where the KV was backed up before; it is backed up all the same. Then
    the device loses its checkpoints: each of ten requests starts from the host's, 64 %. Without it none does.
    """
    if not help_:
        monkeypatch.setattr(Hit, "checkpoint_length", None)
    with Stack(hybrid(kinds), sizes=(700, 700, 60), chunk_tokens=128) as stack:
        stack.ask(own(0), 1)
        stack.settle()
        assert tokens_of(stack.ask(own(1), 1)) == (0, 0, 0)
        stack.settle()
        recovered = []
        for request in range(2, 12):
            assert stack.forget_part("state") > 0
            (result,) = stack.engine.generate([Request(own(request), 1, keep_logits=True)])
            recovered.append(tokens_of(result))
            stack.settle()
        assert recovered == [(0, 64, 0) if help_ else (0, 0, 0)] * 10
        assert result.tokens == naive.greedy(stack.model, own(11), 1)[0]
        stack.check_books()


def own(number: int) -> list[int]:
    return DOCUMENT + some_tokens(36, 100 + number).tolist()


@pytest.mark.parametrize("tier", ["device", "host"])
@pytest.mark.parametrize(
    ("kinds", "part"), [("WF", "window"), ("SF", "state"), ("SWF", "window"), ("SWF", "state")]
)
def test_a_part_one_page_off_is_noticed(
    kinds: str, part: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of these tests: a window's slots exchanged for their neighbours', a state for that a page
    before it. The tokens still hit, and the logits are others."""
    with Stack(hybrid(kinds, **window_of(kinds, 9))) as stack:
        if part == "window":
            monkeypatch.setattr(Hit, "parts", property(shifted_windows))
        else:
            monkeypatch.setattr(stack.cache, "insert_parts", late_states(stack))
        (result,) = stack.engine.generate([Request(PROMPT, 1, keep_logits=True)])
        assert result.logits is not None
        assert off(result.logits[0], naive.greedy(stack.model, PROMPT, 1)[1][0]) < SEEN, "no hit, no harm"
        stack.settle()
        if tier == "host":
            stack.forget("device")
        (result,) = stack.engine.generate([Request(AGAIN, 1, keep_logits=True)])
        assert sum(tokens_of(result)) == 28
        assert result.logits is not None
        assert off(result.logits[0], naive.greedy(stack.model, AGAIN, 1)[1][0]) > SEEN


parts_of_a_hit = Hit.parts.fget  # type: ignore[attr-defined]


def shifted_windows(hit: Hit) -> Mapping[str, torch.Tensor]:
    """The pages of the window in the order 2 3 1 instead of 1 2 3."""
    parts: dict[str, torch.Tensor] = parts_of_a_hit(hit)
    there = parts["window"] >= 0
    parts["window"][there] = parts["window"][there].roll(-1)
    return parts


def late_states(stack: Stack) -> Any:
    """An insert whose checkpoint is that of the insert before it, a page earlier (a step is a page)."""
    before: list[torch.Tensor] = [torch.zeros_like(tensor[0]) for tensor in stack.tensors("state")]
    insert_parts = stack.cache.insert_parts

    def insert(hit: Any, tokens: Any, slots: Any, parts: Mapping[str, torch.Tensor]) -> Inserted:
        nonlocal before
        if "state" in parts:
            (slot,) = parts["state"].tolist()
            now = [tensor[slot].clone() for tensor in stack.tensors("state")]
            for tensor, earlier in zip(stack.tensors("state"), before, strict=True):
                tensor[slot] = earlier
            before = now
        return insert_parts(hit, tokens, slots, parts)

    return insert


def test_a_model_without_full_attention_has_pages_without_bytes() -> None:
    """Its KV pool only says which pages there are; windows and states carry all that is known."""
    with Stack(hybrid("WS")) as stack:
        stack.ask(PROMPT)
        assert stack.cache.parts == ("window", "state")
        stack.settle()
        assert tokens_of(stack.ask(AGAIN)) == (28, 0, 0)
