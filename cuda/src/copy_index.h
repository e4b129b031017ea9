// Which bytes a thread of the copy kernel moves: pure index arithmetic, the same code on device and CPU.
//
// A launch is (planes, pages, axes, steps in a run), flattened to one number below 2^31; a thread takes every
// so-many-th. No shuffles, no barriers, no shared memory: threads know nothing of each other, so running them
// one after the other on a CPU proves what they do together. Refuses to know streams and which side is the host.
// On error: none here; `hicache_strided` was checked before.
#pragma once

#include "hicache_cuda.h"

#ifdef __CUDACC__
#define HICACHE_HD __host__ __device__ __forceinline__
#else
#define HICACHE_HD inline
#endif
#ifdef __CUDA_ARCH__
#define HICACHE_UNROLL _Pragma("unroll")
#else
#define HICACHE_UNROLL
#endif

namespace hicache {

constexpr uint32_t AXES = HICACHE_CUDA_AXES;
constexpr uint32_t LANES = 32;
constexpr uint32_t DEPTH = 4;             // loads in flight per thread before the first store
constexpr uint32_t TILE = LANES * DEPTH;  // units that a warp moves at once in row mode
constexpr uint32_t PLANES = 128;          // of one launch
constexpr uint32_t FEW = 216;             // pages of a launch with 4 KB of parameters
constexpr uint32_t MANY = 3584;           // with 31 KB: the hardware's limit is 32,764 B
constexpr uint64_t MOST_STEPS = 1u << 31;

// Division of n < 2^31 by a constant: with l = ceil(log2 d) and m = ceil(2^(31+l) / d), n / d = n * m >> (31+l),
// since m * d - 2^(31+l) < d <= 2^l (Granlund and Montgomery, "Division by Invariant Integers", 1994).
struct Divider {
    uint32_t magic, shift, divisor;

    HICACHE_HD uint32_t quotient(uint32_t n) const { return (uint32_t)(((uint64_t)n * magic) >> shift); }
};

HICACHE_HD Divider divider(uint32_t divisor) {
    uint32_t log = 0;
    while (((uint64_t)1 << log) < divisor) ++log;
    uint64_t power = (uint64_t)1 << (31 + log);
    return Divider{(uint32_t)((power + divisor - 1) / divisor), 31 + log, divisor};
}

struct Ends {
    uint64_t src, dst; // addresses
};

struct Slots {
    uint32_t src, dst;
};

struct Shape {
    int64_t src_page, dst_page;
    int64_t src_axis[AXES], dst_axis[AXES];
    Divider axis[AXES]; // extents
    Divider pages;      // pages of this launch
    Divider steps;      // of a run: tiles in row mode, units in any mode
    uint32_t units;     // of a run, each as wide as the word
    uint32_t total;     // steps * extents * pages * planes, < 2^31
};

// All that a launch needs travels in its parameters: no upload, nothing to keep alive.
template <uint32_t PAGES> struct Launch {
    Shape shape;
    Ends planes[PLANES];
    Slots pages[PAGES];
};

struct Place {
    uint64_t src, dst; // addresses of a run
    uint32_t step;     // in it
};

// The n-th step: step in the run fastest, then the axes from the last to the first, pages, planes.
template <uint32_t PAGES> HICACHE_HD Place place(const Launch<PAGES> &launch, uint32_t n) {
    const Shape &shape = launch.shape;
    uint32_t rest = shape.steps.quotient(n);
    Place at{0, 0, n - rest * shape.steps.divisor};
HICACHE_UNROLL
    for (int k = (int)AXES - 1; k >= 0; --k) {
        if (shape.axis[k].divisor == 1) continue;
        uint32_t outer = shape.axis[k].quotient(rest);
        int64_t i = rest - outer * shape.axis[k].divisor;
        at.src += (uint64_t)(i * shape.src_axis[k]);
        at.dst += (uint64_t)(i * shape.dst_axis[k]);
        rest = outer;
    }
    uint32_t plane = shape.pages.quotient(rest);
    Slots page = launch.pages[rest - plane * shape.pages.divisor];
    at.src += launch.planes[plane].src + (uint64_t)(page.src * shape.src_page);
    at.dst += launch.planes[plane].dst + (uint64_t)(page.dst * shape.dst_page);
    return at;
}

// Row mode, for runs of at least half a tile: a warp decodes once per tile, then lanes are neighbours.
template <class Word, uint32_t PAGES, class Memory>
HICACHE_HD void copy_rows(const Launch<PAGES> &launch, uint32_t thread, uint32_t threads, Memory &memory) {
    const uint32_t lane = thread % LANES, warps = threads / LANES, units = launch.shape.units;
    for (uint32_t tile = thread / LANES; tile < launch.shape.total; tile += warps) {
        const Place at = place(launch, tile);
        const uint32_t first = at.step * TILE + lane;
        const uint64_t offset = (uint64_t)first * sizeof(Word);
        Word words[DEPTH];
HICACHE_UNROLL
        for (uint32_t u = 0; u < DEPTH; ++u)
            if (first + u * LANES < units) memory.load(words[u], at.src + offset + u * LANES * sizeof(Word));
HICACHE_UNROLL
        for (uint32_t u = 0; u < DEPTH; ++u)
            if (first + u * LANES < units) memory.store(at.dst + offset + u * LANES * sizeof(Word), words[u]);
    }
}

// Any mode, for short runs: every lane decodes every unit.
template <class Word, uint32_t PAGES, class Memory>
HICACHE_HD void copy_any(const Launch<PAGES> &launch, uint32_t thread, uint32_t threads, Memory &memory) {
    const uint32_t total = launch.shape.total;
    for (uint32_t first = thread; first < total; first += threads * DEPTH) {
        Word words[DEPTH];
        uint64_t to[DEPTH];
HICACHE_UNROLL
        for (uint32_t u = 0; u < DEPTH; ++u) {
            const uint32_t n = first + u * threads;
            if (n >= total) continue;
            const Place at = place(launch, n);
            memory.load(words[u], at.src + (uint64_t)at.step * sizeof(Word));
            to[u] = at.dst + (uint64_t)at.step * sizeof(Word);
        }
HICACHE_UNROLL
        for (uint32_t u = 0; u < DEPTH; ++u)
            if (first + u * threads < total) memory.store(to[u], words[u]);
    }
}

// Words of each width; `width` of the descriptor is their size.
struct alignas(16) Word16 {
    uint32_t part[4];
};
struct alignas(8) Word8 {
    uint32_t part[2];
};
struct Word4 {
    uint32_t part;
};
struct Word1 {
    uint8_t part;
};

HICACHE_HD bool in_rows(uint64_t units) { return units * 2 >= TILE; }

// Steps of one page of one plane.
HICACHE_HD uint64_t steps_per_page(const hicache_strided &shape) {
    const uint64_t units = shape.run / shape.width;
    uint64_t steps = in_rows(units) ? (units + TILE - 1) / TILE : units;
    for (uint32_t k = 0; k < AXES; ++k) steps *= shape.axes[k].extent;
    return steps;
}

// Resolves the direction, and prepares the divisions. `pages * planes * steps_per_page < 2^31`.
HICACHE_HD Shape resolve(const hicache_strided &from, bool in, uint32_t pages, uint32_t planes) {
    Shape shape;
    shape.src_page = in ? from.host_page : from.device_page;
    shape.dst_page = in ? from.device_page : from.host_page;
    for (uint32_t k = 0; k < AXES; ++k) {
        shape.src_axis[k] = in ? from.axes[k].host : from.axes[k].device;
        shape.dst_axis[k] = in ? from.axes[k].device : from.axes[k].host;
        shape.axis[k] = divider(from.axes[k].extent);
    }
    shape.units = (uint32_t)(from.run / from.width);
    shape.steps = divider(in_rows(shape.units) ? (shape.units + TILE - 1) / TILE : shape.units);
    shape.pages = divider(pages);
    shape.total = (uint32_t)(steps_per_page(from) * pages * planes);
    return shape;
}

} // namespace hicache
