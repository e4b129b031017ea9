// Whether a copy can be meant, and which way suits it. Pure arithmetic over the caller's structs.
//
// On error: HICACHE_CUDA_ARGUMENT, before anything was enqueued.
#pragma once

#include "copy_index.h"
#include "engine.cuh"

namespace hicache {

inline uint32_t least(uint64_t a, uint64_t b) { return (uint32_t)(a < b ? a : b); }
inline uint64_t least64(uint64_t a, uint64_t b) { return a < b ? a : b; }

// The next index in row-major order; false after the last.
inline bool next(uint32_t i[AXES], const hicache_strided &shape) {
    for (int k = (int)AXES - 1; k >= 0; --k) {
        if (++i[k] < shape.axes[k].extent) return true;
        i[k] = 0;
    }
    return false;
}

// The host bytes of all planes of slot 0: from `low`, `bytes` long, of which `payload` are copied.
struct Hull {
    uint64_t low, bytes, payload;
};

inline Hull hull_of(const hicache_copy &copy) {
    uint64_t low = UINT64_MAX, high = 0, payload = copy.shape.run * copy.plane_count;
    for (uint32_t p = 0; p < copy.plane_count; ++p) {
        if (copy.planes[p].host < low) low = copy.planes[p].host;
        if (copy.planes[p].host > high) high = copy.planes[p].host;
    }
    high += copy.shape.run;
    for (const hicache_axis &axis : copy.shape.axes) {
        const int64_t reach = (int64_t)(axis.extent - 1) * axis.host;
        if (reach < 0) low += (uint64_t)reach;
        else high += (uint64_t)reach;
        payload *= axis.extent;
    }
    return Hull{low, high - low, payload};
}

// From one page to the next in staging: as on the host where pages are dense there (so that neighbours travel
// as one run), else the hull, rounded up so that vectors stay aligned.
inline uint64_t stage_stride(const hicache_copy &copy, const Hull &hull) {
    if ((int64_t)hull.bytes == copy.shape.host_page) return hull.bytes;
    return (hull.bytes + 255) & ~(uint64_t)255;
}

// Whole hulls are written outwards, so there must be no gap; inwards up to a quarter may be carried along.
inline bool stageable(const hicache_cuda_engine &engine, uint32_t direction, const hicache_copy &copy) {
    const Hull hull = hull_of(copy);
    const bool one_slot = copy.shape.host_page > 0 && hull.bytes <= (uint64_t)copy.shape.host_page;
    const bool fits = stage_stride(copy, hull) <= engine.ways[direction].staging.half;
    const bool dense = direction == HICACHE_CUDA_OUT ? hull.payload == hull.bytes : hull.payload >= hull.bytes / 4 * 3;
    return one_slot && fits && dense;
}

inline uint32_t choose(const hicache_cuda_engine &engine, uint32_t direction, const hicache_copy &copy) {
    if (copy.route != HICACHE_CUDA_AUTO) return copy.route;
    const uint64_t threshold = engine.settings.engine_run[direction];
    if (copy.shape.run >= threshold) return HICACHE_CUDA_ENGINE;
    const bool staged = stageable(engine, direction, copy) && hull_of(copy).bytes >= threshold;
    return staged ? HICACHE_CUDA_STAGED : HICACHE_CUDA_KERNEL;
}

inline bool divides(uint32_t width, const hicache_copy &copy) {
    uint64_t all = copy.shape.run | (uint64_t)copy.shape.device_page | (uint64_t)copy.shape.host_page;
    for (const hicache_axis &axis : copy.shape.axes)
        if (axis.extent > 1) all |= (uint64_t)axis.device | (uint64_t)axis.host;
    for (uint32_t p = 0; p < copy.plane_count; ++p) all |= copy.planes[p].device | copy.planes[p].host;
    return (all & (width - 1)) == 0;
}

// Whether all host bytes of all pages are in the one registered region that the planes are in.
inline bool registered(const hicache_cuda_engine &engine, const hicache_copy &copy) {
    const Hull hull = hull_of(copy);
    const Region *region = region_of(engine, hull.low);
    if (region == nullptr || copy.shape.host_page < 0) return false;
    uint32_t last = 0;
    for (uint32_t j = 0; j < copy.page_count; ++j)
        if (copy.pages[j].host > last) last = copy.pages[j].host;
    const uint64_t room = region->bytes - (hull.low - (uint64_t)region->base);
    if (hull.bytes > room) return false;
    return last == 0 || (room - hull.bytes) / last >= (uint64_t)copy.shape.host_page;
}

inline int32_t check(const hicache_cuda_engine &engine, uint32_t direction, const hicache_copy &copy) {
    const hicache_strided &shape = copy.shape;
    const bool width = shape.width == 16 || shape.width == 8 || shape.width == 4 || shape.width == 1;
    if (direction > 1 || copy.route > HICACHE_CUDA_STAGED || !width || shape.run == 0) return HICACHE_CUDA_ARGUMENT;
    if (copy.plane_count == 0 || copy.planes == nullptr || copy.pages == nullptr) return HICACHE_CUDA_ARGUMENT;
    uint64_t units = shape.run / shape.width;
    for (const hicache_axis &axis : shape.axes) {
        if (axis.extent == 0 || units >= MOST_STEPS) return HICACHE_CUDA_ARGUMENT;
        units *= axis.extent;
    }
    if (units >= MOST_STEPS || !divides(shape.width, copy)) return HICACHE_CUDA_ARGUMENT;
    if (!registered(engine, copy)) return HICACHE_CUDA_ARGUMENT;
    if (copy.route == HICACHE_CUDA_STAGED && !stageable(engine, direction, copy)) return HICACHE_CUDA_ARGUMENT;
    return 0;
}

} // namespace hicache
