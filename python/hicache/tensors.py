"""From what callers have (tensors, arrays, lists) to buffers that the binding reads in place, and back.

Assumes CPU memory for tokens and slots. Refuses to know what they mean.
On error: `ArgumentError` or `TypeError` whose text begins with the argument's name.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import torch

from hicache import _hicache
from hicache.errors import ArgumentError

#: Tokens or slots: one dimension, int32 or int64, contiguous, on the CPU; lists are copied.
#: Slots by pool, or those of the one pool that owns them.
Slots: TypeAlias = "Integers | Mapping[str, Integers]"
Integers: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | array[int] | memoryview | Sequence[int]"

#: No slots: most calls have some of these to return. One for all: nobody may resize it.
_NONE = torch.empty(0, dtype=torch.int32)


def integers(name: str, values: Integers) -> Any:
    """A buffer of the same integers; only lists and tuples are copied."""
    if isinstance(values, torch.Tensor):
        try:
            # What is dense, on the CPU and needs no gradient; looking for all that by itself costs more.
            found = values.numpy()
        except (RuntimeError, TypeError):
            pass
        else:
            if found.dtype in (np.int32, np.int64):
                return found
        if values.dtype not in (torch.int32, torch.int64):
            raise ArgumentError(f"{name}: need int32 or int64, got {values.dtype}")
        if values.device.type != "cpu":
            raise ArgumentError(f"{name}: need a tensor on the CPU, got one on {values.device}")
        _dense(name, values)
        return values.detach().numpy()
    if isinstance(values, (list, tuple)):
        try:
            return array("q", values)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(f"{name}: need integers that fit into 64 bits: {error}") from None
    return values


def _dense(name: str, tensor: torch.Tensor) -> None:
    """Refuses a tensor whose elements don't lie in memory as they are."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise ArgumentError(f"{name}: need a dense tensor, got a {kind} one")
    if tensor.is_neg() or tensor.is_conj():
        raise ArgumentError(
            f"{name}: need a tensor as it is in memory, got a lazy view: see torch.resolve_neg"
        )


def of_pool(name: str, pool: str, values: Any) -> Any:
    """What `values` has for the pool that owns the slots: a mapping by pool name, or it alone."""
    # Mapping is an abstract class: asking for it costs more than all the rest.
    if isinstance(values, (torch.Tensor, np.ndarray)) or not isinstance(values, Mapping):
        return values
    if set(values) != {pool}:
        raise ArgumentError(
            f"{name}: need slots of {pool!r}, which all pools use, got {sorted(map(str, values))}"
        )
    return values[pool]


def first(buffer: Any, count: int) -> torch.Tensor:
    """A copy of a buffer's first `count` integers, int32: the buffer is its owner's to write to."""
    if count == 0:
        return _NONE
    return torch.from_numpy(np.array(np.asarray(buffer)[:count], dtype=np.int32))


def slots(data: _hicache.Slots | bytearray) -> torch.Tensor:
    """Slots from the binding: int32, one dimension, sharing its memory."""
    if not data:
        return _NONE
    return torch.frombuffer(data, dtype=torch.int32)


def planes(name: str, tensors: Any, *, alike: bool = True) -> list[torch.Tensor]:
    """One tensor per layer, from a sequence or from one tensor whose first axis is the layer. `alike`: all of
    one dtype."""
    layers = list(cast("Sequence[torch.Tensor]", tensors))
    if not layers:
        raise ArgumentError(f"{name}: need at least one layer")
    for at, tensor in enumerate(layers):
        where = f"{name}[{at}]"
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentError(f"{where}: need a torch tensor, got {type(tensor).__name__}")
        _dense(where, tensor)
        if tensor.dim() < 2:
            raise ArgumentError(
                f"{where}: need (rows, ...), one row a token, got shape {tuple(tensor.shape)}"
            )
        if not tensor.is_contiguous():
            whole = "" if tensor._base is None else ": declare the whole of which this is a view"
            raise ArgumentError(f"{where}: need a contiguous tensor{whole}")
        check_device(where, tensor.device)
        if tensor.device != layers[0].device:
            raise ArgumentError(f"{where}: need {layers[0].device} like layer 0, got {tensor.device}")
        if alike and tensor.dtype != layers[0].dtype:
            raise ArgumentError(f"{where}: need {layers[0].dtype} like layer 0, got {tensor.dtype}")
        if tensor.shape[0] != layers[0].shape[0]:
            raise ArgumentError(
                f"{where}: need {layers[0].shape[0]} rows like layer 0, got {tensor.shape[0]}"
            )
    return layers


def check_device(where: str, device: torch.device) -> None:
    """Memory that this build can copy: the CPU's, or a GPU's where there are copies for it."""
    if device.type == "cpu":
        return
    if device.type != "cuda":
        raise ArgumentError(f"{where}: need a tensor on the CPU or a CUDA device, got one on {device}")
    status = _hicache.cuda_status()
    if status != "ok":
        raise ArgumentError(f"{where}: got a tensor on {device}, but copies for GPUs are {status}")
