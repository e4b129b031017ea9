"""What the verbs return: hits, loads, and what became of an insert.

A hit belongs to one request. It is held softly until `load`, then its pages are pinned on the device;
`release` lets it go, exactly once, in any state, and leaves a cursor from which the next turn continues.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from hicache import tensors
from hicache.config import Namespace, whole_number
from hicache.errors import ArgumentError, HitError

if TYPE_CHECKING:
    from hicache import _hicache
    from hicache.cache import HiCache
    from hicache.pools import Pool
    from hicache.stream import Stream

_ALL_LAYERS = 2**32 - 1
_MOST_PAGES = 2**32 - 1


class Hit:
    """A request's hit. Lengths are tokens in whole pages, counted from the start of the path."""

    def __init__(self, cache: HiCache, number: int, namespace: Namespace) -> None:
        self._cache, self._number, self._namespace = cache, number, namespace
        self._cursor: _hicache.Place | None = None
        self._last = 0

    @property
    def namespace(self) -> Namespace:
        """Whose prefix it is."""
        return self._namespace

    @property
    def released(self) -> bool:
        """Whether only the cursor is left."""
        return self._cursor is not None

    @property
    def device_length(self) -> int:
        """Tokens usable on the device as they are (before load), or pinned there (after it)."""
        return self._tokens(0)

    @property
    def host_length(self) -> int:
        """Tokens usable on device or host, in buffer-only mode those that were read for this hit; never less
        than `device_length`."""
        return self._tokens(1)

    @property
    def loaded_length(self) -> int:
        """Of `length`, the tokens that the load copies from the host."""
        return self._tokens(2)

    @property
    def storage_length(self) -> int:
        """Tokens that this hit's prefetch brought from storage to the host."""
        return self._tokens(3)

    @property
    def waiting(self) -> bool:
        """Whether a prefetch is undecided: `poll` decides it."""
        return bool(self._core.view(self._live())[4])

    @property
    def length(self) -> int:
        """Tokens whose KV is in the device pool (or arrives there with the load): fixed by `load`, moved
        along by `insert`. For a released hit, where its path ended."""
        if self.released:
            return self._last
        view = self._core.view(self._live())
        if not view[5]:
            raise HitError("hit: has no length before it is loaded")
        return int(view[0]) * self._cache.page_size

    @property
    def slots(self) -> torch.Tensor:
        """Device slots of the whole path, int32 (length // page_size,)."""
        return tensors.slots(self._core.hit_slots(self._live()))

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        """Device slots of the path's parts by name, int32, after `load`; empty without parts. They are
        pinned with the hit and read only. A window: (length // page_size,), -1 for holes and for what no
        token behind the hit sees. States: (1,), the checkpoint at exactly `length`; (0,) if there is none."""
        found = self._core.hit_parts(self._live())
        return {name: tensors.slots(slots) for name, slots in zip(self._cache.parts, found, strict=True)}

    @property
    def checkpoint_length(self) -> int | None:
        """Tokens after which a checkpoint of the state would help the next request: where this one's tokens
        match further than a state is kept. None where none would help, and without states."""
        at = self._core.view(self._live())[6]
        return None if at is None else at * self._cache.page_size

    def rewind(self, length: int) -> None:
        """Goes back to where the hit had `length` tokens, in whole pages: what was inserted behind that is
        not its history after all (drafts that were rejected). It ends there, `insert` follows there, and
        nothing behind is held for it any more.

        Those pages stay in the cache, for whoever asks for exactly their tokens, and leave by age; so do
        their slots: they are not yours again. Rows of a page that is partly right are copied into a slot of
        yours *before* this call. An engine that inserts only what was accepted never needs it.
        `ArgumentError`: not whole pages, more than there are, or no window or state there that a hit needs.
        """
        size = self._cache.page_size
        length = whole_number("length", length, least=0)
        if length % size:
            raise ArgumentError(f"length: need whole pages of {size} tokens, got {length}")
        self._core.rewind(self._live(), min(length // size, _MOST_PAGES))

    def release(self, generated: int = 0) -> None:
        """Lets the hit go; cancels what still runs for it. `generated`: tokens the request generated."""
        generated = whole_number("generated", generated, least=0)
        self._cursor = self._core.release(self._live(), generated)
        self._last = self._cursor.depth * self._cache.page_size

    @property
    def _core(self) -> _hicache.Cache:
        return self._cache._core

    def _tokens(self, field: int) -> int:
        return int(self._core.view(self._live())[field] or 0) * self._cache.page_size

    def _live(self) -> int:
        if self.released:
            raise HitError("hit: was released")
        return self._number

    def __del__(self) -> None:
        # A forgotten hit pins its pages: loud where warnings are errors, and let go by the next poll.
        if getattr(self, "_cursor", True) is None and not self._cache.closed:
            self._cache._forgotten.append(partial(self._core.release, self._number, 0))
            warnings.warn("a hit was dropped without release()", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        if self.released:
            return f"<Hit released at {self._last} tokens>"
        device, usable, _, _, waiting, loaded, _ = self._core.view(self._number)
        state = "loaded" if loaded else "waiting" if waiting else "matched"
        size = self._cache.page_size
        return f"<Hit {state}: {device * size} tokens on the device, {usable * size} with the host>"


class Load:
    """The copies that bring a batch's pages to the device, layer by layer."""

    def __init__(
        self,
        core: _hicache.Load,
        unused: torch.Tensor,
        timeout: float,
        stream: Stream,
        pools: Sequence[Pool],
    ) -> None:
        self._core, self._timeout, self._stream, self._pools = core, timeout, stream, pools
        #: Slots that were given and not needed, int32.
        self.unused = unused

    def wait_layer(self, layer: int) -> None:
        """What follows comes after this layer of all pools. On the CPU it blocks until the layer is there;
        `DeadlineError` if that takes too long, `DeviceError` at once if copies have failed. On a GPU torch's
        current stream waits, and the call returns at once; it is refused while a graph is captured."""
        layer = whole_number("layer", layer, least=0, most=_ALL_LAYERS - 2)
        if not self._stream.order(self._core, layer):
            self._core.wait(layer + 1, self._timeout)

    def wait_pool(self, pool: str) -> None:
        """`wait_layer` for the last layer of a pool, by its name: what follows may read all of it (a draft
        model that runs before its target, say). Layers arrive in order of their numbers over all pools, so
        that those of other pools with smaller numbers are waited for as well: `pools.numbered` says who is
        first."""
        found = [one for one in self._pools if one.name == pool]
        if not found:
            have = ", ".join(repr(one.name) for one in self._pools)
            raise ArgumentError(f"pool: unknown pool {pool!r}: there are {have}")
        if found[0].planes:  # else there is nothing to read
            self.wait_layer(max(plane.layer for plane in found[0].planes))

    def wait(self) -> None:
        """Blocks until all layers are there, also on a GPU; errors as `wait_layer`."""
        self._core.wait(_ALL_LAYERS, self._timeout)

    @property
    def finished(self) -> bool:
        """Whether all layers are there; never blocks."""
        return self._core.finished


class Inserted(NamedTuple):
    """What became of the inserted pages."""

    #: Tokens of the hit's path now, whole pages.
    length: int
    #: The tree's device slots for the inserted pages, int32: the page table must name these from now on.
    slots: torch.Tensor
    #: Given slots that the tree did not adopt, int32. Re-point the page table first, then free them.
    duplicates: torch.Tensor
    #: By part, for each slot that was given: the cache's slot for that page or checkpoint, int32; -1: it has
    #: none. Equal to the given one: adopted. Another one: the given one is a duplicate, and still yours.
    parts: Mapping[str, torch.Tensor] = MappingProxyType({})
