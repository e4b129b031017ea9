"""What all of a step's calls cost when everything fits on the device, beside SGLang's cache object.

Run: python benches/python/step_beside_sglang.py [--running 64] [--sglang PYTHON [--before SCRIPT]]. Without
--sglang only our side runs. PYTHON is the interpreter of an environment with the package `sglang` 0.5.23; the
script runs itself there, with this interpreter's `hicache` on the path. SCRIPT is executed before sglang is
imported, for machines on which that needs help (one without a GPU, say).

An engine that always has so many requests running, without a model: a step decodes a token for each. A
request is a turn of a conversation: all that was said before, 256 new tokens, and 64 that are decoded, so
that in a step of 64 requests one ends and one begins; histories grow from 2,048 tokens on. Both sides make
the same calls, with tokens and slots made beforehand as far as an engine has them anyway, and take turns,
step by step, over the same requests:

- a request begins: its prefix is found and held; slots for what is new, and after its prefill that is
  inserted and held. Ours: `match_prefix`, `load` (one for all that begin), `allocate`, `insert`. SGLang:
  `match_prefix`, `lock`, `alloc`, `insert`, `match_prefix` and the tree's slots, `lock`, `unlock`:
  what its cache object does for an unfinished request.
- a request ends: what was decoded is inserted, and the request let go. Ours: `insert`, `release`. SGLang:
  `insert`, `unlock`.
- every step: slots for requests that begin a page. Ours: `poll` and one `allocate` for all; SGLang: one
  `alloc` for all, from a counter (its own allocator would cost more).

Prints microseconds a step (medians and 99th percentiles) and SGLang's as a multiple.
"""

from __future__ import annotations

import argparse
import gc
import os
import runpy
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hicache import HiCache, pools

PAGE, HISTORY, NEW, OUT = 16, 2048, 256, 64
TURN = NEW + OUT
NONE = torch.empty(0, dtype=torch.int32)
now = time.perf_counter_ns


class Turn:
    """One request of a conversation: its tokens, with what it will decode."""

    def __init__(self, tokens: np.ndarray, after: Any) -> None:
        self.tokens, self.after = tokens, after
        self.prompt = len(tokens) - OUT
        self.done = self.prompt
        #: As SGLang's scheduler has them.
        self.arrays = [array("q", tokens[:end].tobytes()) for end in (self.prompt, len(tokens))]
        self.hit: Any = None
        self.row: Any = None
        #: Slots of what is decoded, page by page.
        self.pages: list[torch.Tensor] = []


class Ours:
    """`HiCache` as an engine calls it; turns continue their conversations by cursor."""

    def __init__(self, tokens: int) -> None:
        rows = [torch.zeros(tokens, 1, dtype=torch.uint8)]
        self.cache = HiCache([pools.latent("kv", rows)], PAGE)

    def pages(self, count: int) -> torch.Tensor:
        slots = self.cache.allocate(count)
        assert slots is not None
        return slots

    def begin(self, turns: list[Turn]) -> None:
        for turn in turns:
            fresh = turn.tokens[0 if turn.after is None else turn.after.length : turn.prompt]
            turn.hit = self.cache.match_prefix(fresh, after=turn.after, limit=max(len(fresh) - 1, 0))
        self.cache.load([turn.hit for turn in turns])
        for turn in turns:
            fresh = turn.tokens[turn.hit.length : turn.prompt]
            self.insert(turn, fresh, self.pages(len(fresh) // PAGE))

    def insert(self, turn: Turn, fresh: np.ndarray, slots: torch.Tensor) -> None:
        done = self.cache.insert(turn.hit, fresh, slots)
        if len(done.duplicates):
            self.cache.free(done.duplicates)

    def step(self, pages: int) -> torch.Tensor:
        self.cache.poll()
        return self.pages(pages) if pages else NONE

    def before(self, turn: Turn) -> list[torch.Tensor]:
        return []

    def end(self, turn: Turn) -> Any:
        self.insert(turn, turn.tokens[turn.hit.length :], turn.row)
        turn.hit.release(OUT)
        return turn.hit


class Theirs:
    """SGLang's cache object over its Rust tree, with slots from a counter."""

    def __init__(self, tokens: int) -> None:
        from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.radix_cache import RadixKey
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

        class Counter(BaseTokenToKVPoolAllocator):
            def __init__(self) -> None:
                super().__init__(tokens, PAGE, torch.bfloat16, "cpu", SimpleNamespace(), False)
                self.next = PAGE

            def clear(self) -> None: ...
            def available_size(self) -> int:
                return tokens

            def alloc(self, need: int) -> torch.Tensor:
                self.next += need
                return torch.arange(self.next - need, self.next, dtype=torch.int64)

            def free(self, slots: torch.Tensor) -> None: ...
            def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None: ...

        self.key, self.match_of, self.insert_of = RadixKey, MatchPrefixParams, InsertParams
        self.slots = Counter()
        self.cache: Any = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self.slots,
                page_size=PAGE,
                tree_components=(ComponentType.FULL,),
                tree_core_backend="rust",
            )
        )

    def begin(self, turns: list[Turn]) -> None:
        for turn in turns:
            key = self.key(turn.arrays[0])
            found = self.cache.match_prefix(self.match_of(key=key))
            held = self.cache.lock(found.last_device_node)
            known = self.cache.path_device_indices(found.last_device_node)
            slots = torch.cat([known, self.slots.alloc(turn.prompt - len(known))])
            node = self.insert(key, slots, len(known))
            again = self.cache.match_prefix(self.match_of(key=key))
            self.cache.path_device_indices(again.last_device_node)
            turn.hit = (self.cache.lock(node), slots)
            self.cache.unlock(held)

    def insert(self, key: Any, slots: torch.Tensor, known: int) -> Any:
        whole = len(slots) // PAGE * PAGE
        parameters = self.insert_of(
            key=key.page_aligned(PAGE), value=slots[:whole].clone(), prev_prefix_len=known, inserted_len=known
        )
        return self.cache.insert(parameters).last_device_node

    def step(self, pages: int) -> torch.Tensor:
        return self.slots.alloc(pages * PAGE) if pages else NONE

    def before(self, turn: Turn) -> list[torch.Tensor]:
        return [turn.hit[1]]

    def end(self, turn: Turn) -> Any:
        self.insert(self.key(turn.arrays[1]), turn.row, turn.prompt // PAGE * PAGE)
        self.cache.unlock(turn.hit[0])


class Side:
    """A cache and the requests that run on it."""

    def __init__(self, cache: Any, conversations: np.ndarray) -> None:
        self.cache, self.all = cache, conversations
        self.turns = [0] * len(conversations)
        self.last: list[Any] = [None] * len(conversations)
        self.running: list[tuple[int, Turn]] = []
        self.next = 0
        self.times: list[int] = []

    def request(self) -> tuple[int, Turn]:
        at = self.next % len(self.all)
        self.next += 1
        tokens = self.all[at][: HISTORY + OUT + self.turns[at] * TURN]
        self.turns[at] += 1
        return at, Turn(tokens, self.last[at])

    def fill(self, running: int) -> None:
        """So many requests, at evenly spread points of their decoding."""
        self.running = [self.request() for _ in range(running)]
        self.cache.begin([turn for _, turn in self.running])
        for place, (_, turn) in enumerate(self.running):
            turn.done += place * OUT // running
            turn.pages = [self.cache.step((turn.done - turn.prompt) // PAGE)]

    def step(self, measured: bool) -> None:
        for _, turn in self.running:
            turn.done += 1
        full = [turn for _, turn in self.running if turn.done % PAGE == 0]
        started = now()
        slots = self.cache.step(len(full))
        spent = now() - started
        for turn, page in zip(full, slots.chunk(len(full)) if full else (), strict=True):
            turn.pages.append(page)
        ending = [pair for pair in self.running if pair[1].done == len(pair[1].tokens)]
        for _, turn in ending:
            # An engine has them in its table of slots, one row a request.
            turn.row = torch.cat([*self.cache.before(turn), *turn.pages])
        started = now()
        for at, turn in ending:
            self.last[at] = self.cache.end(turn)
        spent += now() - started
        self.running = [pair for pair in self.running if pair[1].done < len(pair[1].tokens)]
        beginning = [self.request() for _ in ending]
        started = now()
        if beginning:
            self.cache.begin([turn for _, turn in beginning])
        spent += now() - started
        self.running += beginning
        if measured:
            self.times.append(spent)


def run(running: int, steps: int, with_sglang: bool) -> list[Side]:
    turns = steps // OUT + 4
    tokens = np.random.default_rng(1).integers(
        0, 151_936, (2 * running, HISTORY + turns * TURN), dtype=np.int64
    )
    sides = [Side(Ours(tokens.size), tokens)]
    if with_sglang:
        sides.append(Side(Theirs(tokens.size), tokens))
    for side in sides:
        side.fill(running)
    gc.collect()
    gc.freeze()
    for step in range(steps):
        for side in sides if step % 2 else sides[::-1]:
            side.step(measured=step >= 4 * OUT)
    return sides


def report(sides: list[Side]) -> None:
    middle = [statistics.median(side.times) / 1e3 for side in sides]
    for name, side, median in zip(("hicache", "sglang"), sides, middle, strict=False):
        late = sorted(side.times)[len(side.times) * 99 // 100] / 1e3
        mean = statistics.fmean(side.times) / 1e3
        print(f"  {name:8} {median:8.1f} µs a step, mean {mean:.1f}, 99th percentile {late:.1f}")
    if len(sides) > 1:
        mean = [statistics.fmean(side.times) for side in sides]
        print(f"  sglang / hicache: {middle[1] / middle[0]:.1f}x, of the means {mean[1] / mean[0]:.1f}x")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--running", type=int, default=64)
    options.add_argument("--steps", type=int, default=1024)
    options.add_argument("--sglang", metavar="PYTHON", help="interpreter of an environment with sglang")
    options.add_argument("--before", metavar="SCRIPT", help="executed before sglang is imported")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.sglang and not given.inside:
        import hicache

        paths = [str(Path(hicache.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [given.sglang, __file__, "--inside", *sys.argv[1:]]
        sys.exit(subprocess.call(command, env=environment))
    if given.before:
        runpy.run_path(given.before)
    torch.set_num_threads(1)
    print(f"{given.running} requests running, pages of {PAGE}")
    report(run(given.running, given.steps, given.inside))


if __name__ == "__main__":
    main()
