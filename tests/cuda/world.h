// A model and its pages: device tensors, a registered host slab, transfers under way, and what each slot must hold.
//
// Follows the rules that the header asks of callers: slots of an unfinished transfer belong to it. Everything that a
// stream does checks bytes when it runs, not when it is enqueued.
#pragma once

#include "cuda_runtime.h"
#include "geometry.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace test {

inline void require(bool holds, const char *what) {
    if (holds) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

inline char stamp(uint64_t id, const Element &e, uint64_t byte) {
    uint64_t word = (((id * 8 + e.layer) * 2 + e.plane) * 64 + e.token) * 64 + e.head;
    word = (word * 5000 + byte + 1) * 0x9E3779B97F4A7C15u;
    return (char)((word ^ (word >> 31)) >> 24);
}

// Equal pieces, whatever pages they split: the copy engine's runs must be cut.
inline std::vector<uint64_t> pieces_of(uint64_t bytes, uint64_t piece) {
    std::vector<uint64_t> pieces;
    for (uint64_t at = 0; at < bytes; at += piece) pieces.push_back(std::min(piece, bytes - at));
    return pieces;
}

constexpr char BLANK = (char)0xDD;

class World {
  public:
    Pool pool;
    hicache_cuda_engine *engine = nullptr;
    cudaStream_t model = nullptr;
    static inline long ways[3] = {};

    explicit World(Random &random_) : random(random_) {
        pool = random_pool(random, 6 << 10);
        pool.device_slots = 8, pool.host_slots = 9;
        pool.device_plane = (pool.device_slots * pool.page * pool.row() + 255) / 256 * 256;
        device_bytes = pool.device_plane * pool.layers * pool.planes;
        device = (char *)std::aligned_alloc(256, (device_bytes + 255) / 256 * 256);
        std::memset(device, BLANK, device_bytes);
        pool.device_base = (uint64_t)device;
        map_host();
        settings();
        require(cudaStreamCreateWithPriority(&model, 0, 0) == cudaSuccess, "a stream");
    }
    ~World() {
        require(hicache_cuda_destroy(engine) == 0, "destroy");
        (void)cudaStreamDestroy(model);
        std::free(device);
        munmap((void *)pool.host_base, host_bytes);
        munmap(seen, host_bytes);
    }

    // The model writes pages, after backups that still read them.
    void compute() {
        const uint32_t slot = (uint32_t)below(random, pool.device_slots);
        for (auto &[ticket, flight] : flights[0])
            if (flight.has_device(slot)) return;
        for (auto &[ticket, flight] : flights[1])
            if (flight.has_device(slot))
                require(hicache_cuda_wait_done(engine, 1, ticket, (uint64_t)model) == 0, "wait_done");
        const uint64_t id = ++ids;
        on_device[slot] = id;
        each_layer([=](uint64_t layer) { write(slot, id, layer); });
    }

    void read() {
        for (const auto &[slot, id] : on_device) each_layer([=, slot = slot, id = id](uint64_t l) { check(slot, id, l); });
    }

    void back_up() {
        std::vector<hicache_page> pages;
        for (const auto &[slot, id] : on_device) {
            const uint32_t host = (uint32_t)below(random, pool.host_slots);
            const auto same = [&](auto &page) { return page.host == host; };
            if (std::any_of(pages.begin(), pages.end(), same) || host_busy(host) || below(random, 3) == 0) continue;
            // A slot that a load still fills may be read behind it only by its own stream.
            if (device_busy(0, slot)) continue;
            pages.push_back({slot, host});
        }
        if (pages.empty()) return;
        Flight flight{pages, {}};
        for (const auto &page : pages) flight.ids.push_back(on_device[page.device]), on_host.erase(page.host);
        require(hicache_cuda_fence(engine, 1, (uint64_t)model) == 0, "fence");
        copies(1, pages, 0, pool.layers);
        require(hicache_cuda_record_done(engine, 1, ++tickets[1]) == 0, "record_done");
        flights[1][tickets[1]] = flight;
    }

    void load() {
        std::vector<hicache_page> pages;
        for (const auto &[host, id] : on_host) {
            const uint32_t slot = (uint32_t)below(random, pool.device_slots);
            const auto same = [&](auto &page) { return page.device == slot; };
            if (std::any_of(pages.begin(), pages.end(), same) || device_busy(0, slot) || device_busy(1, slot)) continue;
            pages.push_back({slot, host});
        }
        if (pages.empty()) return;
        Flight flight{pages, {}};
        const uint64_t ticket = ++tickets[0];
        const uint32_t set = (uint32_t)(ticket % HICACHE_CUDA_LAYER_SETS);
        require(hicache_cuda_fence(engine, 0, (uint64_t)model) == 0, "fence");
        for (const auto &page : pages) flight.ids.push_back(on_device[page.device] = on_host[page.host]);
        const bool whole = below(random, 2) == 0;
        if (whole) copies(0, pages, 0, pool.layers);
        for (uint64_t layer = 0; layer < pool.layers; ++layer) {
            if (!whole) copies(0, pages, layer, layer + 1);
            require(hicache_cuda_record_layer(engine, set, (uint32_t)layer) == 0, "record_layer");
        }
        require(hicache_cuda_record_done(engine, 0, ticket) == 0, "record_done");
        flights[0][ticket] = flight;
        for (uint64_t layer = 0; layer < pool.layers; ++layer) {
            require(hicache_cuda_wait_layer(engine, set, (uint32_t)layer, (uint64_t)model) == 0, "wait_layer");
            for (size_t j = 0; j < pages.size(); ++j) {
                const uint32_t slot = pages[j].device;
                const uint64_t id = flight.ids[j];
                (void)emulated::enqueue(model, [=] { check(slot, id, layer); });
            }
        }
    }

    // What is finished: its host pages must be there now.
    void poll() {
        for (uint32_t direction : {0u, 1u})
            for (auto at = flights[direction].begin(); at != flights[direction].end();) {
                const int32_t code = hicache_cuda_query_done(engine, direction, at->first);
                require(code == 0 || code == HICACHE_CUDA_PENDING, "query");
                if (code != 0) break;
                const Flight &flight = at->second;
                for (size_t j = 0; direction == 1 && j < flight.pages.size(); ++j) {
                    check_host(flight.pages[j].host, flight.ids[j]);
                    on_host[flight.pages[j].host] = flight.ids[j];
                }
                at = flights[direction].erase(at);
            }
    }

    void finish() {
        read();
        for (int tries = 0; !emulated::idle() && tries < 100000; ++tries) emulated::run(8);
        require(emulated::idle(), "something waits for ever");
        poll();
        require(flights[0].empty() && flights[1].empty(), "a transfer never ended");
        for (const auto &[slot, id] : on_device)
            for (uint64_t layer = 0; layer < pool.layers; ++layer) check(slot, id, layer);
        std::set<uint64_t> pages;
        for (uint32_t slot = 0; slot < pool.host_slots; ++slot)
            elements(pool, [&](const Element &e) {
                for (uint64_t b = 0; b < pool.head; ++b) pages.insert(host_address(pool, slot, e) + b);
            });
        for (uint64_t b = 0; b < host_bytes; ++b)
            require(pages.count(pool.host_base + b) || ((char *)pool.host_base)[b] == BLANK, "padding was written");
    }

  private:
    struct Flight {
        std::vector<hicache_page> pages;
        std::vector<uint64_t> ids;
        bool has_device(uint32_t slot) const {
            return std::any_of(pages.begin(), pages.end(), [=](auto &page) { return page.device == slot; });
        }
        bool has_host(uint32_t slot) const {
            return std::any_of(pages.begin(), pages.end(), [=](auto &page) { return page.host == slot; });
        }
    };

    Random &random;
    char *device, *seen = nullptr;
    uint64_t device_bytes, host_bytes = 0, ids = 0, tickets[2] = {};
    std::map<uint32_t, uint64_t> on_device, on_host;
    std::map<uint64_t, Flight> flights[2];

    // The same memory twice: as the CPU sees it, and as the device does, where that is elsewhere.
    void map_host() {
        host_bytes = (pool.host_bytes() + 4095) / 4096 * 4096;
        const int file = memfd_create("slab", 0);
        require(file >= 0 && ftruncate(file, (off_t)host_bytes) == 0, "a slab");
        const auto map = [&] { return (char *)mmap(nullptr, host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); };
        char *base = map();
        seen = map();
        (void)close(file);
        std::memset(base, BLANK, host_bytes);
        pool.host_base = (uint64_t)base;
    }

    void settings() {
        const uint64_t stride = pool.host_page() + 256;
        hicache_cuda_settings settings = {};
        settings.layers = (uint32_t)pool.layers;
        for (int d = 0; d < 2; ++d) {
            settings.engine_run[d] = pick(random, {1, 200, 1500, 1ull << 40});
            settings.staging[d] = pick(random, {0, 2 * stride, 5 * stride});
            settings.multiprocessors[d] = 1 + (uint32_t)below(random, 2);
        }
        require(hicache_cuda_create(&settings, &engine) == 0, "create");
        const ptrdiff_t alias = below(random, 2) ? seen - (char *)pool.host_base : 0;
        emulated::alias(alias, alias);
        // Where the device sees the slab elsewhere, it must not look where only the CPU may.
        void *base = (void *)pool.host_base;
        if (alias != 0)
            emulated::around_kernels([=](bool runs) { (void)mprotect(base, host_bytes, runs ? PROT_NONE : PROT_READ | PROT_WRITE); });
        const uint64_t piece = pick(random, {0, 4096, 16384});
        const auto pieces = pieces_of(host_bytes, piece == 0 ? host_bytes : piece);
        require(hicache_cuda_register(engine, base, pieces.data(), (uint32_t)pieces.size()) == 0, "pin");
    }

    void copies(uint32_t direction, const std::vector<hicache_page> &pages, uint64_t from, uint64_t to) {
        // K and V together, or, as staging needs it where they are apart, one after the other.
        const bool together = (below(random, 3) == 0) != (pool.kind == PAGE_UNIFIED);
        for (uint64_t plane = 0; plane < (together ? 1 : pool.planes); ++plane) {
            const auto planes = planes_of(pool, from, to, together ? -1 : (int)plane);
            hicache_copy copy = {shape_of(pool), planes.data(), pages.data(), (uint32_t)planes.size(),
                                 (uint32_t)pages.size(), HICACHE_CUDA_AUTO, 0};
            if (below(random, 4) == 0) copy.route = HICACHE_CUDA_KERNEL + (uint32_t)below(random, 3);
            const int32_t route = hicache_cuda_choose(engine, direction, &copy);
            if (route < 0) require(copy.route == HICACHE_CUDA_STAGED, "a good copy was refused"), copy.route = 0;
            else ++ways[route - 1];
            require(hicache_cuda_enqueue(engine, direction, &copy) == 0, "enqueue");
        }
    }

    template <class Visit> void each_layer(Visit visit) {
        for (uint64_t layer = 0; layer < pool.layers; ++layer) (void)emulated::enqueue(model, [=] { visit(layer); });
    }
    bool device_busy(int direction, uint32_t slot) const {
        const auto has = [=](auto &flight) { return flight.second.has_device(slot); };
        return std::any_of(flights[direction].begin(), flights[direction].end(), has);
    }
    bool host_busy(uint32_t slot) const {
        const auto has = [=](auto &flight) { return flight.second.has_host(slot); };
        return std::any_of(flights[0].begin(), flights[0].end(), has) ||
               std::any_of(flights[1].begin(), flights[1].end(), has);
    }
    void write(uint32_t slot, uint64_t id, uint64_t layer) const {
        elements(pool, [&](const Element &e) {
            char *to = (char *)device_address(pool, slot, e);
            for (uint64_t b = 0; e.layer == layer && b < pool.head; ++b) to[b] = stamp(id, e, b);
        });
    }
    void check(uint32_t slot, uint64_t id, uint64_t layer) const {
        elements(pool, [&](const Element &e) {
            const char *at = (const char *)device_address(pool, slot, e);
            for (uint64_t b = 0; e.layer == layer && b < pool.head; ++b)
                require(at[b] == stamp(id, e, b), "the model reads another page's bytes, or too early, or too late");
        });
    }
    void check_host(uint32_t slot, uint64_t id) const {
        elements(pool, [&](const Element &e) {
            const char *at = (const char *)host_address(pool, slot, e);
            for (uint64_t b = 0; b < pool.head; ++b) require(at[b] == stamp(id, e, b), "a backup has other bytes");
        });
    }
};

} // namespace test
