// How one copy is carried out: by a kernel, by the copy engine, or by both through staging.
//
// Assumes a checked copy (`check.cuh`) and that the engine's device is current. Enqueues only.
// On error: the CUDA error; what was enqueued before it still runs.
#pragma once

#include "check.cuh"
#include "copy_kernels.cuh"
#include "engine.cuh"

namespace hicache {

// ---- A kernel --------------------------------------------------------------------------------------------

// One side of a copy whose host side was moved elsewhere (staging), or left where it is.
struct Moved {
    hicache_strided shape;
    int64_t host; // added to the planes' host addresses
    bool numbered; // host slots are 0, 1, 2 ... instead of the pages' own
};

template <uint32_t PAGES>
int32_t launch_part(const hicache_copy &copy, const Moved &moved, bool in, uint32_t plane, uint32_t planes,
                    uint32_t page, uint32_t pages, uint32_t groups, cudaStream_t stream) {
    Launch<PAGES> launch;
    launch.shape = resolve(moved.shape, in, pages, planes);
    for (uint32_t p = 0; p < planes; ++p) {
        const uint64_t host = copy.planes[plane + p].host + (uint64_t)moved.host;
        const uint64_t device = copy.planes[plane + p].device;
        launch.planes[p] = in ? Ends{host, device} : Ends{device, host};
    }
    for (uint32_t j = 0; j < pages; ++j) {
        const uint32_t device = copy.pages[page + j].device;
        const uint32_t host = moved.numbered ? j : copy.pages[page + j].host;
        launch.pages[j] = in ? Slots{host, device} : Slots{device, host};
    }
    return (int32_t)launch_copy(launch, moved.shape.width, groups, stream);
}

// As few launches as parameters and 31 bits of steps allow.
inline int32_t by_kernel(const hicache_copy &copy, const Moved &moved, bool in, uint32_t page, uint32_t pages,
                         uint32_t groups, cudaStream_t stream) {
    const uint64_t steps = steps_per_page(moved.shape);
    const uint64_t fit = (MOST_STEPS - 1) / steps; // pages times planes; at least 1, checked
    for (uint32_t plane = 0; plane < copy.plane_count;) {
        const uint32_t planes = least(copy.plane_count - plane, least(PLANES, fit));
        for (uint32_t done = 0; done < pages;) {
            const uint32_t now = least(pages - done, least(MANY, fit / planes));
            HICACHE_TRY(now <= FEW ? launch_part<FEW>(copy, moved, in, plane, planes, page + done, now, groups, stream)
                                   : launch_part<MANY>(copy, moved, in, plane, planes, page + done, now, groups, stream));
            done += now;
        }
        plane += planes;
    }
    return 0;
}

// ---- The copy engine -------------------------------------------------------------------------------------

inline int32_t flush(hicache_cuda_engine &engine, cudaStream_t stream) {
    Batch &batch = engine.batch;
    const uint32_t count = batch.count;
    batch.count = 0;
    if (count == 0) return 0;
    if (engine.batches) {
        // In stream order on both sides: outwards the source is what the forward before us writes.
        cudaMemcpyAttributes attributes = {};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        size_t all = 0;
        const cudaError_t code =
            cudaMemcpyBatchAsync(batch.to, batch.from, batch.bytes, count, &attributes, &all, 1, stream);
        if (code != cudaErrorNotSupported) return (int32_t)code;
        // The driver has the call, but not for this device: one by one from now on, nothing was enqueued.
        (void)cudaGetLastError();
        engine.batches = false;
    }
    for (uint32_t c = 0; c < count; ++c)
        HICACHE_TRY(cudaMemcpyAsync(batch.to[c], batch.from[c], batch.bytes[c], cudaMemcpyDefault, stream));
    return 0;
}

// Adds one run, joined to the one before where both sides continue and no border of a registered piece is
// crossed: the driver refuses a copy that spans two registrations.
inline int32_t add(hicache_cuda_engine &engine, uint64_t to, uint64_t from, uint64_t host, uint64_t bytes,
                   cudaStream_t stream) {
    Batch &batch = engine.batch;
    const Region *region = region_of(engine, host); // checked: there is one
    while (bytes > 0) {
        const uint64_t offset = host - (uint64_t)region->base;
        const uint32_t piece = piece_of(*region, offset);
        const uint64_t now = least64(bytes, region->ends[piece] - offset);
        const bool begins = offset == start_of(*region, piece);
        const uint32_t last = batch.count - 1;
        const bool joins = batch.count > 0 && !begins && (uint64_t)batch.to[last] + batch.bytes[last] == to &&
                           (uint64_t)batch.from[last] + batch.bytes[last] == from;
        if (joins) {
            batch.bytes[last] += now;
        } else {
            if (batch.count == BATCH) HICACHE_TRY(flush(engine, stream));
            batch.to[batch.count] = (void *)to;
            batch.from[batch.count] = (const void *)from;
            batch.bytes[batch.count++] = now;
        }
        to += now, from += now, host += now, bytes -= now;
    }
    return 0;
}

inline int32_t by_engine(hicache_cuda_engine &engine, const hicache_copy &copy, bool in, cudaStream_t stream) {
    const hicache_strided &shape = copy.shape;
    for (uint32_t p = 0; p < copy.plane_count; ++p)
        for (uint32_t j = 0; j < copy.page_count; ++j) {
            uint32_t i[AXES] = {};
            for (bool more = true; more;) {
                uint64_t device = copy.planes[p].device + (uint64_t)(copy.pages[j].device * shape.device_page);
                uint64_t host = copy.planes[p].host + (uint64_t)(copy.pages[j].host * shape.host_page);
                for (uint32_t k = 0; k < AXES; ++k) {
                    device += (uint64_t)((int64_t)i[k] * shape.axes[k].device);
                    host += (uint64_t)((int64_t)i[k] * shape.axes[k].host);
                }
                HICACHE_TRY(add(engine, in ? device : host, in ? host : device, host, shape.run, stream));
                more = next(i, shape);
            }
        }
    return flush(engine, stream);
}

// ---- Staged ----------------------------------------------------------------------------------------------

// Whole pages between host and one half of staging.
inline int32_t whole_pages(hicache_cuda_engine &engine, const hicache_copy &copy, const Hull &hull, bool in,
                           uint64_t half, uint64_t stride, uint32_t page, uint32_t pages, cudaStream_t stream) {
    for (uint32_t j = 0; j < pages; ++j) {
        const uint64_t host = hull.low + (uint64_t)(copy.pages[page + j].host * copy.shape.host_page);
        const uint64_t staged = half + j * stride;
        HICACHE_TRY(add(engine, in ? staged : host, in ? host : staged, host, hull.bytes, stream));
    }
    return flush(engine, stream);
}

// Half after half: while the copy engine fills one, the kernel empties the other (outwards the other way round).
// `side` runs the kernel; the way's own stream always has the last word, so that its events cover both.
inline int32_t by_staging(hicache_cuda_engine &engine, Way &way, const hicache_copy &copy, bool in) {
    const Hull hull = hull_of(copy);
    const uint64_t stride = stage_stride(copy, hull);
    const uint32_t fit = least(UINT32_MAX, way.staging.half / stride);
    HICACHE_TRY(cudaEventRecord(way.staging.begun, way.stream));
    HICACHE_TRY(cudaStreamWaitEvent(way.side, way.staging.begun, 0));
    for (uint32_t page = 0; page < copy.page_count;) {
        const uint32_t pages = least(copy.page_count - page, fit), h = way.staging.turn;
        const uint64_t half = (uint64_t)way.staging.base + h * way.staging.half;
        Moved moved{copy.shape, (int64_t)(half - hull.low), true};
        moved.shape.host_page = (int64_t)stride;
        cudaStream_t first = in ? way.stream : way.side, second = in ? way.side : way.stream;
        const auto part = [&](bool filling) {
            return filling == in ? whole_pages(engine, copy, hull, in, half, stride, page, pages, way.stream)
                                 : by_kernel(copy, moved, in, page, pages, engine.multiprocessors, way.side);
        };
        HICACHE_TRY(cudaStreamWaitEvent(first, way.staging.emptied[h], 0));
        HICACHE_TRY(part(true));
        HICACHE_TRY(cudaEventRecord(way.staging.filled[h], first));
        HICACHE_TRY(cudaStreamWaitEvent(second, way.staging.filled[h], 0));
        HICACHE_TRY(part(false));
        HICACHE_TRY(cudaEventRecord(way.staging.emptied[h], second));
        way.staging.turn = 1 - h;
        page += pages;
    }
    // Inwards the last words were the side stream's.
    for (int h = 0; in && h < 2; ++h) HICACHE_TRY(cudaStreamWaitEvent(way.stream, way.staging.emptied[h], 0));
    return 0;
}

inline int32_t carry_out(hicache_cuda_engine &engine, uint32_t direction, const hicache_copy &copy, uint32_t route) {
    const bool in = direction == HICACHE_CUDA_IN;
    Way &way = engine.ways[direction];
    if (route == HICACHE_CUDA_ENGINE) return by_engine(engine, copy, in, way.stream);
    if (route == HICACHE_CUDA_STAGED) return by_staging(engine, way, copy, in);
    const Moved moved{copy.shape, region_of(engine, copy.planes[0].host)->alias, false};
    return by_kernel(copy, moved, in, 0, copy.page_count, engine.settings.multiprocessors[direction], way.stream);
}

} // namespace hicache
