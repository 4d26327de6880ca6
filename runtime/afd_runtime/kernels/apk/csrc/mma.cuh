// One K-block (128 deep) of FP8 matrix products on the tensor cores, through DeepGEMM's wgmma wrappers.
#pragma once

#include <cute/numeric/integer_sequence.hpp>

#include <deep_gemm/mma/sm90.cuh>
#include <deep_gemm/ptx/ld_st.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

#include "types.cuh"

namespace afd::apk {

using deep_gemm::ptx::ld_shared;

template <u32 N>
using Fp8Mma = typename deep_gemm::mma::sm90::FP8MMASelector<N>::type;

// An operand tile in shared memory: rows of 128 bytes, K contiguous, 128-byte swizzle.
__device__ __forceinline__ auto operand(uint8_t* tile) { return deep_gemm::mma::sm90::make_smem_desc(tile, 1); }

// part = a x b over one K-block; done when this returns. The fences keep the compiler from touching `part` while
// the tensor core owns it: in flight over a loop's back edge, ptxas would serialise every wgmma (C7514).
template <u32 N>
__device__ __forceinline__ void multiply(cute::GmmaDescriptor a, cute::GmmaDescriptor b, float (&part)[Fp8Mma<N>::kNumAccum]) {
    const u32 a_lo = a.reg32_[0], b_lo = b.reg32_[0];
    #pragma unroll
    for (u32 i = 0; i < Fp8Mma<N>::kNumAccum; ++ i)
        deep_gemm::ptx::warpgroup_fence_operand(part[i]);
    deep_gemm::ptx::warpgroup_arrive();
    #pragma unroll
    for (u32 step = 0; step < kBlockK / Fp8Mma<N>::K; ++ step) {
        a.reg32_[0] = a_lo + step * Fp8Mma<N>::K / 16;
        b.reg32_[0] = b_lo + step * Fp8Mma<N>::K / 16;
        Fp8Mma<N>::wgmma(a, b, part, step);
    }
    deep_gemm::ptx::warpgroup_commit_batch();
    #pragma unroll
    for (u32 i = 0; i < Fp8Mma<N>::kNumAccum; ++ i)
        deep_gemm::ptx::warpgroup_fence_operand(part[i]);
    deep_gemm::ptx::warpgroup_wait<0>();
}

}  // namespace afd::apk
