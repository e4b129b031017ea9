// The calls of cuda_runtime.h, over machine.h.
#include "cuda_runtime.h"

#include "machine.h"

namespace emulated {

void reset(uint64_t seed, int driver, int devices) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    machine = Machine{};
    machine.random.seed(seed);
    machine.driver = driver, machine.devices = devices;
}
Counts counts() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    Counts counts = machine.ever;
    counts.streams = machine.streams.size(), counts.events = machine.events.size();
    counts.allocations = machine.allocations.size(), counts.registrations = machine.registrations.size();
    return counts;
}
void fail(const char *call, int after, cudaError_t code) {
    machine.failing = call, machine.failing_after = after, machine.failing_code = code;
}
void capture(cudaStream_t stream, bool active) { queue_of(stream)->captured = active; }
void alias(ptrdiff_t first, ptrdiff_t later) { machine.alias_first = first, machine.alias_later = later; }
void around_kernels(std::function<void(bool)> hook) { machine.hook = std::move(hook); }
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    Operation operation;
    operation.work = std::move(work);
    return push(stream, std::move(operation));
}
void run(size_t most) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    while (most-- > 0 && step()) {}
}
bool idle() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    bool empty = machine.standard.queue.empty();
    for (cudaStream_t stream : machine.streams) empty = empty && stream->queue.empty();
    return empty;
}
cudaError_t launched(const char *call, unsigned groups, std::function<void()> work, cudaStream_t stream) {
    ENTER(call);
    ++machine.ever.launches;
    machine.ever.widest = std::max<size_t>(machine.ever.widest, groups);
    return enqueue(stream, [work] {
        if (machine.hook) machine.hook(true);
        work();
        if (machine.hook) machine.hook(false);
    });
}

} // namespace emulated

cudaError_t cudaDriverGetVersion(int *version) {
    ENTER("cudaDriverGetVersion");
    *version = machine.driver;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    ENTER("cudaGetDeviceCount");
    if (machine.driver == 0) return cudaErrorInsufficientDriver;
    *count = machine.devices;
    return machine.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) { return *value = 3, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorName(cudaError_t code) {
    return code == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaErrorEmulated";
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }

cudaError_t cudaMalloc(void **at, size_t bytes) {
    ENTER("cudaMalloc");
    *at = ::operator new(bytes, std::align_val_t(256));
    machine.allocations[(char *)*at] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void *at) {
    ENTER("cudaFree");
    if (machine.allocations.erase((char *)at) == 0) return cudaErrorInvalidValue;
    ::operator delete(at, std::align_val_t(256));
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned) {
    ENTER("cudaHostRegister");
    for (const auto &[base, size] : machine.registrations)
        if ((char *)at < base + size && base < (char *)at + bytes) return cudaErrorHostMemoryAlreadyRegistered;
    size_t all = bytes;
    for (const auto &[base, size] : machine.registrations) all += size;
    if (bytes > machine.most_pinned || all > machine.most_pinned_in_all) return cudaErrorMemoryAllocation;
    machine.registrations[(char *)at] = bytes;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *at) {
    ENTER("cudaHostUnregister");
    return machine.registrations.erase((char *)at) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaHostGetDevicePointer(void **seen, void *at, unsigned) {
    ENTER("cudaHostGetDevicePointer");
    const bool first = machine.registrations.begin()->first == (char *)at;
    *seen = (char *)at + (first ? machine.alias_first : machine.alias_later);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
    ENTER("cudaStreamCreateWithPriority");
    machine.streams.insert(*stream = new emulated_stream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER("cudaStreamDestroy");
    if (machine.streams.erase(stream) == 0) return cudaErrorInvalidValue;
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ENTER("cudaStreamSynchronize");
    emulated_stream *queue = queue_of(stream);
    if (queue == nullptr) return cudaErrorInvalidValue;
    while (!queue->queue.empty())
        if (!step()) return cudaErrorIllegalAddress; // waits for something that nobody will ever do
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    ENTER("cudaStreamIsCapturing");
    emulated_stream *queue = queue_of(stream);
    if (queue == nullptr) return cudaErrorInvalidValue;
    *status = queue->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    ENTER("cudaStreamWaitEvent");
    if (!machine.events.count(event)) return cudaErrorInvalidValue;
    Operation operation;
    operation.wait = event->reached, operation.number = event->recorded;
    return push(stream, std::move(operation));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    ENTER("cudaEventCreateWithFlags");
    machine.events.insert(*event = new emulated_event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER("cudaEventDestroy");
    if (machine.events.erase(event) == 0) return cudaErrorInvalidValue;
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ENTER("cudaEventRecord");
    if (!machine.events.count(event)) return cudaErrorInvalidValue;
    Operation operation;
    operation.record = event->reached, operation.number = ++event->recorded;
    return push(stream, std::move(operation));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER("cudaEventQuery");
    if (!machine.events.count(event)) return cudaErrorInvalidValue;
    emulated::run(machine.random() % 4);
    return *event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    ENTER("cudaMemcpyAsync");
    if (!inside_one(to, bytes) || !inside_one(from, bytes)) return cudaErrorInvalidValue;
    ++machine.ever.copies;
    return emulated::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes, size_t count,
                                 cudaMemcpyAttributes *attributes, size_t *indices, size_t kinds, cudaStream_t stream) {
    ENTER("cudaMemcpyBatchAsync");
    const bool meant = stream && count > 0 && kinds == 1 && indices[0] == 0;
    if (!meant || attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) return cudaErrorInvalidValue;
    if (machine.driver < 12080) return cudaErrorInsufficientDriver;
    std::vector<std::function<void()>> all;
    for (size_t c = 0; c < count; ++c) {
        if (!inside_one(to[c], bytes[c]) || !inside_one(from[c], bytes[c])) return cudaErrorInvalidValue;
        void *target = to[c];
        const void *source = from[c];
        const size_t size = bytes[c];
        all.push_back([=] { std::memcpy(target, source, size); });
    }
    ++machine.ever.batches;
    // A batch's copies have no order among themselves.
    std::shuffle(all.begin(), all.end(), machine.random);
    return emulated::enqueue(stream, [all] {
        for (const auto &copy : all) copy();
    });
}

// For callers that aren't C++.
extern "C" {
void emulated_machine(uint64_t seed, int driver, int devices) { emulated::reset(seed, driver, devices); }
void emulated_fail(const char *call, int after, int code) { emulated::fail(call, after, (cudaError_t)code); }
void emulated_enqueued(size_t *launches, size_t *batches) {
    const emulated::Counts counts = emulated::counts();
    *launches = counts.launches, *batches = counts.batches;
}
size_t emulated_widest() { return emulated::counts().widest; }
// A stream of the test's own: a model that computes beside the copies.
cudaStream_t emulated_model() {
    cudaStream_t stream = nullptr;
    return cudaStreamCreateWithPriority(&stream, 0, 0) == cudaSuccess ? stream : nullptr;
}
void emulated_end(cudaStream_t stream) {
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
}
// Moves bytes when the stream gets there.
void emulated_move(cudaStream_t stream, void *to, const void *from, size_t bytes) {
    (void)emulated::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}
// How much one registration may have, and all together.
void emulated_limits(size_t one, size_t all) { machine.most_pinned = one, machine.most_pinned_in_all = all; }
size_t emulated_alive() {
    const emulated::Counts counts = emulated::counts();
    return counts.streams + counts.events + counts.allocations + counts.registrations;
}
}
