// The adaptive persistent kernel: one resident launch that runs the expert FFN of all layers, decode and prefill,
// on one GPU. claim.cuh says how work is shared out, shared.cuh which warp does what, produce.cuh what goes first.
//
//   one unit:   activations (FP8, 1x128) x weights (FP8, 128x128)  ──►  gate-up ─ SwiGLU ─ requantise ─►  down ─► BF16
//
// Launch: any number of CTAs up to the number of SMs (SMs left over serve communication), sizeof(Shared) bytes of
// dynamic shared memory. It ends when `control.stop` is set and nothing published is left.
#include <cutlass/arch/reg_reconfig.h>

#include "narrow.cuh"
#include "produce.cuh"
#include "store.cuh"
#include "wide.cuh"

namespace afd::apk {

// Registers a thread: 168 at launch (65536 / 384, in steps of 8); the roles trade what that gives the CTA.
constexpr u32 kOtherRegisters = 88, kMathRegisters = 208;
static_assert(128 * kOtherRegisters + kMathThreads * kMathRegisters <= kThreads * 168, "setmaxnreg would wait for ever");

__device__ __forceinline__ void math_role(Shared& s, const Params& p, u32 wg, u32 warp, u32 lane) {
    Cursor<kItems> items;
    Cursor<kStages> stage;
    Cursor<kOuts> out;
    float sum[2][kWideSums] = {};                    // of the wide tile in work; zero between tiles
    float4* place = reinterpret_cast<float4*>(p.parked) +
                    static_cast<size_t>(blockIdx.x) * (2 * kWideSums / 4) * kMathThreads + threadIdx.x;
    #pragma unroll 1
    while (true) {
        const Item item = take_item(s, items, lane);
        if (item.flags & kStop)
            return;
        if (item.flags & kNarrow) {
            narrow_tile(s, stage, out, item, wg, warp, lane);
            continue;
        }
        if (item.flags & kPark)
            park(place, sum);
        if (item.flags & kResume)
            resume(place, sum);
        if (wg * 64 < item.rows)
            wide_chunk(s, stage, sum, item.k_blocks, wg, warp, lane);
        else
            skip_chunk(s, stage, item.k_blocks, lane);
        if (item.flags & kLast) {
            if (item.flags & kDown)
                store_wide_down(s, out, sum, wg, warp, lane);
            else
                store_wide_gate_up(s, out, sum, item, wg, warp, lane);
            #pragma unroll
            for (u32 i = 0; i < kWideSums; ++ i)
                sum[0][i] = sum[1][i] = 0;
        }
    }
}

}  // namespace afd::apk

extern "C" __global__ void __launch_bounds__(afd::apk::kThreads, 1) afd_apk(const __grid_constant__ afd::apk::Params p) {
    using namespace afd::apk;
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& s = *reinterpret_cast<Shared*>(memory);
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        init_barriers(s);
    __syncthreads();

    if (warp < kMathWarps) {
        cutlass::arch::warpgroup_reg_alloc<kMathRegisters>();
        math_role(s, p, warp / 4, warp % 4, lane);
    } else {
        cutlass::arch::warpgroup_reg_dealloc<kOtherRegisters>();
        if (warp == kProducerWarp)
            Producer(p, s, lane).run();
        else if (warp < kStoreWarp + 2)
            store_role(s, p, warp - kStoreWarp, lane);
    }
}
