"""An engine over one torch buffer: it writes numbers that tell every token and state apart, and reads them
where the frames say."""

from __future__ import annotations

import torch

from hicache import HiCache, Host, pools, unified

PAGE = 4


def declared(rows: int = 4096, states: int = 256) -> list[pools.Pool]:
    kv = pools.declare("kv", 2, rows, [(2, 4), (2, 4)], torch.float16)
    return [kv, pools.declare("state", 3, states, [(16,), (4,)], torch.float32, of_pages=True, window=1)]


class Engine:
    """Writes numbers that tell every token and state apart, and reads them where the frames say."""

    def __init__(self, size: int, host: Host | None) -> None:
        self.buffer = torch.zeros(size, dtype=torch.uint8)
        self.cache = HiCache(declared(), PAGE, host=host, unified=self.buffer, load_threshold=0)
        self.planes = unified.views(self.buffer, declared(), PAGE)

    def frames(self, part: str | None, slots: torch.Tensor) -> torch.Tensor:
        found = self.cache.frames(part)[slots.long()].long()
        assert (found > 0).all()
        return found

    def check(self, hit: object, number: int) -> None:
        slots, states = hit.slots, hit.parts["state"]  # type: ignore[attr-defined]
        expected = number + torch.arange(slots.numel() * PAGE).view(-1, PAGE, 1, 1) % 7
        for at, plane in enumerate(self.planes["kv"]):
            assert (plane[self.frames(None, slots)] == expected + 8 * at).all()
        for at, plane in enumerate(self.planes["state"]):
            assert (plane[self.frames("state", states)] == number + at).all()

    def serve(self, number: int, pages: int) -> int:
        """One request; returns its hit, in pages."""
        tokens = torch.arange(pages * PAGE, dtype=torch.int32) + 1000 * number
        hit = self.cache.match_prefix(tokens)
        self.cache.load([hit])
        assert self.cache.drain(10)
        found = hit.length // PAGE
        if found:
            self.check(hit, number)
        if found < pages:
            slots, state = self.cache.allocate(pages - found), self.cache.allocate_part("state", 1)
            assert slots is not None
            assert state is not None
            values = number + torch.arange(found * PAGE, pages * PAGE).view(-1, PAGE, 1, 1) % 7
            for at, plane in enumerate(self.planes["kv"]):
                plane[self.frames(None, slots)] = (values + 8 * at).to(plane.dtype).expand(-1, -1, 2, 4)
            for at, plane in enumerate(self.planes["state"]):
                plane[self.frames("state", state)] = float(number + at)
            done = self.cache.insert_parts(hit, tokens[found * PAGE :], slots, {"state": state})
            assert done.duplicates.numel() == 0
            self.check(hit, number)
        hit.release()
        return found
