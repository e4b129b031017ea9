"""Faults to plant in the CUDA sources: each must make a test of `test_emulated.py` fail."""

from __future__ import annotations

#: File, what stands there, what stands there instead.
LANE_FAULTS = [
    ("copy_index.h", "in ? from.axes[k].host : from.axes[k].device;", "from.axes[k].device;"),
    ("copy_index.h", "(first + u * LANES < units) memory.store", "(first + u * LANES <= units) memory.store"),
    ("copy_index.h", "launch.pages[rest - plane * shape.pages.divisor]", "launch.pages[0]"),
    ("copy_index.h", "(uint64_t)(page.src * shape.src_page)", "(uint32_t)(page.src * shape.src_page)"),
    (
        "copy_index.h",
        "divider(in_rows(shape.units) ? (shape.units + TILE - 1) / TILE",
        "divider(in_rows(shape.units) ? shape.units / TILE",
    ),
    ("copy_index.h", "tile += warps", "tile += threads"),
    ("copy_index.h", "(power + divisor - 1) / divisor", "power / divisor"),
    ("copy_index.h", "first += threads * DEPTH", "first += threads"),
    ("copy_index.h", "(uint64_t)first * sizeof(Word)", "(uint64_t)first * 16"),
]

ORDER_FAULTS = [
    ("hicache_cuda.cu", "return (int32_t)cudaStreamWaitEvent(way.stream, way.fence, 0);", "return 0;"),
    (
        "hicache_cuda.cu",
        "HICACHE_TRY(cudaEventRecord(way.fence, (cudaStream_t)stream));\n    return",
        "return",
    ),
    ("hicache_cuda.cu", "return (int32_t)cudaStreamWaitEvent((cudaStream_t)stream, event, 0);", "return 0;"),
    (
        "hicache_cuda.cu",
        "(*event, engine->ways[HICACHE_CUDA_IN].stream)",
        "(*event, engine->ways[HICACHE_CUDA_OUT].stream)",
    ),
    ("routes.cuh", "HICACHE_TRY(cudaStreamWaitEvent(way.side, way.staging.begun, 0));", ""),
    ("routes.cuh", "HICACHE_TRY(cudaStreamWaitEvent(first, way.staging.emptied[h], 0));", ""),
    ("routes.cuh", "HICACHE_TRY(cudaStreamWaitEvent(second, way.staging.filled[h], 0));", ""),
    ("routes.cuh", "in && h < 2; ++h", "false && h < 2; ++h"),
    ("routes.cuh", "batch.count > 0 && !begins &&", "batch.count > 0 &&"),
    ("routes.cuh", "(uint64_t)batch.from[last] + batch.bytes[last] == from;", "true;"),
    ("routes.cuh", "region_of(engine, copy.planes[0].host)->alias, false", "0, false"),
    ("check.cuh", "hull.payload == hull.bytes", "hull.payload >= hull.bytes / 2"),
    ("check.cuh", "if (!registered(engine, copy)) return HICACHE_CUDA_ARGUMENT;", ""),
    ("hicache_cuda.cu", "unpin(undo, region, pinned);", "(void)undo;"),
]
