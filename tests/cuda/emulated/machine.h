// The emulated machine: streams as queues, events as numbers, and which memory is whose. Part of runtime.cpp.
//
// One mutex over everything: this is a model of ordering, not of speed.
#pragma once

#include "cuda_runtime.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <vector>

thread_local dim3 threadIdx(0), blockIdx(0), gridDim(0);

// The number of the last record: asked for, and come by. Operations keep `reached` after the event is destroyed.
struct emulated_event {
    uint64_t recorded = 0;
    std::shared_ptr<uint64_t> reached = std::make_shared<uint64_t>(0);
};

struct Operation {
    std::function<void()> work;
    std::shared_ptr<uint64_t> wait, record;
    uint64_t number = 0; // of that event's record
};

struct emulated_stream {
    std::deque<Operation> queue;
    bool captured = false;
};

namespace {

struct Machine {
    std::mt19937_64 random{1};
    int driver = 13000, devices = 1;
    std::set<cudaStream_t> streams;
    emulated_stream standard;
    std::set<cudaEvent_t> events;
    std::map<char *, size_t> allocations, registrations;
    emulated::Counts ever{};
    std::string failing;
    int failing_after = 0;
    cudaError_t failing_code = cudaSuccess;
    ptrdiff_t alias_first = 0, alias_later = 0;
    std::function<void(bool)> hook;
    size_t most_pinned = SIZE_MAX, most_pinned_in_all = SIZE_MAX;
};

Machine machine;
std::recursive_mutex mutex;

#define ENTER(name)                                                                                                    \
    std::lock_guard<std::recursive_mutex> guard(mutex);                                                                \
    if (machine.failing == name && machine.failing_after-- == 0) {                                                     \
        machine.failing.clear();                                                                                       \
        return machine.failing_code;                                                                                   \
    }

emulated_stream *queue_of(cudaStream_t stream) {
    if (stream == nullptr) return &machine.standard;
    return machine.streams.count(stream) ? stream : nullptr;
}

bool runnable(const emulated_stream &stream) {
    if (stream.queue.empty()) return false;
    const Operation &first = stream.queue.front();
    return !first.wait || *first.wait >= first.number;
}

void run_first(emulated_stream &stream) {
    Operation first = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (first.work) first.work();
    if (first.record) *first.record = first.number;
}

bool step() {
    std::vector<emulated_stream *> ready;
    if (runnable(machine.standard)) ready.push_back(&machine.standard);
    for (cudaStream_t stream : machine.streams)
        if (runnable(*stream)) ready.push_back(stream);
    if (ready.empty()) return false;
    run_first(*ready[machine.random() % ready.size()]);
    return true;
}

cudaError_t push(cudaStream_t stream, Operation operation) {
    emulated_stream *queue = queue_of(stream);
    if (queue == nullptr) return cudaErrorInvalidValue;
    queue->queue.push_back(std::move(operation));
    return cudaSuccess;
}

// Inside one allocation or one registration, or nowhere near any of them (the tests' own "device" memory).
bool inside_one(const void *at, size_t bytes) {
    for (const auto *regions : {&machine.allocations, &machine.registrations})
        for (const auto &[base, size] : *regions) {
            const char *first = (const char *)at, *last = first + bytes;
            const bool touches = first < base + size && base < last;
            if (touches && (first < base || last > base + size)) return false;
        }
    return true;
}

} // namespace
