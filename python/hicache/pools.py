"""Pools: the engine's KV tensors, declared; and without tensors, for those who only decide.

A pool's tensors have one row per token (the page in device slot `s` is rows `s * page_size` to
`(s + 1) * page_size`), or one row per page: indexers, recurrent states. What a pool is (`Pool`) does not
depend on its tensors: `declare` needs none, and `HiCache.attach` brings them, or others later.

On error: `ArgumentError` names the pool and the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hicache.config import text, whole_number
from hicache.errors import ArgumentError
from hicache.tensors import planes

__all__ = [
    "Full",
    "Plane",
    "Pool",
    "State",
    "Window",
    "declare",
    "hybrid",
    "latent",
    "mha",
    "numbered",
    "pages",
    "states",
]

#: The core's rows, heads and windows are 32-bit numbers.
_MOST = 2**31
#: A GPU has an event for each.
_MOST_LAYER = 2**16 - 1


@dataclass(frozen=True)
class Plane:
    """What one tensor holds: the layer that reads it, which of the layer's tensors it is (K is 0, V is 1),
    and one row of it."""

    layer: int
    role: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True)
class Pool:
    """A pool: name, planes in order of layer and role, and rows (tokens, or pages where `of_pages`).

    `heads`: KV heads of every row, 1 where rows are not split. `follows`: the pool whose slots it uses, None
    for the cache's first one, its own name for its own. `window`: tokens that a hit needs before its end (a
    sliding window), where rows are pages 1 for the last one only (a recurrent state), None for all.
    `tensors`: in order of the planes; None for a pool that is only declared.
    """

    name: str
    planes: tuple[Plane, ...]
    rows: int
    heads: int = 1
    of_pages: bool = False
    follows: str | None = None
    window: int | None = None
    tensors: tuple[torch.Tensor, ...] | None = None

    def page_bytes(self, page_size: int) -> int:
        """Bytes of one page over all planes."""
        return sum(plane.row_bytes for plane in self.planes) * (1 if self.of_pages else page_size)

    def slots(self, page_size: int) -> int:
        """Pages there is room for."""
        return self.rows if self.of_pages else self.rows // page_size

    def declared(self) -> Pool:
        """The same without its tensors."""
        return replace(self, tensors=None)

    def declaration(self, head_groups: int = 1) -> tuple[Any, ...]:
        """As the binding takes it. A pool without KV heads (a latent, a state) has one group."""
        planes = [(plane.layer, plane.role, plane.row_bytes) for plane in self.planes]
        groups = 1 if self.heads == 1 else head_groups
        last = self.of_pages and self.window == 1
        needs = 0 if self.window is None else 1 if last else 1 + self.window
        return self.name, planes, (self.heads, groups), self.of_pages, self.follows or "", needs

    def memory(self) -> list[tuple[int, int]]:
        """(address, bytes) of every tensor; `ArgumentError` for a pool that is only declared."""
        if self.tensors is None:
            raise ArgumentError(f"pools: {self.name} has no tensors: attach some, or declare all without")
        return [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in self.tensors]

    def description(self) -> str:
        """dtypes and shapes of a row, for the identity: equal sizes don't make equal contents."""
        return " ".join(f"{plane.dtype}{plane.shape}" for plane in self.planes)


def mha(
    name: str, k_buffers: Any, v_buffers: Any, *, follows: str | None = None, window: int | None = None
) -> Pool:
    """K and V of every layer (MHA, GQA, MQA): sequences of L tensors, or tensors with L first.

    Each tensor: (rows, kv_heads, head_dim) or (rows, row_elements), any dtype, contiguous; all on the CPU or
    on one GPU. Heads of V may have another size than those of K. `window`: a sliding window in tokens; such a
    pool has slots of its own unless it `follows` another one.
    """
    k, v = _planes(name, "k_buffers", k_buffers), _planes(name, "v_buffers", v_buffers)
    if len(k) != len(v):
        raise ArgumentError(f"{name}.v_buffers: need {len(k)} layers like k_buffers, got {len(v)}")
    if k[0].shape[0] != v[0].shape[0]:
        raise ArgumentError(f"{name}.v_buffers: need {k[0].shape[0]} rows like K, got {v[0].shape[0]}")
    return _pool(name, [list(pair) for pair in zip(k, v, strict=True)], follows=follows, window=window)


def latent(name: str, buffers: Any, *, follows: str | None = None, window: int | None = None) -> Pool:
    """One tensor per layer (MLA): a sequence of L tensors (rows, ...), or one tensor with L first. `window`
    as for `mha`: what follows a window has the same."""
    layers = [[tensor] for tensor in _planes(name, "buffers", buffers)]
    return replace(_pool(name, layers, follows=follows, window=window), heads=1)


def pages(name: str, buffers: Any, *, follows: str | None = None, window: int | None = None) -> Pool:
    """One tensor per layer with one row per *page* (indexers, compressed pages): (pages, ...). `window`, in
    tokens, as for `mha`: what follows a window has the same; 1 is the last page only, as of states."""
    layers = [[tensor] for tensor in _planes(name, "buffers", buffers)]
    return replace(_pool(name, layers, follows=follows, window=window), heads=1, of_pages=True)


def states(name: str, layers: Sequence[Sequence[torch.Tensor]]) -> Pool:
    """Recurrent states: per layer its tensors (a temporal state, convolution states), each (slots, ...) with
    one row per checkpoint. They have slots of their own, and a hit needs the one at its end."""
    checked = [_planes(name, f"layers[{at}]", tensors, alike=False) for at, tensors in enumerate(layers)]
    if not checked:
        raise ArgumentError(f"{name}.layers: need at least one layer")
    return replace(_pool(name, checked, window=1), heads=1, of_pages=True)


@dataclass(frozen=True)
class Full:
    """A layer of full attention: K and V, or one latent."""

    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Window:
    """A layer of sliding-window attention: K and V, and the window in tokens."""

    tensors: tuple[torch.Tensor, ...]
    tokens: int


@dataclass(frozen=True)
class State:
    """A recurrent layer: its states, one row per checkpoint."""

    tensors: tuple[torch.Tensor, ...]


def hybrid(name: str, layers: Sequence[Full | Window | State]) -> list[Pool]:
    """The pools of a model whose layers are of several kinds, in the model's order: layers of full attention
    are pool `name`, those of each window `name.window<tokens>`, recurrent ones `name.state`. Planes keep the
    model's layer numbers, so that loads are waited for by them."""
    kinds: dict[tuple[str, int | None], list[tuple[int, tuple[torch.Tensor, ...]]]] = {}
    for number, layer in enumerate(layers):
        if not isinstance(layer, (Full, Window, State)):
            raise ArgumentError(f"{text('name', name)}.layers[{number}]: need Full, Window or State")
        tokens = layer.tokens if isinstance(layer, Window) else None
        tensors = _planes(name, f"layers[{number}]", layer.tensors, alike=False)
        kinds.setdefault((type(layer).__name__, tokens), []).append((number, tuple(tensors)))
    if ("Full", None) not in kinds:
        raise ArgumentError(f"{name}.layers: need at least one of full attention")
    first = kinds.pop(("Full", None))
    return [_of_kind(name, "Full", None, first)] + [
        _of_kind(f"{name}.{kind.lower()}{tokens or ''}", kind, tokens, found)
        for (kind, tokens), found in kinds.items()
    ]


def _of_kind(
    name: str, kind: str, tokens: int | None, layers: list[tuple[int, tuple[torch.Tensor, ...]]]
) -> Pool:
    rows = {int(tensor.shape[0]) for _, tensors in layers for tensor in tensors}
    if len(rows) > 1:
        raise ArgumentError(f"{name}: all layers need the same number of rows, got {sorted(rows)}")
    pool = _pool(name, [list(tensors) for _, tensors in layers], window=1 if kind == "State" else tokens)
    numbers = [number for number, tensors in layers for _ in tensors]
    planes = tuple(replace(plane, layer=n) for plane, n in zip(pool.planes, numbers, strict=True))
    pool = replace(pool, planes=planes)
    return replace(pool, heads=1, of_pages=True) if kind == "State" else pool


def declare(
    name: str,
    layers: int,
    rows: int,
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    *,
    of_pages: bool = False,
    follows: str | None = None,
    window: int | None = None,
) -> Pool:
    """A pool without tensors. `shapes`: a row of each of a layer's tensors, as (kv_heads, head_dim) or
    (elements,): two for K and V, one for a latent, none for a pool without bytes."""
    layers = whole_number(f"{text('name', name)}.layers", layers, least=1, most=_MOST)
    rows = whole_number(f"{name}.rows", rows, least=0)
    if not isinstance(dtype, torch.dtype):
        raise ArgumentError(f"{name}.dtype: need a torch dtype, got {dtype!r}")
    sizes = [tuple(whole_number(f"{name}.shapes", size, least=0) for size in shape) for shape in shapes]
    found = tuple(
        Plane(layer, role, shape, dtype) for layer in range(layers) for role, shape in enumerate(sizes)
    )
    pool = Pool(name, found, rows, heads=1 if of_pages else _heads(found), of_pages=of_pages)
    return _belonging(pool, follows, window)


def numbered(pool: Pool, first: int) -> Pool:
    """The same pool with layers numbered from `first` on. A load brings layers in the order of their numbers
    over all pools, and `wait_layer` counts in them: what is read first has the smaller ones (a draft model's
    layers, where it runs before its target). Part of what stored pages are known by."""
    first = whole_number("first", first, least=0, most=_MOST_LAYER)
    least = min((plane.layer for plane in pool.planes), default=0)
    planes = (replace(plane, layer=plane.layer - least + first) for plane in pool.planes)
    return replace(pool, planes=tuple(planes))


def gpu(pools: Sequence[Pool]) -> int | None:
    """The number of the GPU that all tensors are on; None: the CPU reaches them, or there are none yet."""
    devices = {tensor.device for pool in pools for tensor in pool.tensors or ()}
    if len(devices) > 1:
        raise ArgumentError(f"pools: all need one device, got {', '.join(sorted(map(str, devices)))}")
    found = next(iter(devices), torch.device("cpu"))
    return None if found.type == "cpu" else int(found.index or 0)


def memory(pools: Sequence[Pool]) -> list[list[tuple[int, int]]] | None:
    """The tensors of all pools, as the binding takes them; None if all are only declared."""
    if all(pool.tensors is None for pool in pools):
        return None
    return [pool.memory() for pool in pools]


def _pool(
    name: str, layers: list[list[torch.Tensor]], *, follows: str | None = None, window: int | None = None
) -> Pool:
    tensors = tuple(tensor for layer in layers for tensor in layer)
    found = tuple(
        Plane(layer, role, tuple(tensor.shape[1:]), tensor.dtype)
        for layer, row in enumerate(layers)
        for role, tensor in enumerate(row)
    )
    pool = Pool(name, found, int(tensors[0].shape[0]), _heads(found), tensors=tensors)
    return _belonging(pool, follows, window)


def _belonging(pool: Pool, follows: str | None, window: int | None) -> Pool:
    if follows is not None:
        follows = text(f"{pool.name}.follows", follows)
    if window is not None:
        window = whole_number(f"{pool.name}.window", window, least=1, most=_MOST)
        follows = pool.name if follows is None else follows
    return replace(pool, follows=follows, window=window)


def _heads(planes: Sequence[Plane]) -> int:
    """KV heads where all rows are (heads, size) with the same number of them; else rows stay whole."""
    heads = {plane.shape[0] if len(plane.shape) == 2 else 1 for plane in planes}
    return heads.pop() or 1 if len(heads) == 1 else 1


def _planes(pool: str, argument: str, buffers: Any, *, alike: bool = True) -> list[torch.Tensor]:
    name = f"{text('name', pool)}.{argument}"
    try:
        iter(buffers)
    except TypeError:
        kind = type(buffers).__name__
        raise ArgumentError(f"{name}: need tensors, one a layer, got {kind}") from None
    return planes(name, buffers, alike=alike)
