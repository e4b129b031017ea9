// A stand-in for CUDA's runtime on a machine without GPU: what cuda/src uses of it, and no more.
//
// Streams are queues; nothing moves when something is enqueued. Each query runs a few operations, of streams that
// are picked at random among those whose first operation may run: whatever order events allow is tried, so that a
// missing edge shows. Kernels run thread after thread. "Device" memory is the CPU's.
// On error: the codes of CUDA's runtime, and a call can be made to fail on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define CUDART_VERSION 13000
#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(threads, groups)

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorNotSupported = 801,
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaMemcpySrcAccessOrder { cudaMemcpySrcAccessOrderStream = 1, cudaMemcpySrcAccessOrderAny = 3 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
constexpr unsigned cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1;
constexpr unsigned cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2;

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
struct cudaMemLocation {
    int type, id;
};
struct cudaMemcpyAttributes {
    cudaMemcpySrcAccessOrder srcAccessOrder;
    cudaMemLocation srcLocHint, dstLocHint;
    unsigned flags;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

extern thread_local dim3 threadIdx, blockIdx, gridDim;

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaGetLastError();
const char *cudaGetErrorName(cudaError_t code);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);

cudaError_t cudaMalloc(void **at, size_t bytes);
cudaError_t cudaFree(void *at);
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *at);
cudaError_t cudaHostGetDevicePointer(void **seen, void *at, unsigned flags);

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes, size_t count,
                                 cudaMemcpyAttributes *attributes, size_t *indices, size_t kinds, cudaStream_t stream);

// ---- What only the emulation has -------------------------------------------------------------------------

namespace emulated {

struct Counts {
    size_t streams, events, allocations, registrations; // alive
    size_t launches, copies, batches;                   // ever enqueued
    size_t widest;                                      // thread groups of the largest launch ever
};

void reset(uint64_t seed, int driver, int devices); // forgets everything
Counts counts();
void fail(const char *call, int after, cudaError_t code); // that call fails once, after so many good ones
void capture(cudaStream_t stream, bool active);
void alias(ptrdiff_t first, ptrdiff_t later); // what the device adds to registered addresses
void around_kernels(std::function<void(bool runs)> hook); // called before and after each
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work); // nullptr: the default stream
void run(size_t most); // operations, in any order that events allow
bool idle();           // nothing is left to run
cudaError_t launched(const char *call, unsigned groups, std::function<void()> work, cudaStream_t stream);

} // namespace emulated

// The typed form that CUDA's own header has. Runs every thread of every group, one after the other.
template <class Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters), dim3 groups, dim3 threads, void **arguments, size_t,
                             cudaStream_t stream) {
    Parameters copy = *static_cast<Parameters *>(arguments[0]);
    const auto work = [=] {
        gridDim = groups;
        for (unsigned group = 0; group < groups.x; ++group)
            for (unsigned thread = 0; thread < threads.x; ++thread) {
                blockIdx = dim3(group), threadIdx = dim3(thread);
                kernel(copy);
            }
    };
    return emulated::launched("cudaLaunchKernel", groups.x, work, stream);
}
