// The copy kernel's index arithmetic, lane by lane on the CPU, against tensors' shapes.
//
// For random pools in all layouts: every byte that must arrive is written exactly once and has come from the right
// place, nothing else is read or written, every access is aligned to its width, and what went out comes back.
// Slots are large: offsets go beyond 5 GiB. Addresses are numbers: memory is a table of bytes.
// Usage: lanes CASES SEED. On error: prints the case and exits with 1.
#include "copy_index.h"
#include "geometry.h"

#include <cstdio>
#include <cstring>
#include <unordered_map>

using namespace hicache;
using namespace test;

namespace {

[[noreturn]] void die(const Pool &p, const char *what, uint64_t address) {
    std::printf("FAILED: %s at %#llx: kind %d, L %d, planes %d, P %d, H %d, D %d, G %d\n", what,
                (unsigned long long)address, (int)p.kind, (int)p.layers, (int)p.planes, (int)p.page, (int)p.heads,
                (int)p.head, (int)p.groups);
    std::exit(1);
}

uint8_t original(uint64_t address) {
    address *= 0x9E3779B97F4A7C15u;
    return (uint8_t)((address ^ (address >> 29)) >> 24);
}

// Bytes by address: what may be read, what must be written.
struct Memory {
    const Pool &pool;
    std::unordered_map<uint64_t, uint8_t> source;
    std::unordered_map<uint64_t, int> target; // -1: not written yet
    uint64_t widest_seen = 0;

    template <class Word> void load(Word &word, uint64_t from) {
        if (from % sizeof(Word) != 0) die(pool, "a load is not aligned", from);
        uint8_t bytes[sizeof(Word)];
        for (uint64_t b = 0; b < sizeof(Word); ++b) {
            const auto found = source.find(from + b);
            if (found == source.end()) die(pool, "a byte is read that is no page's", from + b);
            bytes[b] = found->second;
        }
        std::memcpy(&word, bytes, sizeof(Word));
        widest_seen = std::max<uint64_t>(widest_seen, sizeof(Word));
    }
    template <class Word> void store(uint64_t to, const Word &word) {
        if (to % sizeof(Word) != 0) die(pool, "a store is not aligned", to);
        uint8_t bytes[sizeof(Word)];
        std::memcpy(bytes, &word, sizeof(Word));
        for (uint64_t b = 0; b < sizeof(Word); ++b) {
            const auto found = target.find(to + b);
            if (found == target.end()) die(pool, "a byte is written that is no page's", to + b);
            if (found->second >= 0) die(pool, "a byte is written twice", to + b);
            found->second = bytes[b];
        }
    }
};

template <class Word> void run(const Launch<FEW> &launch, uint32_t threads, Memory &memory) {
    for (uint32_t thread = 0; thread < threads; ++thread)
        if (in_rows(launch.shape.units)) copy_rows<Word>(launch, thread, threads, memory);
        else copy_any<Word>(launch, thread, threads, memory);
}

void copy(const Pool &p, bool in, const std::vector<hicache_page> &pages, uint32_t threads, Memory &memory) {
    const hicache_strided shape = shape_of(p);
    const std::vector<hicache_plane> planes = planes_of(p, 0, p.layers);
    Launch<FEW> launch;
    launch.shape = resolve(shape, in, (uint32_t)pages.size(), (uint32_t)planes.size());
    for (size_t i = 0; i < planes.size(); ++i)
        launch.planes[i] = in ? Ends{planes[i].host, planes[i].device} : Ends{planes[i].device, planes[i].host};
    for (size_t j = 0; j < pages.size(); ++j)
        launch.pages[j] = in ? Slots{pages[j].host, pages[j].device} : Slots{pages[j].device, pages[j].host};
    switch (shape.width) {
    case 16: run<Word16>(launch, threads, memory); break;
    case 8: run<Word8>(launch, threads, memory); break;
    case 4: run<Word4>(launch, threads, memory); break;
    default: run<Word1>(launch, threads, memory);
    }
    if (memory.widest_seen != shape.width) die(p, "vectors are not as wide as they could be", shape.width);
}

template <class Visit> void bytes(const Pool &p, const std::vector<hicache_page> &pages, Visit visit) {
    for (const hicache_page &page : pages)
        elements(p, [&](const Element &e) {
            const uint64_t device = device_address(p, page.device, e), host = host_address(p, page.host, e);
            for (uint64_t b = 0; b < p.head; ++b) visit(device + b, host + b);
        });
}

void round_trip(Random &random) {
    Pool p = random_pool(random, 12 << 10);
    p.device_slots = p.host_slots = 1 + (5ull << 30) / (p.page * p.row()) + below(random, 1000);
    p.device_slots = std::min<uint64_t>(p.device_slots, UINT32_MAX);
    p.host_slots = std::min<uint64_t>(p.host_slots, UINT32_MAX);
    p.device_plane = (p.device_slots * p.page * p.row() + 255) / 256 * 256;
    p.device_base = 0x700000000000 + pick(random, {0, 0, 0, 256, 8, 4, 2});
    p.host_base = 0x200000000000 + 4096 * below(random, 1000);
    std::vector<hicache_page> pages = random_pages(random, p, 1 + below(random, 4));
    pages[0].device = (uint32_t)p.device_slots - 1, pages[0].host = (uint32_t)p.host_slots - 1; // the far ends
    const uint32_t threads = (uint32_t)(LANES * (1 + below(random, 8)));

    Memory out{p, {}, {}};
    bytes(p, pages, [&](uint64_t device, uint64_t host) { out.source[device] = original(device), out.target[host] = -1; });
    copy(p, false, pages, threads, out);
    bytes(p, pages, [&](uint64_t device, uint64_t host) {
        if (out.target[host] != original(device)) die(p, "a byte on the host is another's, or missing", host);
    });

    // Back, to other slots: the same bytes.
    std::vector<hicache_page> back = random_pages(random, p, pages.size());
    for (size_t j = 0; j < pages.size(); ++j) back[j].host = pages[j].host;
    Memory in{p, {}, {}};
    bytes(p, back, [&](uint64_t device, uint64_t host) { in.source[host] = (uint8_t)out.target[host], in.target[device] = -1; });
    copy(p, true, back, threads, in);
    for (size_t j = 0; j < pages.size(); ++j)
        elements(p, [&](const Element &e) {
            for (uint64_t b = 0; b < p.head; ++b) {
                const uint64_t now = device_address(p, back[j].device, e) + b;
                const uint64_t was = device_address(p, pages[j].device, e) + b;
                if (in.target[now] != original(was)) die(p, "a byte came back as another, or not at all", now);
            }
        });
}

void divisions(Random &random) {
    const auto check = [](uint32_t n, uint32_t d) {
        if (divider(d).quotient(n) == n / d) return;
        std::printf("FAILED: %u / %u\n", n, d);
        std::exit(1);
    };
    for (uint32_t d : {1u, 2u, 3u, 5u, 7u, 255u, 256u, 257u, 65535u, 0x7fffffffu, 0x40000001u})
        for (uint32_t n : {0u, 1u, d - 1, d, d + 1, 2 * d - 1, 0x7fffffffu, 0x7ffffffeu})
            if (n < 0x80000000u) check(n, d);
    for (int i = 0; i < 300000; ++i) {
        const uint32_t d = 1 + (uint32_t)(random() >> 33) % (1u << (1 + below(random, 31)));
        check((uint32_t)(random() >> 33), d);
        const uint32_t most = 0x7fffffffu / d;
        check(most * d, d), check(most * d - 1 + (most == 0), d);
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return std::printf("usage: lanes CASES SEED\n"), 2;
    Random random(std::strtoull(arguments[2], nullptr, 10));
    divisions(random);
    const long cases = std::atol(arguments[1]);
    for (long at = 0; at < cases; ++at) round_trip(random);
    std::printf("%ld cases passed\n", cases);
}
