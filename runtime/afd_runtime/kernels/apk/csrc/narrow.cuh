// A narrow tile: at most 32 tokens against 256 weight rows, so that a decode round reads its weights once at
// memory speed. Weights are the M operand (64 rows a warpgroup and half), tokens the N operand. It needs 48
// registers, few enough to run while a prefill tile's 128 accumulators stay where they are.
//
// Thread layout of one m64n32 accumulator d[16] (PTX ISA, wgmma D fragment): weight row 16 * warp + lane / 4
// (+ 8 for d[4j+2], d[4j+3]), token 8j + 2 * (lane % 4) (+ 1 for the odd ones).
#pragma once

#include "epilogue.cuh"
#include "mma.cuh"
#include "shared.cuh"

namespace afd::apk {

__device__ __forceinline__ void narrow_tile(Shared& s, Cursor<kStages>& stage, Cursor<kOuts>& out, const Item& item,
                                            u32 wg, u32 warp, u32 lane) {
    constexpr u32 kSums = Fp8Mma<kFewTokens>::kNumAccum;
    float sum[2][kSums] = {}, part[kSums];
    const u32 pair = 2 * (lane % 4);

    #pragma unroll 1
    for (u32 k = 0; k < item.k_blocks; ++ k, stage.next()) {
        Stage& in = s.stage[stage.at];
        s.stage_full[stage.at].wait(stage.phase);
        float2 scale[kSums / 4];
        #pragma unroll
        for (u32 j = 0; j < kSums / 4; ++ j)
            scale[j] = ld_shared(reinterpret_cast<float2*>(s.token_scale[stage.at] + 8 * j + pair));
        const float weight[2] = {ld_shared(&s.weight_scale[stage.at][0]), ld_shared(&s.weight_scale[stage.at][1])};
        #pragma unroll
        for (u32 half = 0; half < 2; ++ half) {
            multiply<kFewTokens>(operand(in.weights + half * kHalfBytes + wg * 64 * kBlockK), operand(in.tokens), part);
            if (half == 1 and lane == 0)
                s.stage_empty[stage.at].arrive();
            #pragma unroll
            for (u32 j = 0; j < kSums / 4; ++ j) {
                const float scale_0 = weight[half] * scale[j].x, scale_1 = weight[half] * scale[j].y;
                sum[half][4 * j + 0] += scale_0 * part[4 * j + 0];
                sum[half][4 * j + 1] += scale_1 * part[4 * j + 1];
                sum[half][4 * j + 2] += scale_0 * part[4 * j + 2];
                sum[half][4 * j + 3] += scale_1 * part[4 * j + 3];
            }
        }
    }
    if (item.flags & kDown)
        store_narrow_down(s, out, sum, wg, warp, lane);
    else
        store_narrow_gate_up(s, out, sum, item, wg, warp, lane);
}

}  // namespace afd::apk
