"""Engines whose host memory outlives them; as a program, one that serves prompts until it is killed.

`kept_engine.py DIRECTORY KIND SEED` serves prompts that another process with the same seed knows; says how
many leftovers it found once it begins. Ends with a traceback if a byte is wrong, or if what was left is not
what was written.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from fake_engine import ANY_LENGTH, Device, Engine
from parted_engine import PartedDevice, PartedEngine

from hicache import HiCache, Host, ModelIdentity

PAGE = 2
KINDS = ("plain", "parted")


def kept(
    directory: Path,
    kind: str = "plain",
    host_pages: int = 24,
    identity: ModelIdentity | None = None,
    layout: str = "page_unified",
    **options: Any,
) -> Engine:
    """An engine over a new cache whose host tier is in a directory."""
    device = Device(20, PAGE) if kind == "plain" else PartedDevice(20, PAGE, 24, 8, 3)
    cache = HiCache(
        device.pools,
        PAGE,
        host=Host(tokens=host_pages * PAGE, restart=directory, layout=layout),
        identity=identity or ModelIdentity(model="stamps"),
        **(ANY_LENGTH | options),
    )
    return PartedEngine(cache, device) if isinstance(device, PartedDevice) else Engine(cache, device)


def prompt(number: int, tokens: int) -> list[int]:
    """Tokens that no other number has."""
    return list(range(1000 * number, 1000 * number + tokens))


def serve(engine: Engine, tokens: list[int]) -> int:
    """A whole request; the tokens that it found anywhere, verified."""
    request = engine.match(tokens)
    engine.fetch(request)
    engine.load(request)
    engine.verify(request)
    found = request.hit.length
    while request.computed < len(tokens):
        assert engine.compute(request, 6), "no room"
    engine.verify(request)
    engine.finish(request)
    assert engine.cache.drain(10)
    engine.check()
    return found


def counts(engine: Engine) -> dict[str, int]:
    """What became of the leftovers: all that were found are somewhere."""
    stats = engine.cache.stats()
    left = {name.removeprefix("leftovers_"): n for name, n in stats.items() if name.startswith("leftovers_")}
    assert left["found"] == left["now"] + left["adopted"] + left["given_up"], left
    return left


def main() -> None:
    directory, kind, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    engine, numbers = kept(directory, kind), random.Random(seed)
    print("found", counts(engine)["found"], flush=True)
    while True:
        serve(engine, prompt(numbers.randrange(3), PAGE * numbers.randrange(1, 9)))
        assert counts(engine)["corrupt"] == 0


if __name__ == "__main__":
    main()
