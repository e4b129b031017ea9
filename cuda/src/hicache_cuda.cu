// The C functions of `hicache_cuda.h`. One file: two would turn on relocatable device code.
//
// Checks arguments, makes the engine's device current, and hands on. On error: see the header.
#include "routes.cuh"

#include <stdlib.h>

using namespace hicache;

namespace {

int32_t own(cudaError_t code) {
    switch (code) {
    case cudaErrorInsufficientDriver: return HICACHE_CUDA_NO_DRIVER;
    case cudaErrorNoDevice: return HICACHE_CUDA_NO_DEVICE;
    case cudaErrorNotReady: return HICACHE_CUDA_PENDING;
    default: return (int32_t)code;
    }
}

int32_t query(hicache_cuda_engine *engine, cudaEvent_t event) {
    Scope scope(engine->settings.device);
    if (scope.code != cudaSuccess) return own(scope.code);
    const cudaError_t code = cudaEventQuery(event);
    // "Not ready" is an answer: it must not wait for torch as this thread's last error.
    if (code == cudaErrorNotReady) (void)cudaGetLastError();
    return own(code);
}

// A stream that others own: refused while it is captured, or our event would become part of their graph.
int32_t outside(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    HICACHE_TRY(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusNone ? 0 : (int32_t)HICACHE_CUDA_CAPTURING;
}

int32_t follow(hicache_cuda_engine *engine, cudaEvent_t event, uint64_t stream) {
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    HICACHE_TRY(outside((cudaStream_t)stream));
    return (int32_t)cudaStreamWaitEvent((cudaStream_t)stream, event, 0);
}

cudaEvent_t *layer_event(hicache_cuda_engine *engine, uint32_t set, uint32_t layer) {
    if (engine == nullptr || set >= HICACHE_CUDA_LAYER_SETS || layer >= engine->settings.layers) return nullptr;
    return &engine->layers[(size_t)set * engine->settings.layers + layer];
}

cudaEvent_t *done_event(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket) {
    if (engine == nullptr || direction > 1) return nullptr;
    return &engine->ways[direction].done[ticket % HICACHE_CUDA_TICKETS];
}

// The borders of pieces, or an argument that can't be meant.
int32_t make_region(Region &region, void *base, const uint64_t *pieces, uint32_t count) {
    if (base == nullptr || (uint64_t)base % 4096 != 0 || pieces == nullptr || count == 0) return HICACHE_CUDA_ARGUMENT;
    for (uint32_t p = 0; p < count; ++p)
        if (pieces[p] == 0 || (p + 1 < count && pieces[p] % 4096 != 0)) return HICACHE_CUDA_ARGUMENT;
    region = Region{(char *)base, 0, 0, (uint64_t *)malloc(count * sizeof(uint64_t)), count};
    if (region.ends == nullptr) return HICACHE_CUDA_MEMORY;
    for (uint32_t p = 0; p < count; ++p) region.ends[p] = region.bytes += pieces[p];
    return 0;
}

// Pins piece after piece. The device's addresses must differ from the CPU's by the same everywhere.
int32_t pin(Region &region, uint32_t &pinned) {
    for (pinned = 0; pinned < region.pieces;) {
        const uint64_t start = start_of(region, pinned);
        char *base = region.base + start;
        HICACHE_TRY(cudaHostRegister(base, region.ends[pinned] - start, cudaHostRegisterMapped | cudaHostRegisterPortable));
        ++pinned;
        void *seen = nullptr;
        HICACHE_TRY(cudaHostGetDevicePointer(&seen, base, 0));
        const int64_t alias = (char *)seen - base;
        if (start == 0) region.alias = alias;
        if (alias != region.alias) return HICACHE_CUDA_ALIAS;
    }
    return 0;
}

bool overlaps(const hicache_cuda_engine &engine, const Region &region) {
    for (uint32_t r = 0; r < engine.region_count; ++r) {
        const Region &other = engine.regions[r];
        if (region.base < other.base + other.bytes && other.base < region.base + region.bytes) return true;
    }
    return false;
}

} // namespace

extern "C" {

int32_t hicache_cuda_probe(hicache_cuda_machine *machine) {
    if (machine == nullptr) return HICACHE_CUDA_ARGUMENT;
    int driver = 0, devices = 0;
    const cudaError_t version = cudaDriverGetVersion(&driver);
    const cudaError_t count = cudaGetDeviceCount(&devices);
    (void)cudaGetLastError();
    machine->driver = version == cudaSuccess ? driver : 0;
    machine->devices = count == cudaSuccess ? devices : 0;
    if (count == cudaSuccess && devices == 0) return HICACHE_CUDA_NO_DEVICE;
    return own(count);
}

const char *hicache_cuda_error_name(int32_t code) {
    switch (code) {
    case HICACHE_CUDA_OK: return "ok";
    case HICACHE_CUDA_PENDING: return "pending";
    case HICACHE_CUDA_NO_DRIVER: return "no driver";
    case HICACHE_CUDA_NO_DEVICE: return "no device";
    case HICACHE_CUDA_ARGUMENT: return "bad argument";
    case HICACHE_CUDA_MEMORY: return "no memory";
    case HICACHE_CUDA_ALIAS: return "registered pieces have different addresses on the device";
    case HICACHE_CUDA_CAPTURING: return "the stream is being captured into a graph";
    case HICACHE_CUDA_FULL: return "too many registered regions";
    default: return code > 0 ? cudaGetErrorName((cudaError_t)code) : "unknown status";
    }
}

int32_t hicache_cuda_create(const hicache_cuda_settings *settings, hicache_cuda_engine **engine) {
    if (settings == nullptr || engine == nullptr) return HICACHE_CUDA_ARGUMENT;
    const bool groups = settings->multiprocessors[0] > 0 && settings->multiprocessors[1] > 0;
    if (settings->layers == 0 || settings->layers > 65536 || !groups) return HICACHE_CUDA_ARGUMENT;
    hicache_cuda_machine machine;
    HICACHE_TRY(hicache_cuda_probe(&machine));
    if (settings->device < 0 || settings->device >= machine.devices) return HICACHE_CUDA_ARGUMENT;
    Scope scope(settings->device);
    HICACHE_TRY(own(scope.code));
    auto *made = (hicache_cuda_engine *)calloc(1, sizeof(hicache_cuda_engine));
    if (made == nullptr) return HICACHE_CUDA_MEMORY;
    made->settings = *settings;
    made->layers = (cudaEvent_t *)calloc((size_t)HICACHE_CUDA_LAYER_SETS * settings->layers, sizeof(cudaEvent_t));
    const int32_t code = made->layers == nullptr ? (int32_t)HICACHE_CUDA_MEMORY : make(*made);
    if (code != 0) {
        (void)unmake(*made);
        (void)cudaGetLastError();
        free(made->layers);
        free(made);
        return own((cudaError_t)code);
    }
    *engine = made;
    return 0;
}

int32_t hicache_cuda_destroy(hicache_cuda_engine *engine) {
    if (engine == nullptr) return 0;
    Scope scope(engine->settings.device);
    const int32_t code = unmake(*engine);
    free(engine->layers);
    free(engine);
    return code;
}

int32_t hicache_cuda_register(hicache_cuda_engine *engine, void *base, const uint64_t *pieces, uint32_t piece_count) {
    if (engine == nullptr) return HICACHE_CUDA_ARGUMENT;
    if (engine->region_count == REGIONS) return HICACHE_CUDA_FULL;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    Region region = {};
    HICACHE_TRY(make_region(region, base, pieces, piece_count));
    uint32_t pinned = 0;
    const int32_t code = overlaps(*engine, region) ? (int32_t)HICACHE_CUDA_ARGUMENT : pin(region, pinned);
    if (code != 0) {
        Undo undo;
        unpin(undo, region, pinned);
        (void)cudaGetLastError();
        return code;
    }
    engine->regions[engine->region_count++] = region;
    return 0;
}

int32_t hicache_cuda_unregister(hicache_cuda_engine *engine, void *base) {
    if (engine == nullptr) return HICACHE_CUDA_ARGUMENT;
    uint32_t r = 0;
    while (r < engine->region_count && engine->regions[r].base != base) ++r;
    if (r == engine->region_count) return HICACHE_CUDA_ARGUMENT;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    HICACHE_TRY(drain(*engine));
    Undo undo;
    unpin(undo, engine->regions[r], engine->regions[r].pieces);
    engine->regions[r] = engine->regions[--engine->region_count];
    return undo.first;
}

int32_t hicache_cuda_fence(hicache_cuda_engine *engine, uint32_t direction, uint64_t stream) {
    if (engine == nullptr || direction > 1) return HICACHE_CUDA_ARGUMENT;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    HICACHE_TRY(outside((cudaStream_t)stream));
    Way &way = engine->ways[direction];
    HICACHE_TRY(cudaEventRecord(way.fence, (cudaStream_t)stream));
    return (int32_t)cudaStreamWaitEvent(way.stream, way.fence, 0);
}

int32_t hicache_cuda_choose(const hicache_cuda_engine *engine, uint32_t direction, const hicache_copy *copy) {
    if (engine == nullptr || copy == nullptr) return HICACHE_CUDA_ARGUMENT;
    HICACHE_TRY(check(*engine, direction, *copy));
    return (int32_t)choose(*engine, direction, *copy);
}

int32_t hicache_cuda_enqueue(hicache_cuda_engine *engine, uint32_t direction, const hicache_copy *copy) {
    if (engine == nullptr || copy == nullptr) return HICACHE_CUDA_ARGUMENT;
    HICACHE_TRY(check(*engine, direction, *copy));
    if (copy->page_count == 0) return 0;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    return carry_out(*engine, direction, *copy, choose(*engine, direction, *copy));
}

int32_t hicache_cuda_record_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer) {
    cudaEvent_t *event = layer_event(engine, set, layer);
    if (event == nullptr) return HICACHE_CUDA_ARGUMENT;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    return (int32_t)cudaEventRecord(*event, engine->ways[HICACHE_CUDA_IN].stream);
}

int32_t hicache_cuda_wait_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer, uint64_t stream) {
    cudaEvent_t *event = layer_event(engine, set, layer);
    return event == nullptr ? (int32_t)HICACHE_CUDA_ARGUMENT : follow(engine, *event, stream);
}

int32_t hicache_cuda_query_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer) {
    cudaEvent_t *event = layer_event(engine, set, layer);
    return event == nullptr ? (int32_t)HICACHE_CUDA_ARGUMENT : query(engine, *event);
}

int32_t hicache_cuda_record_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket) {
    cudaEvent_t *event = done_event(engine, direction, ticket);
    if (event == nullptr) return HICACHE_CUDA_ARGUMENT;
    Scope scope(engine->settings.device);
    HICACHE_TRY(scope.code);
    return (int32_t)cudaEventRecord(*event, engine->ways[direction].stream);
}

int32_t hicache_cuda_wait_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket, uint64_t stream) {
    cudaEvent_t *event = done_event(engine, direction, ticket);
    return event == nullptr ? (int32_t)HICACHE_CUDA_ARGUMENT : follow(engine, *event, stream);
}

int32_t hicache_cuda_query_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket) {
    cudaEvent_t *event = done_event(engine, direction, ticket);
    return event == nullptr ? (int32_t)HICACHE_CUDA_ARGUMENT : query(engine, *event);
}

} // extern "C"
