"""The stream on which the engine computes: copies come after it, and it waits for layers.

Assumes that the engine calls the verbs with the stream current on which it runs the model. Without a GPU
there is nothing to order: the CPU computes what it calls, and waits itself.
"""

from __future__ import annotations

import torch

from hicache import _hicache


class Stream:
    """Torch's current stream of one GPU, or none."""

    def __init__(self, gpu: int | None) -> None:
        self._gpu = gpu

    def follow(self, core: _hicache.Cache) -> None:
        """Copies that the next verb submits come after what the stream has now."""
        if self._gpu is not None:
            core.follow(self._current())

    def order(self, load: _hicache.Load, layer: int) -> bool:
        """Lets the stream wait for a layer; False where there is no stream, and the CPU must wait."""
        if self._gpu is None:
            return False
        load.order(layer, self._current())
        return True

    def _current(self) -> int:
        return int(torch.cuda.current_stream(self._gpu).cuda_stream)
