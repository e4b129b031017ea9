// What an engine owns: streams, events, staging, registered regions, and the tables of a batch.
//
// Everything is made by `create`; copies only use it. On error: what was made is undone.
#pragma once

#include "hicache_cuda.h"

#include <cuda_runtime.h>
#include <stdlib.h>

#if CUDART_VERSION < 13000
#error "HiCache's copies need the compiler of CUDA 13.0 or newer: older batched copies have another form"
#endif

namespace hicache {

constexpr uint32_t BATCH = 2048;  // copies in one call of the copy engine
constexpr uint32_t REGIONS = 256; // registered at a time
constexpr int BATCH_DRIVER = 12080; // the first driver with batched copies

struct Region {
    char *base;
    uint64_t bytes;
    int64_t alias;   // what the device adds to the CPU's address
    uint64_t *ends;  // [pieces], offsets
    uint32_t pieces;
};

// Two halves of device memory: while one is filled the other is emptied.
struct Staging {
    char *base;
    uint64_t half; // bytes
    uint32_t turn; // which half is next
    cudaEvent_t filled[2], emptied[2], begun;
};

// One direction's queue.
struct Way {
    cudaStream_t stream; // copies, fences, the events that others see
    cudaStream_t side;   // the re-ordering kernels of staged copies
    cudaEvent_t fence;
    cudaEvent_t done[HICACHE_CUDA_TICKETS];
    Staging staging;
};

struct Batch {
    void *to[BATCH];
    const void *from[BATCH];
    size_t bytes[BATCH];
    uint32_t count;
};

} // namespace hicache

struct hicache_cuda_engine {
    hicache_cuda_settings settings;
    uint32_t multiprocessors; // of the device
    bool batches;             // the driver has batched copies
    hicache::Way ways[2];
    cudaEvent_t *layers; // [HICACHE_CUDA_LAYER_SETS][settings.layers]
    hicache::Region regions[hicache::REGIONS];
    uint32_t region_count;
    hicache::Batch batch;
};

namespace hicache {

// Stops a function at its first error, with that error.
#define HICACHE_TRY(call)                                                                                              \
    do {                                                                                                               \
        const int32_t hicache_code = (int32_t)(call);                                                                  \
        if (hicache_code != 0) return hicache_code;                                                                    \
    } while (0)

// For the time of one call: the engine's device is current, and another thread's graph capture isn't disturbed
// (in CUDA's default mode, a query or an allocation beside a capture would break it).
class Scope {
  public:
    explicit Scope(int32_t device) {
        code = cudaThreadExchangeStreamCaptureMode(&mode);
        if (code != cudaSuccess) return;
        exchanged = true;
        code = cudaGetDevice(&before);
        if (code != cudaSuccess || before == device) return;
        code = cudaSetDevice(device);
        moved = code == cudaSuccess;
    }
    ~Scope() {
        if (moved) (void)cudaSetDevice(before);
        if (exchanged) (void)cudaThreadExchangeStreamCaptureMode(&mode);
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
    cudaError_t code;

  private:
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int before = 0;
    bool exchanged = false, moved = false;
};

inline const Region *region_of(const hicache_cuda_engine &engine, uint64_t address) {
    for (uint32_t r = 0; r < engine.region_count; ++r)
        if (address - (uint64_t)engine.regions[r].base < engine.regions[r].bytes) return &engine.regions[r];
    return nullptr;
}

// The piece that holds the byte at `offset`.
inline uint32_t piece_of(const Region &region, uint64_t offset) {
    uint32_t low = 0, high = region.pieces - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (region.ends[middle] > offset) high = middle;
        else low = middle + 1;
    }
    return low;
}

inline uint64_t start_of(const Region &region, uint32_t piece) { return piece == 0 ? 0 : region.ends[piece - 1]; }

inline int32_t make_staging(Staging &staging, uint64_t bytes) {
    staging.half = bytes / 2 & ~(uint64_t)255;
    if (staging.half == 0) return 0;
    HICACHE_TRY(cudaMalloc((void **)&staging.base, staging.half * 2));
    for (int h = 0; h < 2; ++h) {
        HICACHE_TRY(cudaEventCreateWithFlags(&staging.filled[h], cudaEventDisableTiming));
        HICACHE_TRY(cudaEventCreateWithFlags(&staging.emptied[h], cudaEventDisableTiming));
    }
    return cudaEventCreateWithFlags(&staging.begun, cudaEventDisableTiming);
}

inline int32_t make_way(Way &way, uint64_t staging, int priority) {
    HICACHE_TRY(cudaStreamCreateWithPriority(&way.stream, cudaStreamNonBlocking, priority));
    HICACHE_TRY(cudaStreamCreateWithPriority(&way.side, cudaStreamNonBlocking, priority));
    HICACHE_TRY(cudaEventCreateWithFlags(&way.fence, cudaEventDisableTiming));
    for (cudaEvent_t &done : way.done) HICACHE_TRY(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    return make_staging(way.staging, staging);
}

inline int32_t make(hicache_cuda_engine &engine) {
    int driver = 0, multiprocessors = 0, least = 0, greatest = 0;
    HICACHE_TRY(cudaDriverGetVersion(&driver));
    HICACHE_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, engine.settings.device));
    HICACHE_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    engine.batches = driver >= BATCH_DRIVER;
    engine.multiprocessors = (uint32_t)multiprocessors;
    for (int way = 0; way < 2; ++way) HICACHE_TRY(make_way(engine.ways[way], engine.settings.staging[way], greatest));
    for (uint32_t at = 0; at < HICACHE_CUDA_LAYER_SETS * engine.settings.layers; ++at)
        HICACHE_TRY(cudaEventCreateWithFlags(&engine.layers[at], cudaEventDisableTiming));
    return 0;
}

// The first error counts, but nothing is left.
struct Undo {
    int32_t first = 0;
    void note(cudaError_t code) {
        if (first == 0) first = (int32_t)code;
    }
    void event(cudaEvent_t event) {
        if (event != nullptr) note(cudaEventDestroy(event));
    }
    void stream(cudaStream_t stream) {
        if (stream != nullptr) note(cudaStreamDestroy(stream));
    }
};

inline int32_t drain(hicache_cuda_engine &engine) {
    for (Way &way : engine.ways) {
        if (way.stream != nullptr) HICACHE_TRY(cudaStreamSynchronize(way.stream));
        if (way.side != nullptr) HICACHE_TRY(cudaStreamSynchronize(way.side));
    }
    return 0;
}

// The first `pieces`; the region is gone afterwards.
inline void unpin(Undo &undo, Region &region, uint32_t pieces) {
    for (uint32_t p = 0; p < pieces; ++p) undo.note(cudaHostUnregister(region.base + start_of(region, p)));
    free(region.ends);
    region = Region{};
}

inline int32_t unmake(hicache_cuda_engine &engine) {
    Undo undo;
    undo.first = drain(engine);
    for (uint32_t r = 0; r < engine.region_count; ++r) unpin(undo, engine.regions[r], engine.regions[r].pieces);
    for (Way &way : engine.ways) {
        for (cudaEvent_t done : way.done) undo.event(done);
        for (int h = 0; h < 2; ++h) undo.event(way.staging.filled[h]), undo.event(way.staging.emptied[h]);
        undo.event(way.staging.begun), undo.event(way.fence);
        undo.stream(way.stream), undo.stream(way.side);
        if (way.staging.base != nullptr) undo.note(cudaFree(way.staging.base));
    }
    for (uint32_t at = 0; engine.layers != nullptr && at < HICACHE_CUDA_LAYER_SETS * engine.settings.layers; ++at)
        undo.event(engine.layers[at]);
    return undo.first;
}

} // namespace hicache
