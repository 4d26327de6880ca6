// Memory-order primitives that the claim protocol names. Payload is written by NVLink peers, copy engines and
// TMA stores, and read by TMA loads (the async proxy), hence the two fences of `acquire_payload`.
#pragma once

#include "types.cuh"

namespace afd::apk {

__device__ __forceinline__ u64 peek(const u64* word) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// One value for the whole warp: lanes that read for themselves could see different ones.
__device__ __forceinline__ u64 peek_together(const u64* word) { return __shfl_sync(~0u, peek(word), 0); }

__device__ __forceinline__ u32 load_acquire(const u32* word) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ uint4 load_fresh(const u32* words) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(words) : "memory");
    return v;
}

__device__ __forceinline__ u32 load_fresh_word(const u32* word) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ u64 fetch_add(u64* word, u64 amount) {
    u64 old;
    asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(amount) : "memory");
    return old;
}

__device__ __forceinline__ void store_release_sys(u64* word, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(word), "l"(value) : "memory");
}

__device__ __forceinline__ void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

// After a relaxed read that saw a flag: makes what the flag's writer wrote visible to generic and TMA reads.
__device__ __forceinline__ void acquire_payload() { fence_sys(); fence_async_proxy(); }

__device__ __forceinline__ u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

}  // namespace afd::apk
