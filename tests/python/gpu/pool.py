"""A pool on the device and its host slab in any of the five layouts, as torch sees both.

The host's tensor has the shape that the layout names; permuted to (slots, layers, planes, tokens, groups,
heads of a group, bytes) it is compared with the device's. Strides for the copies are torch's own.
"""

from __future__ import annotations

import functools
import mmap
from dataclasses import dataclass
from typing import Any

import torch
from device import DEVICE, EMULATED

#: page_unified with one head group, and with eight where heads allow it.
LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified", "page_unified/8")
BLANK = 0xDD


@dataclass(frozen=True)
class Geometry:
    """`planes`: 2 for K and V, 1 for a latent. `head`: bytes of one head."""

    name: str
    layers: int
    planes: int
    page: int
    heads: int
    head: int

    @property
    def row(self) -> int:
        return self.heads * self.head

    @property
    def page_bytes(self) -> int:
        return self.layers * self.planes * self.page * self.row


MHA = Geometry("MHA 60x8x128 bf16", 60, 2, 64, 8, 256)
MLA = Geometry("MLA 61x576 bf16", 61, 1, 64, 1, 1152)
SMALL = (
    Geometry("24 bytes a page", 1, 1, 1, 1, 24),
    Geometry("odd everything", 3, 2, 5, 3, 33),
    Geometry("one head, one token", 2, 2, 1, 1, 128),
    Geometry("66 bytes", 4, 2, 3, 8, 66),
    Geometry("rows of 1 KiB", 3, 2, 16, 8, 128),
)

#: An emulation runs every thread of a kernel after the other.
EMULATED_TOO_LARGE = (MHA, MLA) if EMULATED else ()


class Pool:
    """Device tensors, one per layer and plane, and a slab of host memory."""

    def __init__(self, geometry: Geometry, layout: str, device_slots: int, host_slots: int) -> None:
        g = self.geometry = geometry
        self.layout = layout
        self._planes: dict[range, list[list[tuple[int, int]]]] = {}
        self.groups = 8 if layout == "page_unified/8" and g.heads % 8 == 0 else 1
        rows = (device_slots * g.page, g.heads, g.head)
        self.device = [
            torch.full(rows, BLANK, dtype=torch.uint8, device=DEVICE) for _ in range(g.layers * g.planes)
        ]
        unified = layout.startswith("page_unified")
        self.page_stride = -(-g.page_bytes // 32) * 32 if unified else g.page_bytes // g.planes
        self.halves = 1 if unified else g.planes
        self.bytes = -(-self.page_stride * self.halves * host_slots // 4096) * 4096
        self._map = mmap.mmap(-1, self.bytes)
        self._map.madvise(mmap.MADV_HUGEPAGE)
        self.slab = torch.frombuffer(self._map, dtype=torch.uint8)
        self.slab.fill_(BLANK)
        self.host = self._view(host_slots)

    def _view(self, slots: int) -> torch.Tensor:
        """(N, L, Q, P, G, h, D) on the slab, by the layout's shape."""
        g, n = self.geometry, slots
        per = g.heads // self.groups
        if self.layout.startswith("page_unified"):
            # (N, G, L, Q, P, h, D), each page padded
            pages = self.slab[: n * self.page_stride].view(n, self.page_stride)[:, : g.page_bytes]
            sizes = (self.groups, g.layers, g.planes, g.page, per, g.head)
            return pages.unflatten(1, sizes).permute(0, 2, 3, 4, 1, 5, 6)
        shapes = {
            "layer_first": ((g.planes, g.layers, n, g.page, g.heads, g.head), (2, 1, 0, 3, 4, 5)),
            "page_first": ((g.planes, n, g.page, g.layers, g.heads, g.head), (1, 3, 0, 2, 4, 5)),
            "page_first_direct": ((g.planes, n, g.layers, g.page, g.heads, g.head), (1, 2, 0, 3, 4, 5)),
            "page_head": ((g.planes, n, g.heads, g.page, g.layers, g.head), (1, 4, 0, 3, 2, 5)),
        }
        shape, order = shapes[self.layout]
        tensor = self.slab[: n * g.page_bytes].view(shape).permute(order)
        return tensor.unflatten(4, (self.groups, per))

    def device_pages(self) -> torch.Tensor:
        """(slots, L, Q, P, G, h, D), on the CPU."""
        g = self.geometry
        planes = torch.stack([plane.unflatten(0, (-1, g.page)) for plane in self.device], dim=1).cpu()
        return planes.unflatten(1, (g.layers, g.planes)).unflatten(4, (self.groups, -1))

    def randomise(self, seed: int) -> None:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        for plane in self.device:
            plane.random_(0, 256, generator=generator)

    def forget(self) -> None:
        for plane in self.device:
            plane.fill_(BLANK)

    def register(self, gpu: Any, piece: int = 0) -> None:
        """Pins the slab in pieces of so many bytes (a multiple of 4096); 0 for one."""
        piece = piece or self.bytes
        gpu.register(
            self.slab.data_ptr(), [min(piece, self.bytes - at) for at in range(0, self.bytes, piece)]
        )

    def copy(
        self, gpu: Any, way: str, pages: list[tuple[int, int]], by: str, layers: range | None = None
    ) -> None:
        """Enqueues pages as (device slot, host slot). Where K and V are apart on the host: two copies."""
        for planes in self.planes(layers or range(self.geometry.layers)):
            gpu.copy(way, self.page_steps, self.axes, self.geometry.head, planes, pages, by)

    def planes(self, layers: range) -> list[list[tuple[int, int]]]:
        """(device, host) addresses of slot 0 of each plane, by copy."""
        if layers not in self._planes:
            self._planes[layers] = self._addresses(layers)
        return self._planes[layers]

    def _addresses(self, layers: range) -> list[list[tuple[int, int]]]:
        count = self.geometry.planes
        together = [range(count)] if self.halves == 1 else [range(half, half + 1) for half in range(count)]
        return [
            [
                (self.device[layer * count + q].data_ptr(), self.host[0, layer, q].data_ptr())
                for layer in layers
                for q in half
            ]
            for half in together
        ]

    @functools.cached_property
    def page_steps(self) -> tuple[int, int]:
        """From one slot to the next, on the device and on the host, in bytes."""
        return self.geometry.page * self.geometry.row, self.host.stride(0)

    @functools.cached_property
    def axes(self) -> list[tuple[int, int, int]]:
        """(extent, device stride, host stride) of tokens, groups and heads."""
        g = self.geometry
        per = g.heads // self.groups
        extents = (g.page, self.groups, per)
        device = (g.row, per * g.head, g.head)
        return [(n, d, self.host.stride(axis)) for n, d, axis in zip(extents, device, (3, 4, 5), strict=True)]
