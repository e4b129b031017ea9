"""A new process on an old store: reads what it is asked for and verifies every byte.

Reads one JSON object from standard input, writes one to standard output. Ends with a traceback if a stamp is
wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fake_engine import Shape, make

from hicache import Namespace


def main() -> None:
    asked = json.load(sys.stdin)
    store = Path(asked["store"])
    engine = make(asked["page_size"], layout=asked["layout"], store=store, shape=Shape(side=24))
    with engine.cache:
        request = engine.match(asked["tokens"], Namespace(**asked["namespace"]))
        engine.fetch(request)
        stored = request.hit.storage_length
        engine.load(request)
        engine.verify(request)
        engine.finish(request)
        json.dump({"length": request.hit.length, "storage": stored, **engine.cache.stats()}, sys.stdout)


if __name__ == "__main__":
    main()
