"""The child of `crash`: `python -m hicache.testing.stores.child FILE CLASS PLACE ROUND BATCHES`.

On error: a batch that isn't stored is said to be "lost", not "put".
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import count
from pathlib import Path
from typing import Any

from hicache.testing.stores.base import HIT, Base
from hicache.testing.stores.crash import BATCH, SIZES, page_name


def load(file: str, qualname: str) -> Base:
    """The kit's subclass of a file."""
    spec = importlib.util.spec_from_file_location("store_under_test", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} can't be imported")
    # What stands beside a test file is imported by its name, as pytest does it.
    sys.path.insert(0, str(Path(file).parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    kit = found()
    if not isinstance(kit, Base):
        raise TypeError(f"{qualname} is no kit")
    return kit


def main(file: str, qualname: str, where: str, round_: str, batches: str) -> None:
    """Puts batches and says what became of each."""
    kit = load(file, qualname)
    store = kit.open(Path(where))
    print("open", flush=True)
    for batch in range(int(batches)) if int(batches) else count():
        keys = [page_name(int(round_), batch * BATCH + at) for at in range(BATCH)]
        parents = [None, *keys[:-1]]
        found = kit.put(store, keys, SIZES[batch % len(SIZES)], parents=parents)
        print("put" if set(found) == {HIT} else "lost", flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
