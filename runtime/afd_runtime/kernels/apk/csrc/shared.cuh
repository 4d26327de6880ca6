// Shared memory of a CTA and the barriers between its roles. 384 threads, one CTA an SM:
//
//   warps 0-3, 4-7   math warpgroups 0, 1: token rows 0-63 / 64-127 (wide), weight rows 0-63 / 64-127 of each
//                    half (narrow). Epilogue into `out`.
//   warp 8           producer: claims units, cuts them into items, issues TMA loads
//   warps 9, 10      store warps of math warpgroups 0, 1: TMA stores, completion counters
//   warp 11          leaves at once
//
//            item[2]   ──full/empty──►  math, store          what to do next
//            stage[4]  ──full/empty──►  math                 one K-block: 128 tokens + 256 weight rows, scales
//   math ──► out[wg][2] ─full/empty──►  store warp wg        64 columns x (64 or 32) rows of results
//
// Every role reads the same items in the same order; only the producer ever looks at the queues. That is why a
// preemption cannot part them: a role that polled for itself could wait for a stage nobody will fill.
#pragma once

#include <cute/numeric/integer_sequence.hpp>
#include <cutlass/arch/barrier.h>

#include "claim.cuh"

namespace afd::apk {

constexpr u32 kStages = 4, kItems = 2, kOuts = 2;
constexpr u32 kMathWarps = 8, kMathThreads = 32 * kMathWarps, kThreads = kMathThreads + 128;
constexpr u32 kProducerWarp = 8, kStoreWarp = 9;
constexpr u32 kOutBytes = 64 * 64 * 2;
constexpr u32 kHalfBytes = 128 * kBlockK;            // 128 weight rows of one K-block

using Barrier = cutlass::arch::ClusterTransactionBarrier;

struct Stage {
    uint8_t tokens[kTokens * kBlockK];
    uint8_t weights[kWeightRows * kBlockK];
};

struct alignas(1024) Shared {
    Stage stage[kStages];
    uint8_t out[2][kOuts][kOutBytes];
    float token_scale[kStages][kTokens];
    float weight_scale[kStages][2];                  // of the two 128-row halves
    Item item[kItems];
    Unit prefill;                                    // in the producer's hand: begun, or waiting for activations
    Barrier stage_full[kStages], stage_empty[kStages];
    Barrier item_full[kItems], item_empty[kItems];
    Barrier out_full[2][kOuts], out_empty[2][kOuts];
};
static_assert(sizeof(Stage) % 1024 == 0 and kOutBytes % 1024 == 0, "128-byte swizzle atoms are 1 KiB");
static_assert(sizeof(Shared) == 232448, "all of an SM's shared memory; device.py asks for as much");

// Position in a ring of N barriers: a consumer waits for `phase`, a producer for `phase ^ 1`.
template <u32 N>
struct Cursor {
    u32 at = 0, phase = 0;
    __device__ __forceinline__ void next() {
        at = at == N - 1 ? 0 : at + 1;
        phase ^= at == 0;
    }
};

__device__ inline void init_barriers(Shared& s) {
    for (u32 i = 0; i < kStages; ++ i)
        s.stage_full[i].init(1), s.stage_empty[i].init(kMathWarps);
    for (u32 i = 0; i < kItems; ++ i)
        s.item_full[i].init(1), s.item_empty[i].init(kMathWarps + 2);
    for (u32 wg = 0; wg < 2; ++ wg)
        for (u32 i = 0; i < kOuts; ++ i)
            s.out_full[wg][i].init(4), s.out_empty[wg][i].init(1);
    cutlass::arch::fence_barrier_init();
}

// Copies the next item out of the ring and frees its place. Whole warp.
__device__ __forceinline__ Item take_item(Shared& s, Cursor<kItems>& cursor, u32 lane) {
    s.item_full[cursor.at].wait(cursor.phase);
    const Item item = s.item[cursor.at];
    __syncwarp();
    if (lane == 0)
        s.item_empty[cursor.at].arrive();
    cursor.next();
    return item;
}

}  // namespace afd::apk
