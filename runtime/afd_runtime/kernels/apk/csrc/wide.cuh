// A wide tile: 128 tokens against 256 weight rows, in chunks of K-blocks. Tokens are the M operand (64 rows a
// warpgroup), weights the N operand in two halves of 128, so that each half has one weight scale and gate-up's
// halves (gate, up) meet in the same thread. The two halves share one set of 64 partial registers; their 128 sums
// live across chunks and, for prefill, across the narrow decode tiles that run between chunks.
//
// Thread layout of one m64n128 accumulator d[64]: token 16 * warp + lane / 4 (+ 8 for d[4j+2], d[4j+3]), weight
// row 8j + 2 * (lane % 4) (+ 1 for the odd ones).
#pragma once

#include "epilogue.cuh"
#include "mma.cuh"
#include "shared.cuh"

namespace afd::apk {

constexpr u32 kWideSums = Fp8Mma<128>::kNumAccum;
static_assert(kWideSums == 64);

__device__ __forceinline__ void wide_chunk(Shared& s, Cursor<kStages>& stage, float (&sum)[2][kWideSums], u32 k_blocks,
                                           u32 wg, u32 warp, u32 lane) {
    float part[kWideSums];
    const u32 row = wg * 64 + warp * 16 + lane / 4;

    #pragma unroll 1
    for (u32 k = 0; k < k_blocks; ++ k, stage.next()) {
        Stage& in = s.stage[stage.at];
        s.stage_full[stage.at].wait(stage.phase);
        const float token_0 = ld_shared(s.token_scale[stage.at] + row), token_1 = ld_shared(s.token_scale[stage.at] + row + 8);
        const float weight[2] = {ld_shared(&s.weight_scale[stage.at][0]), ld_shared(&s.weight_scale[stage.at][1])};
        #pragma unroll
        for (u32 half = 0; half < 2; ++ half) {
            multiply<128>(operand(in.tokens + wg * 64 * kBlockK), operand(in.weights + half * kHalfBytes), part);
            if (half == 1 and lane == 0)
                s.stage_empty[stage.at].arrive();
            const float scale_0 = token_0 * weight[half], scale_1 = token_1 * weight[half];
            #pragma unroll
            for (u32 j = 0; j < kWideSums / 4; ++ j) {
                sum[half][4 * j + 0] += scale_0 * part[4 * j + 0];
                sum[half][4 * j + 1] += scale_0 * part[4 * j + 1];
                sum[half][4 * j + 2] += scale_1 * part[4 * j + 2];
                sum[half][4 * j + 3] += scale_1 * part[4 * j + 3];
            }
        }
    }
}

// A warpgroup without valid rows only keeps the pipeline going.
__device__ __forceinline__ void skip_chunk(Shared& s, Cursor<kStages>& stage, u32 k_blocks, u32 lane) {
    #pragma unroll 1
    for (u32 k = 0; k < k_blocks; ++ k, stage.next()) {
        s.stage_full[stage.at].wait(stage.phase);
        __syncwarp();
        if (lane == 0)
            s.stage_empty[stage.at].arrive();
    }
}

// Sets an unfinished tile's sums aside, or takes them back. Private to the thread, so it needs no fence.
__device__ __forceinline__ void park(float4* place, float (&sum)[2][kWideSums]) {
    #pragma unroll
    for (u32 i = 0; i < 2 * kWideSums / 4; ++ i) {
        float* v = &sum[i / 16][i % 16 * 4];
        place[i * kMathThreads] = make_float4(v[0], v[1], v[2], v[3]);
        v[0] = v[1] = v[2] = v[3] = 0;
    }
}

__device__ __forceinline__ void resume(const float4* place, float (&sum)[2][kWideSums]) {
    #pragma unroll
    for (u32 i = 0; i < 2 * kWideSums / 4; ++ i) {
        float* v = &sum[i / 16][i % 16 * 4];
        const float4 kept = place[i * kMathThreads];
        v[0] = kept.x, v[1] = kept.y, v[2] = kept.z, v[3] = kept.w;
    }
}

}  // namespace afd::apk
