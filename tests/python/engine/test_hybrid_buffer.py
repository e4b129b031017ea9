"""Buffer-only mode for models with windows and states: each answer is the naive one, and another cache is
served from storage through a host pool of a few windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cached_hybrids import Stack
from hybrids import hybrid, some_tokens

from hicache.engines.reference import Model, Result

KINDS = ["WF", "SF", "SWF", "WS"]
PROMPT = some_tokens(30).tolist()
AGAIN = PROMPT[:29] + some_tokens(5, 9).tolist()
#: Twelve pages, as many of a window's, and six states.
STAGING: dict[str, Any] = {"host_mode": "buffer_only", "host": 0.1}


def model_of(kinds: str) -> Model:
    return hybrid(kinds, **({"window": 9} if "W" in kinds else {}))


def tokens_of(result: Result) -> tuple[int, int, int]:
    return result.device_tokens, result.host_tokens, result.storage_tokens


@pytest.mark.parametrize(
    ("first", "second"), [("page_unified", "page_unified"), ("layer_first", "page_head")]
)
@pytest.mark.parametrize("kinds", KINDS)
def test_another_cache_is_served_from_storage(kinds: str, first: str, second: str, tmp_path: Path) -> None:
    with Stack(model_of(kinds), store=tmp_path, layout=first, **STAGING) as stack:
        stack.ask(PROMPT)
        stack.settle()
        assert stack.cache.stats()["host_resident"] == 0
        stack.check_books()
    with Stack(model_of(kinds), store=tmp_path, layout=second, **STAGING) as stack:
        assert tokens_of(stack.ask(AGAIN)) == (0, 0, 28)
        stack.settle()
        assert tokens_of(stack.ask([*AGAIN[:31], 1])) == (28, 0, 0)
        stack.check_books()


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
@pytest.mark.parametrize("kinds", KINDS)
def test_conversations_go_on_through_a_small_pool(kinds: str, policy: str, tmp_path: Path) -> None:
    """Four conversations over a device that holds about three of them."""
    settings = STAGING | {"host": 0.5, "write_storage": policy, "sizes": (28, 28, 14)}
    stored = 0
    with Stack(model_of(kinds), store=tmp_path, **settings) as stack:
        histories = [some_tokens(24, number).tolist() for number in range(4)]
        for turn in range(3):
            for number, history in enumerate(histories):
                result = stack.ask(history)
                stored += result.storage_tokens
                assert result.host_tokens == 0
                history += [*result.tokens, *some_tokens(7, 10 * turn + number).tolist()]
            stack.settle()
        print(f"\n{kinds} {policy}: {stored} tokens came from storage")
        assert stored > 0
        stack.check_books()
