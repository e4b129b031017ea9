// Pools in all five layouts, written twice: as the shapes of tensors (the reference), and as the planner's axes.
//
// Addresses are numbers here; nothing is allocated. The reference knows nothing of axes, the axes nothing of it.
#pragma once

#include "hicache_cuda.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

namespace test {

enum Kind { LAYER_FIRST, PAGE_FIRST, PAGE_FIRST_DIRECT, PAGE_HEAD, PAGE_UNIFIED, KINDS };

struct Pool {
    Kind kind;
    uint64_t layers, planes, page, heads, head, groups; // head: bytes of one head; planes: 2 for K and V, 1 for MLA
    uint64_t device_slots, host_slots;
    uint64_t device_base, device_plane; // from one device tensor to the next
    uint64_t host_base;

    uint64_t row() const { return heads * head; }
    uint64_t payload() const { return layers * planes * page * row(); }
    uint64_t host_page() const { return kind == PAGE_UNIFIED ? (payload() + 31) / 32 * 32 : payload() / planes; }
    uint64_t host_bytes() const { return host_page() * host_slots * (kind == PAGE_UNIFIED ? 1 : planes); }
    uint64_t device_of(uint64_t layer, uint64_t plane) const {
        return device_base + (layer * planes + plane) * device_plane;
    }
};

struct Element {
    uint64_t layer, plane, token, head;
};

// Row-major: (index, extent) from outermost to innermost.
inline uint64_t at(std::initializer_list<std::pair<uint64_t, uint64_t>> axes) {
    uint64_t offset = 0;
    for (const auto &[index, extent] : axes) offset = offset * extent + index;
    return offset;
}

// ---- The reference: addresses of an element's first byte, by the tensors' shapes --------------------------

inline uint64_t device_address(const Pool &p, uint64_t slot, const Element &e) {
    // (slots * P, H, D)
    const uint64_t rows = at({{slot * p.page + e.token, 0}, {e.head, p.heads}});
    return p.device_of(e.layer, e.plane) + rows * p.head;
}

inline uint64_t host_address(const Pool &p, uint64_t slot, const Element &e) {
    const uint64_t n = p.host_slots, rows = n * p.page, row = slot * p.page + e.token, per = p.heads / p.groups;
    switch (p.kind) {
    case LAYER_FIRST: // (2, L, N * P, H, D)
        return p.host_base + p.head * at({{e.plane, 0}, {e.layer, p.layers}, {row, rows}, {e.head, p.heads}});
    case PAGE_FIRST: // (2, N * P, L, H, D)
        return p.host_base + p.head * at({{e.plane, 0}, {row, rows}, {e.layer, p.layers}, {e.head, p.heads}});
    case PAGE_FIRST_DIRECT: // (2, N, L, P, H, D)
        return p.host_base +
               p.head * at({{e.plane, 0}, {slot, n}, {e.layer, p.layers}, {e.token, p.page}, {e.head, p.heads}});
    case PAGE_HEAD: // (2, N, H, P, L, D)
        return p.host_base +
               p.head * at({{e.plane, 0}, {slot, n}, {e.head, p.heads}, {e.token, p.page}, {e.layer, p.layers}});
    default: // (N, G, L, 2, P, H / G, D), every page padded to 32
        return p.host_base + slot * p.host_page() +
               p.head * at({{e.head / per, 0},
                            {e.layer, p.layers},
                            {e.plane, p.planes},
                            {e.token, p.page},
                            {e.head % per, per}});
    }
}

template <class Visit> void elements(const Pool &p, Visit visit) {
    for (uint64_t layer = 0; layer < p.layers; ++layer)
        for (uint64_t plane = 0; plane < p.planes; ++plane)
            for (uint64_t token = 0; token < p.page; ++token)
                for (uint64_t head = 0; head < p.heads; ++head) visit(Element{layer, plane, token, head});
}

// ---- The planner: strides by hand, then the normal form ---------------------------------------------------

inline uint32_t widest(uint64_t bits) { return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 1; }

inline hicache_strided normal(int64_t device_page, int64_t host_page, std::vector<hicache_axis> axes, uint64_t run) {
    hicache_strided shape = {};
    shape.device_page = device_page, shape.host_page = host_page;
    for (hicache_axis &axis : shape.axes) axis.extent = 1;
    axes.erase(std::remove_if(axes.begin(), axes.end(), [](auto &a) { return a.extent == 1; }), axes.end());
    std::sort(axes.begin(), axes.end(), [](auto &a, auto &b) { return a.host < b.host; });
    uint32_t place = HICACHE_CUDA_AXES;
    for (const hicache_axis &axis : axes) {
        hicache_axis *inner = place < HICACHE_CUDA_AXES ? &shape.axes[place] : nullptr;
        if (inner == nullptr && axis.device == (int64_t)run && axis.host == (int64_t)run) {
            run *= axis.extent;
        } else if (inner != nullptr && axis.device == inner->device * inner->extent &&
                   axis.host == inner->host * inner->extent) {
            inner->extent *= axis.extent;
        } else {
            shape.axes[--place] = axis;
        }
    }
    shape.run = run;
    return shape;
}

// One plane's share of a page: the same for all planes.
inline hicache_strided shape_of(const Pool &p) {
    const int64_t L = p.layers, P = p.page, H = p.heads, d = p.head, row = H * d, per = H / p.groups;
    const auto axis = [](uint64_t extent, int64_t device, int64_t host) {
        return hicache_axis{device, host, (uint32_t)extent, 0};
    };
    std::vector<hicache_axis> axes;
    switch (p.kind) {
    case LAYER_FIRST:
    case PAGE_FIRST_DIRECT: axes = {axis(H, d, d), axis(P, row, row)}; break;
    case PAGE_FIRST: axes = {axis(H, d, d), axis(P, row, L * row)}; break;
    case PAGE_HEAD: axes = {axis(H, d, P * L * d), axis(P, row, L * d)}; break;
    default:
        axes = {axis(per, d, d), axis(P, row, per * d), axis(p.groups, per * d, L * (int64_t)p.planes * P * per * d)};
    }
    const int64_t host_page = p.kind == LAYER_FIRST ? P * row : (int64_t)p.host_page();
    hicache_strided shape = normal(P * row, host_page, axes, d);
    uint64_t bits = shape.run | shape.device_page | shape.host_page | p.device_base | p.host_base;
    for (const hicache_axis &a : shape.axes) bits |= a.device | a.host;
    for (uint64_t l = 0; l < p.layers; ++l)
        for (uint64_t q = 0; q < p.planes; ++q) bits |= p.device_of(l, q) | host_address(p, 0, Element{l, q, 0, 0});
    shape.width = widest(bits);
    return shape;
}

// Planes of a range of layers, K and V of a layer together.
inline std::vector<hicache_plane> planes_of(const Pool &p, uint64_t from, uint64_t to, int only = -1) {
    std::vector<hicache_plane> planes;
    for (uint64_t layer = from; layer < to; ++layer)
        for (uint64_t plane = 0; plane < p.planes; ++plane)
            if (only < 0 || (uint64_t)only == plane)
                planes.push_back({p.device_of(layer, plane), host_address(p, 0, Element{layer, plane, 0, 0})});
    return planes;
}

// ---- Random cases -----------------------------------------------------------------------------------------

using Random = std::mt19937_64;

inline uint64_t below(Random &random, uint64_t n) { return random() % n; }

inline uint64_t pick(Random &random, std::initializer_list<uint64_t> from) {
    return from.begin()[below(random, from.size())];
}

inline Pool random_pool(Random &random, uint64_t most_payload) {
    for (;;) {
        Pool p = {};
        p.kind = (Kind)below(random, KINDS);
        p.planes = 1 + below(random, 2); // MLA has one plane of one head
        p.layers = 1 + below(random, 4);
        p.page = pick(random, {1, 1, 2, 3, 5, 16});
        p.heads = p.planes == 1 ? 1 : pick(random, {1, 1, 2, 3, 4, 8});
        p.head = pick(random, {1, 2, 12, 24, 36, 64, 66, 80, 128, 256, 576, 1040, 1152, 2048, 1 + below(random, 300)});
        p.groups = p.kind == PAGE_UNIFIED && p.heads % 2 == 0 ? pick(random, {1, 2, p.heads}) : 1;
        if (p.payload() <= most_payload) return p;
    }
}

// Distinct slots for each page.
inline std::vector<hicache_page> random_pages(Random &random, const Pool &p, uint64_t count) {
    std::vector<hicache_page> pages;
    while (pages.size() < count) {
        const hicache_page page{(uint32_t)below(random, p.device_slots), (uint32_t)below(random, p.host_slots)};
        const auto clash = [&](auto &other) { return other.device == page.device || other.host == page.host; };
        if (std::none_of(pages.begin(), pages.end(), clash)) pages.push_back(page);
    }
    return pages;
}

} // namespace test
