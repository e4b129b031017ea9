"""A match through the binding as the index grows, beside SGLang's Rust tree through its own, interleaved.

Run: python benches/python/growth_beside_sglang.py [--pages 1000000] [--sglang PYTHON], where PYTHON is what
`tree_beside_sglang.py` needs. Conversations of 16 turns of 672 random tokens, pages of 16. Keys of 10,752
tokens, written just before the call, of random conversations; ours as int64, as int32, and continued from the
turn before. Prints nanoseconds (medians of all calls), SGLang's as a multiple. 10^7 pages take some minutes
and, with SGLang, about 6 GB.
"""

from __future__ import annotations

import gc
import statistics
from array import array
from typing import Any

import numpy as np

from tree_beside_sglang import Ours, Theirs, Times, chosen, timed

TURNS, TURN, PAGE, ROUNDS = 16, 672, 16, 400


def conversation(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 151_936, TURNS * TURN, dtype=np.int64)


def fill(ours: Ours, theirs: Theirs | None, count: int) -> list[Any]:
    """All first turns first. Returns where each conversation's last turn but one ended."""
    places: list[Any] = [None] * count
    before: list[Any] = [None] * count
    for turn in range(TURNS):
        for number in range(count):
            tokens, start = conversation(number), turn * TURN
            before[number] = places[number]
            _, places[number] = ours.insert(tokens[start : start + TURN], places[number])
            if theirs is not None:
                theirs.insert(array("q", tokens[: start + TURN].tobytes()), start)
    return before


def matched(ours: Ours, key: np.ndarray, after: Any = None) -> int:
    hit = 0

    def match() -> None:
        nonlocal hit
        hit = ours.match(key, after)

    spent = timed(match)
    ours.core.release(hit, 0)
    return spent


def measure(ours: Ours, theirs: Theirs | None, before: list[Any]) -> Times:
    times: Times = {}
    random = np.random.default_rng(9)

    def note(name: str, spent: int) -> None:
        times.setdefault(name, []).append(spent)

    for _ in range(ROUNDS):
        number, *others = random.integers(len(before), size=4).tolist()
        note("match int64", matched(ours, conversation(number)))
        note("match int32", matched(ours, conversation(others[0]).astype(np.int32)))
        last = conversation(others[1])[-TURN:].copy()
        note("match continue int64", matched(ours, last, before[others[1]]))
        if theirs is not None:
            note("sglang match", timed(theirs.match, array("q", conversation(others[2]).tobytes())))
    for _ in range(15):
        note("evict 1", timed(ours.evict, 1))
        if theirs is not None:
            note("sglang evict 1", timed(theirs.evict, 1))
    return times


def run(pages: int, with_sglang: bool) -> None:
    count = -(-pages * PAGE // (TURNS * TURN))
    ours, theirs = Ours(PAGE, count * TURNS * TURN // PAGE + 64), Theirs(PAGE) if with_sglang else None
    before = fill(ours, theirs, count)
    gc.collect()
    gc.freeze()
    middle = {name: statistics.median(values) for name, values in measure(ours, theirs, before).items()}
    print(f"{count * TURNS * TURN // PAGE} pages; ns a call")
    for name in ("match int64", "match int32", "match continue int64", "evict 1"):
        other = middle.get("sglang evict 1" if name == "evict 1" else "sglang match")
        beside = "" if other is None else f"   sglang{other:10.0f}   {other / middle[name]:6.1f}x"
        print(f"{name:24}{middle[name]:10.0f}{beside}")


if __name__ == "__main__":
    run(*chosen(__file__, __doc__, "--pages", 1_000_000))
