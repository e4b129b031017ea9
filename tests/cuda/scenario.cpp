// The whole CUDA library over the emulated runtime: a model computes, pages are backed up and loaded, all at once.
//
// The model's stream writes and reads device pages; our streams copy. Operations run in any order that events allow,
// so a missing edge (a fence, a layer's event, a half of staging that is filled too early) shows as wrong bytes.
// Also: what is refused, what a failed start leaves behind. Usage: scenario CASES SEED. On error: exits with 1.
#include "cuda_runtime.h"
#include "world.h"

#include <cstddef>

static_assert(sizeof(hicache_strided) == 128 && offsetof(hicache_strided, run) == 112, "as in ffi.rs");
static_assert(offsetof(hicache_strided, width) == 120, "as in ffi.rs");
static_assert(sizeof(hicache_copy) == 160 && offsetof(hicache_copy, planes) == 128, "as in ffi.rs");
static_assert(offsetof(hicache_copy, route) == 152, "as in ffi.rs");
static_assert(sizeof(hicache_cuda_settings) == 48 && offsetof(hicache_cuda_settings, multiprocessors) == 40, "");
static_assert(sizeof(hicache_plane) == 16 && sizeof(hicache_page) == 8 && sizeof(hicache_cuda_machine) == 8, "");

using namespace test;

namespace {

void one_case(uint64_t seed) {
    Random random(seed);
    emulated::reset(random(), below(random, 4) == 0 ? 12000 : 13000, 1);
    {
        World world(random);
        for (int step = 0; step < 14; ++step) {
            switch (below(random, 4)) {
            case 0: world.compute(); break;
            case 1: world.back_up(); break;
            case 2: world.load(); break;
            default: world.read();
            }
            emulated::run(below(random, 12));
            world.poll();
        }
        world.finish();
    }
    const emulated::Counts left = emulated::counts();
    require(left.streams + left.events + left.allocations + left.registrations == 0, "something was left behind");
}

void refusals() {
    Random random(5);
    emulated::reset(1, 13000, 1);
    World world(random);
    const auto shape = shape_of(world.pool);
    const auto planes = planes_of(world.pool, 0, 1, 0);
    hicache_page page{0, 0};
    hicache_copy good = {shape, planes.data(), &page, 1, 1, HICACHE_CUDA_KERNEL, 0};
    const auto refused = [&](hicache_copy copy, const char *what) {
        require(hicache_cuda_enqueue(world.engine, 0, &copy) == HICACHE_CUDA_ARGUMENT, what);
    };
    require(hicache_cuda_enqueue(world.engine, 0, &good) == 0, "a good copy");
    hicache_copy bad = good;
    emulated::fail("cudaMemcpyBatchAsync", 0, cudaErrorNotSupported);
    good.route = HICACHE_CUDA_ENGINE;
    require(hicache_cuda_enqueue(world.engine, 0, &good) == 0 && emulated::counts().copies > 0, "without batches");
    good.route = HICACHE_CUDA_KERNEL;
    bad.shape.width = 2, refused(bad, "a width that isn't one");
    bad = good, bad.shape.run += 1, bad.shape.width = 16, refused(bad, "a width that doesn't divide the run");
    bad = good, bad.shape.run = 0, refused(bad, "no bytes");
    bad = good, bad.shape.axes[2].extent = 0, refused(bad, "an axis of nothing");
    bad = good, bad.plane_count = 0, refused(bad, "no planes");
    bad = good, bad.route = 9, refused(bad, "an unknown route");
    bad = good, bad.shape.axes[0].extent = bad.shape.axes[1].extent = 1u << 31, refused(bad, "too many steps");
    hicache_page far{0, 1u << 20};
    bad = good, bad.pages = &far, refused(bad, "a host slot outside of what is registered");
    hicache_plane away = planes[0];
    away.host = (uint64_t)&away & ~(uint64_t)4095;
    bad = good, bad.planes = &away, refused(bad, "memory that is not registered");
    require(hicache_cuda_enqueue(world.engine, 2, &good) == HICACHE_CUDA_ARGUMENT, "an unknown direction");
    void *base = (void *)world.pool.host_base;
    const uint64_t piece = 4096;
    require(hicache_cuda_register(world.engine, base, &piece, 1) == HICACHE_CUDA_ARGUMENT, "registered twice");
    require(hicache_cuda_unregister(world.engine, &world) == HICACHE_CUDA_ARGUMENT, "never registered");

    emulated::capture(world.model, true);
    const uint64_t stream = (uint64_t)world.model;
    require(hicache_cuda_fence(world.engine, 0, stream) == HICACHE_CUDA_CAPTURING, "a fence on a captured stream");
    require(hicache_cuda_wait_layer(world.engine, 0, 0, stream) == HICACHE_CUDA_CAPTURING, "a captured wait");
    emulated::capture(world.model, false);
    require(hicache_cuda_fence(world.engine, 0, stream) == 0, "a fence after the capture");
}

// Pinned pieces have one distance between the CPU's and the device's addresses, or nothing stays pinned; what fails
// half-way unpins the pieces before it.
void pinning() {
    emulated::reset(1, 13000, 1);
    hicache_cuda_settings settings = {0, 1, {1, 1}, {0, 0}, {1, 1}};
    hicache_cuda_engine *engine = nullptr;
    require(hicache_cuda_create(&settings, &engine) == 0, "create");
    char *base = (char *)std::aligned_alloc(4096, 10 * 4096);
    const auto pin = [&](std::vector<uint64_t> pieces) {
        return hicache_cuda_register(engine, base, pieces.data(), (uint32_t)pieces.size());
    };
    emulated::alias(4096, 4096);
    require(pin({8192, 4096, 16384, 5000}) == 0 && emulated::counts().registrations == 4, "four pieces");
    require(hicache_cuda_unregister(engine, base) == 0 && emulated::counts().registrations == 0, "unregister");
    for (const auto &bad : std::vector<std::vector<uint64_t>>{{}, {5000, 4096}, {4096, 0}, {0}})
        require(pin(bad) == HICACHE_CUDA_ARGUMENT, "pieces that can't be meant");
    emulated::alias(4096, 8192);
    require(pin({4096, 4096}) == HICACHE_CUDA_ALIAS, "distances that differ");
    require(emulated::counts().registrations == 0, "pinned pieces were left");
    emulated::alias(0, 0);
    emulated::fail("cudaHostRegister", 3, cudaErrorMemoryAllocation);
    require(pin({4096, 4096, 4096, 4096, 4096}) == cudaErrorMemoryAllocation && emulated::counts().registrations == 0, "rolled back");
    require(pin({4096, 4096}) == 0 && hicache_cuda_destroy(engine) == 0, "again, and destroyed with it");
    require(emulated::counts().registrations == 0, "destroyed engines unpin");
    std::free(base);
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return std::printf("usage: scenario CASES SEED\n"), 2;
    const uint64_t seed = std::strtoull(arguments[2], nullptr, 10);
    refusals();
    pinning();
    const long cases = std::atol(arguments[1]);
    for (long at = 0; at < cases; ++at) one_case(seed + (uint64_t)at);
    require(World::ways[0] && World::ways[1] && World::ways[2], "not every way was taken");
    std::printf("%ld cases passed: %ld by kernel, %ld by copy engine, %ld staged\n", cases, World::ways[0], World::ways[1],
                World::ways[2]);
}
