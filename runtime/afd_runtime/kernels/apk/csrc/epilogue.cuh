// From sums to results: SwiGLU and 1x128 requantisation after gate-up, BF16 after down. Math warps write pieces of
// 64 columns into shared memory, swizzled as the TMA store map expects, and hand them to their store warp.
//
//   wide    piece = 64 tokens x 64 columns:  gate-up 2 pieces (FP8), down 4 (BF16)
//   narrow  piece = 32 tokens x 64 columns:  gate-up 1 piece,        down 2; the warpgroup's own weight rows
//
// Activation scale: max |silu(gate) * up| over the tile's 128 columns, at least 1e-4, over 448 (DeepGEMM's
// `per_token_cast_to_fp8`), from FP32 sums: gate and up are never rounded to BF16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <deep_gemm/ptx/ld_st.cuh>

#include "shared.cuh"
#include "sync.cuh"

namespace afd::apk {

constexpr float kFp8Max = 448.0f, kLeastAmax = 1e-4f;

__device__ __forceinline__ float swiglu(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }

__device__ __forceinline__ uint16_t pack_fp8(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    const __nv_bfloat162 v = __float22bfloat162_rn(make_float2(low, high));
    return *reinterpret_cast<const u32*>(&v);
}

// Waits until the piece's buffer is free; `hand_over` gives it to the store warp.
__device__ __forceinline__ uint8_t* next_piece(Shared& s, const Cursor<kOuts>& out, u32 wg) {
    s.out_empty[wg][out.at].wait(out.phase ^ 1);
    return s.out[wg][out.at];
}

__device__ __forceinline__ void hand_over(Shared& s, Cursor<kOuts>& out, u32 wg, u32 lane) {
    fence_async_proxy();
    __syncwarp();
    if (lane == 0)
        s.out_full[wg][out.at].arrive();
    out.next();
}

// Byte offset of (row, byte column) in a piece with rows of 64 bytes (FP8, swizzle 64) or 128 (BF16, swizzle 128).
__device__ __forceinline__ u32 swizzle_64(u32 row, u32 byte) { return row * 64 + (((byte / 16) ^ ((row / 2) % 4)) * 16) + byte % 16; }
__device__ __forceinline__ u32 swizzle_128(u32 row, u32 chunk) { return row * 128 + ((chunk ^ (row % 8)) * 16); }

__device__ __forceinline__ void store_wide_gate_up(Shared& s, Cursor<kOuts>& out, float (&sum)[2][64], const Item& item,
                                                   u32 wg, u32 warp, u32 lane) {
    float most[2] = {kLeastAmax, kLeastAmax};
    #pragma unroll
    for (u32 i = 0; i < 64; ++ i) {
        sum[0][i] = swiglu(sum[0][i], sum[1][i]);
        most[i / 2 % 2] = fmaxf(most[i / 2 % 2], fabsf(sum[0][i]));
    }
    const u32 row = warp * 16 + lane / 4;            // in the warpgroup's 64
    float inverse[2];
    #pragma unroll
    for (u32 i = 0; i < 2; ++ i) {                   // the four lanes of a row hold its 128 columns
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 2));
        inverse[i] = __fdividef(kFp8Max, most[i]);
        const u32 in_tile = wg * 64 + row + 8 * i;
        if (lane % 4 == 0 and in_tile < item.rows)
            item.scale_out[item.row + in_tile] = most[i] * (1 / kFp8Max);
    }
    #pragma unroll
    for (u32 piece = 0; piece < 2; ++ piece) {
        uint8_t* to = next_piece(s, out, wg);
        #pragma unroll
        for (u32 j = 0; j < 8; ++ j) {
            const float* v = &sum[0][piece * 32 + j * 4];
            const u32 byte = 8 * j + 2 * (lane % 4);
            *reinterpret_cast<uint16_t*>(to + swizzle_64(row, byte)) = pack_fp8(v[0] * inverse[0], v[1] * inverse[0]);
            *reinterpret_cast<uint16_t*>(to + swizzle_64(row + 8, byte)) = pack_fp8(v[2] * inverse[1], v[3] * inverse[1]);
        }
        hand_over(s, out, wg, lane);
    }
}

__device__ __forceinline__ void store_wide_down(Shared& s, Cursor<kOuts>& out, float (&sum)[2][64], u32 wg, u32 warp, u32 lane) {
    #pragma unroll
    for (u32 piece = 0; piece < 4; ++ piece) {
        uint8_t* to = next_piece(s, out, wg);
        // stmatrix x2 writes two 8x8 blocks, rows r and r + 8 of 8 columns; lanes 0-15 give the row addresses.
        #pragma unroll
        for (u32 j = 0; j < 8; ++ j) {
            const float* v = &sum[piece / 2][piece % 2 * 32 + j * 4];
            deep_gemm::ptx::SM90_U32x2_STSM_N<u32>::copy(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                                         to + swizzle_128(warp * 16 + lane % 16, j));
        }
        hand_over(s, out, wg, lane);
    }
}

__device__ __forceinline__ void store_narrow_gate_up(Shared& s, Cursor<kOuts>& out, float (&sum)[2][16], const Item& item,
                                                     u32 wg, u32 warp, u32 lane) {
    // The 128 columns of a token lie in both warpgroups: their maxima meet in the other warpgroup's free buffer
    // too, so both must have been handed back before either writes.
    uint8_t* to = next_piece(s, out, wg);
    float* maxima = reinterpret_cast<float*>(to + kOutBytes / 2);     // [4 warps][32 tokens] of this warpgroup
    const u32 pair = 2 * (lane % 4);
    #pragma unroll
    for (u32 j = 0; j < 4; ++ j) {
        float most[2] = {kLeastAmax, kLeastAmax};
        #pragma unroll
        for (u32 i = 0; i < 4; ++ i) {
            sum[0][4 * j + i] = swiglu(sum[0][4 * j + i], sum[1][4 * j + i]);
            most[i % 2] = fmaxf(most[i % 2], fabsf(sum[0][4 * j + i]));
        }
        #pragma unroll
        for (u32 i = 0; i < 2; ++ i) {
            #pragma unroll
            for (u32 step = 4; step < 32; step *= 2)
                most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], step));
            if (lane < 4)
                maxima[warp * kFewTokens + 8 * j + pair + i] = most[i];
        }
    }
    cutlass::arch::NamedBarrier::sync(kMathThreads, 1);
    const float* both[2] = {reinterpret_cast<float*>(s.out[0][out.at] + kOutBytes / 2),
                            reinterpret_cast<float*>(s.out[1][out.at] + kOutBytes / 2)};
    #pragma unroll
    for (u32 j = 0; j < 4; ++ j) {
        #pragma unroll
        for (u32 i = 0; i < 2; ++ i) {
            const u32 token = 8 * j + pair + i;
            float most = kLeastAmax;
            #pragma unroll
            for (u32 w = 0; w < 8; ++ w)
                most = fmaxf(most, both[w / 4][w % 4 * kFewTokens + token]);
            if (wg == 0 and warp == 0 and lane < 4 and token < item.rows)
                item.scale_out[item.row + token] = most * (1 / kFp8Max);
            const float inverse = __fdividef(kFp8Max, most);
            const uint16_t two = pack_fp8(sum[0][4 * j + i] * inverse, sum[0][4 * j + 2 + i] * inverse);
            const u32 column = warp * 16 + lane / 4;
            to[swizzle_64(token, column)] = two & 0xff;
            to[swizzle_64(token, column + 8)] = two >> 8;
        }
    }
    // Nobody may refill a buffer while the other warpgroup still reads its maxima.
    cutlass::arch::NamedBarrier::sync(kMathThreads, 1);
    hand_over(s, out, wg, lane);
}

__device__ __forceinline__ void store_narrow_down(Shared& s, Cursor<kOuts>& out, float (&sum)[2][16], u32 wg, u32 warp, u32 lane) {
    #pragma unroll
    for (u32 half = 0; half < 2; ++ half) {
        uint8_t* to = next_piece(s, out, wg);
        // Blocks are (weight row, token); the transposing stmatrix writes (token, weight row): lane r names token r
        // of its 8x8 block, blocks 0 and 1 being weight rows 0-7 and 8-15 of the warp.
        #pragma unroll
        for (u32 j = 0; j < 4; ++ j) {
            const float* v = &sum[half][4 * j];
            deep_gemm::ptx::SM90_U32x2_STSM_T<u32>::copy(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                                         to + swizzle_128(8 * j + lane % 8, warp * 2 + lane / 8 % 2));
        }
        hand_over(s, out, wg, lane);
    }
}

}  // namespace afd::apk
