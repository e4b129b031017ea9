"""The cache as the engine sees it: the verbs and what they return, in path order.

For: type checking, and for reading: this is all that an engine needs of a cache. `hicache.HiCache` is one
implementation, `uncached.Uncached` (no cache at all) the other.
Assumes: nothing.
Refuses to know: how either of them works.
On error: verbs answer with values (no room is `None`, a lost page is a shorter hit) and raise for wrong use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


class Hit(Protocol):
    """What a match found for one request; lengths are in tokens, whole pages."""

    @property
    def device_length(self) -> int:
        """Usable on the device when matched."""
        ...

    @property
    def waiting(self) -> bool:
        """True while the prefetch of this hit is undecided."""
        ...

    @property
    def storage_length(self) -> int:
        """What the prefetch of this hit brought from storage to host."""
        ...

    @property
    def length(self) -> int:
        """After `load`: what is, or will be, in the device pool. Moves along with `insert`."""
        ...

    @property
    def loaded_length(self) -> int:
        """How much of `length` the load copies from host."""
        ...

    @property
    def slots(self) -> Tensor:
        """(length / page_size,) int32 device slots of the whole path."""
        ...

    @property
    def checkpoint_length(self) -> int | None:
        """Where a checkpoint of the state would help the next request; None: nowhere."""
        ...

    def release(self, generated: int = 0) -> None:
        """Exactly once, in any state."""
        ...


class Load(Protocol):
    """One load for a batch of hits, layer by layer."""

    def wait_layer(self, layer: int) -> None:
        """Return when the pages of `layer` may be read."""
        ...


class Done(Protocol):
    """What an insert did."""

    @property
    def slots(self) -> Tensor:
        """(inserted pages,) int32: the tree's slots for them."""
        ...

    @property
    def duplicates(self) -> Tensor:
        """int32: our slots which the tree did not adopt; re-point first, then free them."""
        ...


class Cache(Protocol):
    """The verbs. Token arguments are 1-D int64 tensors; slots are 1-D int32 tensors."""

    def match_prefix(
        self, tokens: Tensor, namespace: Any = ..., *, limit: int | None = ..., at: float | None = ...
    ) -> Hit: ...

    def prefetch(self, hit: Any) -> bool: ...

    def poll(self) -> Any: ...

    def decide(self, hit: Any, others: int) -> str:
        """What a request that could run now does: "compute", "wait" or "skip"."""
        ...

    def stepped(self, tokens: int, seconds: float, *, ahead: int) -> None:
        """A step has ended: prompt tokens that it computed, how long it took, and prompt tokens of those that
        could run and wait for their turn."""
        ...

    def load(self, hits: list[Any]) -> Load: ...

    def allocate(self, pages: int) -> Tensor | None: ...

    def insert(self, hit: Any, tokens: Tensor, slots: Tensor) -> Done: ...

    def free(self, slots: Tensor) -> None: ...


class HybridDone(Done, Protocol):
    """What an insert of a hybrid's pages did."""

    @property
    def parts(self) -> Mapping[str, Tensor]:
        """For each slot that was given, the tree's slot for the same page or checkpoint; -1 where it has
        none. Equal to ours: adopted. Another one: ours is a duplicate, and still ours."""
        ...


@runtime_checkable
class HybridCache(Cache, Protocol):
    """The verbs for models with other pools than "kv": "window" (a slot a page) and "state" (a slot a state).

    A hit then has `parts`, after `load`: "window", (length / page_size,) int32, -1 for holes, whole from the
    first page that the token at `length` sees; "state", (1,) int32, the checkpoint at exactly `length`. Both
    are pinned as long as the hit's place is, and read only.
    """

    def allocate_part(self, part: str, count: int) -> Tensor | None:
        """`count` slots of a pool, or None."""
        ...

    def insert_parts(
        self, hit: Any, tokens: Tensor, slots: Tensor, parts: Mapping[str, Tensor]
    ) -> HybridDone:
        """`insert`, with the window slots of the same pages (-1 for what has left the window already) and
        the checkpoint at the end of the last whole page of `tokens`."""
        ...

    def free_part(self, part: str, slots: Tensor) -> None:
        """Takes slots of a pool back, also none at all."""
        ...


@runtime_checkable
class UnifiedCache(HybridCache, Protocol):
    """The verbs where all pools are one buffer."""

    def frames(self, part: str | None = None) -> Tensor:
        """(slots + 2,) int32 frames by slot of "kv" (None) or of a part; right until the next verb."""
        ...
