// The kernels: `copy_index.h` with real loads and stores, for each width, mode and size of parameters.
//
// One thread group a multiprocessor, 1024 threads with four loads each in flight: 64 KiB, so that two of 132
// multiprocessors cover PCIe's latency (Little's law: 55 GB/s for 1.3 us are 72 KB) and a running forward keeps
// the rest. Launched by `cudaLaunchKernel`: the `<<<>>>` stubs hide a static that needs thread-safe guards.
// On error: the launch's CUDA error.
#pragma once

#include "copy_index.h"

#include <cuda_runtime.h>

namespace hicache {

constexpr uint32_t THREADS = 1024;

// Bytes that are used once: not kept in L1. The only lines that the CPU's test can't see.
struct DeviceMemory {
#ifdef __CUDA_ARCH__
    __device__ static void load(Word16 &w, uint64_t at) {
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.part[0]), "=r"(w.part[1]), "=r"(w.part[2]), "=r"(w.part[3])
                     : "l"(at)
                     : "memory");
    }
    __device__ static void load(Word8 &w, uint64_t at) {
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                     : "=r"(w.part[0]), "=r"(w.part[1])
                     : "l"(at)
                     : "memory");
    }
    __device__ static void load(Word4 &w, uint64_t at) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(w.part) : "l"(at) : "memory");
    }
    __device__ static void load(Word1 &w, uint64_t at) {
        uint32_t wide;
        asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(wide) : "l"(at) : "memory");
        w.part = (uint8_t)wide;
    }
    __device__ static void store(uint64_t at, const Word16 &w) {
        asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w.part[0]),
                     "r"(w.part[1]), "r"(w.part[2]), "r"(w.part[3])
                     : "memory");
    }
    __device__ static void store(uint64_t at, const Word8 &w) {
        asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(w.part[0]), "r"(w.part[1])
                     : "memory");
    }
    __device__ static void store(uint64_t at, const Word4 &w) {
        asm volatile("st.global.L1::no_allocate.u32 [%0], %1;" ::"l"(at), "r"(w.part) : "memory");
    }
    __device__ static void store(uint64_t at, const Word1 &w) {
        asm volatile("st.global.L1::no_allocate.u8 [%0], %1;" ::"l"(at), "r"((uint32_t)w.part) : "memory");
    }
#else
    // Never runs on a GPU: for the compiler's host pass, and for the emulation of the tests.
    template <class Word> HICACHE_HD static void load(Word &w, uint64_t at) { w = *(const Word *)(uintptr_t)at; }
    template <class Word> HICACHE_HD static void store(uint64_t at, const Word &w) { *(Word *)(uintptr_t)at = w; }
#endif
};

template <class Word, uint32_t PAGES>
__global__ void __launch_bounds__(THREADS, 1) rows_kernel(const __grid_constant__ Launch<PAGES> launch) {
    DeviceMemory memory;
    copy_rows<Word>(launch, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS, memory);
}

template <class Word, uint32_t PAGES>
__global__ void __launch_bounds__(THREADS, 1) any_kernel(const __grid_constant__ Launch<PAGES> launch) {
    DeviceMemory memory;
    copy_any<Word>(launch, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS, memory);
}

template <class Word, uint32_t PAGES>
cudaError_t launch_width(const Launch<PAGES> &launch, uint32_t groups, cudaStream_t stream) {
    void *arguments[] = {(void *)&launch};
    if (in_rows(launch.shape.units))
        return cudaLaunchKernel(&rows_kernel<Word, PAGES>, dim3(groups), dim3(THREADS), arguments, 0, stream);
    return cudaLaunchKernel(&any_kernel<Word, PAGES>, dim3(groups), dim3(THREADS), arguments, 0, stream);
}

// At most `most` thread groups, and no more than there is work for.
template <uint32_t PAGES>
cudaError_t launch_copy(const Launch<PAGES> &launch, uint32_t width, uint32_t most, cudaStream_t stream) {
    static_assert(sizeof(Launch<PAGES>) <= 32764, "parameters of a kernel");
    const uint32_t lanes = in_rows(launch.shape.units) ? LANES : 1;
    const uint64_t needed = ((uint64_t)launch.shape.total * lanes + THREADS - 1) / THREADS;
    const uint32_t groups = needed < most ? (uint32_t)needed : most;
    switch (width) {
    case 16: return launch_width<Word16>(launch, groups, stream);
    case 8: return launch_width<Word8>(launch, groups, stream);
    case 4: return launch_width<Word4>(launch, groups, stream);
    default: return launch_width<Word1>(launch, groups, stream);
    }
}

} // namespace hicache
