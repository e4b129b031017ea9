"""Parts: the windows and states of hybrid models, which have slots of their own.

A part is called by the name of the pool whose slots it is: each pool but the first that follows itself
(`hicache.pools`: a window, or recurrent states). Its verbs are those of pages, with the part's name.
On error: `ArgumentError` names the argument, before anything was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from hicache import _hicache, tensors
from hicache.config import whole_number
from hicache.errors import ArgumentError
from hicache.forward import Forward
from hicache.hit import Hit, Inserted
from hicache.pools import Pool
from hicache.spaces import spaces
from hicache.stream import Stream
from hicache.tensors import Integers, Slots

if TYPE_CHECKING:
    from hicache.cache import HiCache

TIERS = ("device", "host")


def names(pools: Sequence[Pool]) -> tuple[str, ...]:
    """The parts of a cache over these pools, in order."""
    return tuple(space[0].name for space in spaces(pools)[1:])


def on_host(tier: str) -> bool:
    """Whether a tier is the host; `ArgumentError` for one that is neither that nor the device."""
    if tier not in TIERS:
        raise ArgumentError(f"tier: unknown tier {tier!r}: use device or host")
    return tier == "host"


class WithParts:
    """What `HiCache` can do with the slots of parts."""

    _core: _hicache.Cache
    _parts: tuple[str, ...]
    _stream: Stream
    page_size: int

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts' names, in order of the pools; empty for a model with full attention only."""
        return self._parts

    def allocate_part(self, part: str, count: int) -> torch.Tensor | None:
        """`count` fresh device slots of a part, int32 (count,); evicts what it must. None: there is
        no such room now, as `allocate` says."""
        slots = self._core.allocate_part(self._part(part), whole_number("count", count, least=0))
        return None if slots is None else tensors.slots(slots)

    def free_part(self, part: str, slots: Integers) -> None:
        """Gives device slots of a part back that the cache did not adopt; also none at all."""
        self._core.free_part(self._part(part), tensors.integers("slots", slots))

    def insert_parts(
        self, hit: Hit, tokens: Integers, slots: Slots, parts: Mapping[str, Integers]
    ) -> Inserted:
        """`insert`, together with what is there of the parts; any of them may be left out.

        `parts`, by name, int32 or int64. A window: (whole pages,) device slots of the same pages, -1 for
        none (what has left the window already). States: (1,), the slot of the checkpoint at the end of the
        last whole page: the state after exactly that many tokens; or -1. `Inserted.parts` says what became
        of them: what was adopted belongs to the cache, everything else is still yours to `free_part`. A page
        that had lost its window gets it again. `ArgumentError`: an unknown part, another number of slots, a
        slot that is not yours or is named twice.
        """
        buffers = tensors.integers("tokens", tokens), self._slots(slots)
        given = self._given(parts)
        self._stream.follow(self._core)
        depth, own, duplicates, kept = self._core.insert_parts(self._number(hit), *buffers, given)
        became = {name: tensors.slots(slots) for name, slots in zip(parts, kept, strict=True)}
        unused = tensors.first(buffers[1], duplicates)
        return Inserted(depth * self.page_size, tensors.slots(own), unused, became)

    def frames(self, part: str | None = None) -> torch.Tensor:
        """Of a cache over one buffer (`hicache.unified`): frames by slot, int32 (slots + 2,), of full
        attention or of the part. Slot 0 is the sink; -1 where a slot is not in use, and in the last row. A
        copy, right until `frames_version` changes: look before each forward."""
        return tensors.slots(self._core.frames(0 if part is None else 1 + self._part(part)))

    @property
    def frames_version(self) -> int:
        """Changes whenever the frame of a slot may have changed."""
        return self._core.frames_version()

    def forward(self) -> Forward:
        """Of a cache over one buffer: a forward of the model begins; verbs may be called meanwhile. Use it in
        `with`, or `end` it; several may be under way. What the engine holds now stays where it is found
        until then: its own slots, which the forward may write, and what loaded hits hold, which it reads;
        whatever is freed, released, inserted, moved or evicted meanwhile. Look slots up after it began."""
        return Forward(cast("HiCache", self), self._core.begin_forward())

    def evict_part(self, part: str, count: int, tier: str = "device") -> torch.Tensor:
        """Takes `count` slots of a part out of a tier ("device" or "host"), or as many as can go; returns
        them, int32: they are free already. Inside of the index the pages of full attention stay; at the end
        of a history they go along, since nothing there could be used without the part."""
        host = on_host(tier)
        return tensors.slots(
            self._core.evict_part(self._part(part), host, whole_number("count", count, least=0))
        )

    def part_stats(self, part: str) -> dict[str, int]:
        """Counters and gauges of a part by name, in slots: pages of a window, or states."""
        return self._core.part_stats(self._part(part))

    def _part(self, name: str) -> int:
        if name not in self._parts:
            have = " and ".join(map(repr, self._parts)) or "none: all pools use the same slots"
            raise ArgumentError(f"part: unknown part {name!r}: there is {have}")
        return self._parts.index(name)

    def _given(self, parts: Mapping[str, Integers]) -> list[tuple[int, Any]]:
        if not isinstance(parts, Mapping):
            raise ArgumentError(f"parts: need slots by the part's name, got {parts!r}")
        return [(self._part(name), tensors.integers("parts", slots)) for name, slots in parts.items()]

    if TYPE_CHECKING:
        _slots: Callable[[Slots], Any]
        _number: Callable[[Hit], int]
