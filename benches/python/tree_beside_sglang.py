"""The index through the binding, beside SGLang's Rust tree through its own, interleaved in one process.

Run: python benches/python/tree_beside_sglang.py [--page-size 16] [--sglang PYTHON]. Without --sglang only our
side runs. PYTHON is the interpreter of an environment that has the package `sglang` 0.5.23 and a torch that
its extension was built for; nothing else of it is needed, since only that one extension is loaded. The script
runs itself there, with this interpreter's `hicache` on the path (torch and NumPy come from that environment).

64 conversations of 16 turns of 670 random tokens: 1,024 keys. Keys, as in the peer's own interface, are int64
(SGLang takes nothing else); ours also int32. `cold`: all keys in a shuffled order, each in its own buffer,
the median of those of 10,720 tokens; `warm`: one of them repeated. `match` leaves out the release, which has
no part in SGLang's match; `match, release` counts it. `insert present`: a key that is cached, from its
beginning; `slots`: until the caller has the tree's slots for it, which ours returns and SGLang's cache object
looks up by another match. `continue`: only the last 670 tokens are passed, after the hit that ended before
them; SGLang has to be given the whole key. Prints nanoseconds (medians, less the timer's own) and SGLang's as
a multiple.
"""

from __future__ import annotations

import argparse
import gc
import importlib.machinery
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hicache import HiCache, pools

CONVERSATIONS, TURNS, TURN, PASSES, REPEATS = 64, 16, 670, 7, 400
LAST = TURNS - 1
now = time.perf_counter_ns

Times = dict[str, list[int]]


class Ours:
    """Our binding, driven as `HiCache` drives it."""

    def __init__(self, page_size: int, pages: int | None = None) -> None:
        self.size = page_size
        pages = pages or (CONVERSATIONS + 4) * TURNS * TURN // page_size
        self.cache = HiCache(
            [pools.latent("kv", [torch.zeros(pages * page_size, 1, dtype=torch.uint8)])], page_size
        )
        self.core = self.cache._core
        self.evict = partial(self.core.evict, False)

    def match(self, key: Any, after: Any = None, limit: int | None = None) -> int:
        return self.core.match_prefix(key, None, None, None, after, limit, 0.0)

    def insert(self, key: Any, after: Any = None) -> tuple[int, Any]:
        """Nanoseconds of the insert alone, and where it ended."""
        # Without the key, which stays cold if it is.
        hit = self.match(key[:0], after, 0)
        self.core.load([hit], None, None)
        slots = self.core.allocate(len(key) // self.size)
        assert slots is not None
        given = np.frombuffer(slots, dtype=np.int32)
        started = now()
        _, _, duplicates = self.core.insert(hit, key, given)
        ended = now()
        if duplicates:
            self.core.free(given[:duplicates])
        return ended - started, self.core.release(hit, 0)


class Theirs:
    """SGLang's binding, driven as its cache object drives it, without that object."""

    def __init__(self, page_size: int) -> None:
        spec = importlib.util.find_spec("sglang")
        assert spec is not None, "no sglang here"
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0]) / "srt" / "mem_cache" / "rust_tree_core"
        loader = importlib.machinery.ExtensionFileLoader("mem_cache", str(next(folder.glob("mem_cache*.so"))))
        found = importlib.util.spec_from_loader("mem_cache", loader)
        assert found is not None
        self.module: Any = importlib.util.module_from_spec(found)
        loader.exec_module(self.module)
        settings = self.module.TreeCoreInitParamsBinding(
            eviction_policy="lru", page_size=page_size, device="cpu"
        )
        self.core = self.module.RustUnifiedTreeCoreBinding(settings, [0])
        self.size, self.slots = page_size, page_size

    def match(self, key: Any) -> Any:
        return self.core.match_prefix(
            self.module.MatchParamsBinding(key=key, extra_key=None, cache_salt=None)
        )

    def insert(self, key: Any, known: int) -> int:
        """Nanoseconds of an insert whose first `known` tokens are cached."""
        whole, known = len(key) // self.size * self.size, known // self.size * self.size
        value = torch.arange(self.slots, self.slots + whole, dtype=torch.int64)
        self.slots += whole - known
        if whole < len(key):
            key = key[:whole]
        started = now()
        self.core.insert(
            self.module.InsertParamsBinding(key=key, value=value, prev_prefix_len=known, inserted_len=known)
        )
        return now() - started

    def evict(self, pages: int) -> None:
        self.core.evict_device_start(0, pages * self.size)
        gone = {0: 0}
        while (node := self.core.evict_device_next_node(0, gone).node_id) is not None:
            for component, tokens in self.core.evict_device_leaf(node).tracker.items():
                gone[component] = gone.get(component, 0) + tokens
        self.core.evict_device_end(0)


def timed(act: Callable[..., Any], *arguments: Any) -> int:
    started = now()
    act(*arguments)
    return now() - started


def shuffled(seed: int) -> Iterator[tuple[int, int]]:
    for at in np.random.default_rng(seed).permutation(CONVERSATIONS * TURNS).tolist():
        yield divmod(at, TURNS)


def note(times: Times, name: str, turn: int, nanoseconds: int) -> None:
    if turn == LAST:
        times.setdefault(name, []).append(nanoseconds)


def as_arrays(tokens: np.ndarray) -> list[list[Any]]:
    """SGLang's keys, one for each turn of each conversation."""
    return [[array("q", row[: (turn + 1) * TURN].tobytes()) for turn in range(TURNS)] for row in tokens]


def copies(tokens: np.ndarray) -> list[list[np.ndarray]]:
    return [[row[: (turn + 1) * TURN].copy() for turn in range(TURNS)] for row in tokens]


def fill(ours: Ours, theirs: Theirs | None, tokens: np.ndarray, times: Times) -> list[list[Any]]:
    """Inserts all turns, turn by turn, ours continued. Returns where each conversation's turns ended."""
    places: list[list[Any]] = [[] for _ in tokens]
    for turn in range(TURNS):
        for conversation in np.random.default_rng(turn).permutation(len(tokens)).tolist():
            row, place = tokens[conversation], places[conversation][-1] if turn else None
            start = 0 if place is None else place.depth * ours.size
            spent, place = ours.insert(row[start : (turn + 1) * TURN], place)
            places[conversation].append(place)
            note(times, "insert new, continue", turn, spent)
            if theirs is not None:
                spent = theirs.insert(array("q", row[: (turn + 1) * TURN].tobytes()), turn * TURN)
                note(times, "sglang insert new", turn, spent)
    return places


def cold_ours(
    ours: Ours, name: str, keys: list[list[np.ndarray]], places: list[list[Any]], times: Times
) -> None:
    for conversation, turn in shuffled(1):
        key = keys[conversation][turn]
        started = now()
        hit = ours.match(key)
        matched = now()
        ours.core.release(hit, 0)
        note(times, f"match cold {name}", turn, matched - started)
        note(times, f"match, release cold {name}", turn, now() - started)
    for conversation, turn in shuffled(2):
        inserted = ours.insert(keys[conversation][turn])[0]
        note(times, f"insert present cold {name}", turn, inserted)
        note(times, f"insert present, slots cold {name}", turn, inserted)
    for conversation, turn in shuffled(3):
        place = places[conversation][turn - 1] if turn else None
        tail = keys[conversation][turn][place.depth * ours.size if place else 0 :]
        started = now()
        hit = ours.match(tail, place)
        note(times, f"match continue cold {name}", turn, now() - started)
        ours.core.release(hit, 0)


def cold_theirs(theirs: Theirs, keys: list[list[Any]], times: Times) -> None:
    for conversation, turn in shuffled(1):
        note(times, "sglang match cold", turn, timed(theirs.match, keys[conversation][turn]))
    for conversation, turn in shuffled(2):
        key = keys[conversation][turn]
        inserted = theirs.insert(key, len(key))
        note(times, "sglang insert present cold", turn, inserted)
        note(times, "sglang insert present, slots cold", turn, inserted + timed(theirs.match, key))


def warm(times: Times, name: str, act: Callable[[], int]) -> None:
    for _ in range(REPEATS):
        times.setdefault(name, []).append(act())


def matched(ours: Ours, key: Any, after: Any = None) -> int:
    started = now()
    hit = ours.match(key, after)
    spent = now() - started
    ours.core.release(hit, 0)
    return spent


def evictions(side: Ours | Theirs, name: str, times: Times) -> None:
    for pages, rounds in ((1, 60), (256, 9)):
        for _ in range(rounds):
            times.setdefault(f"{name}evict {pages}", []).append(timed(side.evict, pages))


def run(page_size: int, with_sglang: bool) -> Times:
    tokens = np.random.default_rng(1).integers(0, 151_936, (CONVERSATIONS, TURNS * TURN), dtype=np.int64)
    ours, theirs = Ours(page_size), Theirs(page_size) if with_sglang else None
    times: Times = {}
    places = fill(ours, theirs, tokens, times)
    keys = {"int64": copies(tokens), "int32": copies(tokens.astype(np.int32))}
    arrays = as_arrays(tokens) if theirs else []
    gc.collect()
    gc.freeze()
    for _ in range(PASSES):
        for name, of in keys.items():
            cold_ours(ours, name, of, places, times)
            key, place = of[5][LAST], places[5][LAST - 1]
            tail = key[place.depth * page_size :].copy()
            warm(times, f"match warm {name}", lambda key=key: matched(ours, key))
            warm(times, f"match continue warm {name}", lambda key=tail, at=place: matched(ours, key, at))
            warm(times, f"insert present warm {name}", lambda key=key: ours.insert(key)[0])
        if theirs is not None:
            cold_theirs(theirs, arrays, times)
            key = arrays[5][LAST]
            warm(times, "sglang match warm", lambda key=key: timed(theirs.match, key))
            warm(times, "sglang insert present warm", lambda key=key: theirs.insert(key, len(key)))
    evictions(ours, "", times)
    if theirs is not None:
        evictions(theirs, "sglang ", times)
    ours.cache.close()
    return times


def beside(name: str) -> str:
    """Which of SGLang's figures one of ours is compared with."""
    if name.startswith("insert new"):
        return "sglang insert new"
    if name.startswith("match continue"):
        return "sglang match cold"
    name = name.replace(" int64", "").replace(" int32", "").replace(", release", "")
    return f"sglang {name}"


def report(times: Times) -> None:
    timer = statistics.median(timed(lambda: None) for _ in range(20_000))
    middle = {name: statistics.median(values) - timer for name, values in times.items()}
    for name in sorted(name for name in middle if not name.startswith("sglang")):
        line, other = f"{name:34}{middle[name]:10.0f}", middle.get(beside(name))
        print(line if other is None else f"{line}   sglang{other:10.0f}   {other / middle[name]:6.1f}x")


def chosen(script: str, document: str | None, option: str, default: int) -> tuple[int, bool]:
    """A number by its option, and whether this is the peer's environment: a named one runs `script`."""
    options = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(option, type=int, default=default, dest="number")
    options.add_argument("--sglang", metavar="PYTHON", help="interpreter of an environment with sglang")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.sglang:
        import hicache

        paths = [str(Path(hicache.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        command = [given.sglang, script, "--inside", option, str(given.number)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        sys.exit(subprocess.call(command, env=environment))
    return given.number, given.inside


def main() -> None:
    page_size, inside = chosen(__file__, __doc__, "--page-size", 16)
    print(f"pages of {page_size}, keys of {TURNS * TURN} tokens; ns a call")
    report(run(page_size, inside))


if __name__ == "__main__":
    main()
