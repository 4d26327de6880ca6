// A store warp: sends its math warpgroup's pieces out by TMA and, once a unit's results are in memory, counts it.
// Two store warps count each unit, so an expert's activations are there at 2 x its gate-up units and a run is over
// at 2 x its units. Whoever counts last closes the run's tickets, zeroes its counters, and reports `done`, in this
// order: the caller may refill the slot as soon as it sees `done`.
#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "claim.cuh"
#include "shared.cuh"

namespace afd::apk {

__device__ inline void store_pieces(Shared& s, const Params& p, const Item& item, Cursor<kOuts>& out, u32 wg) {
    const bool narrow = item.flags & kNarrow, down = item.flags & kDown;
    const Slot& slot = p.queue[item.flags & kIsPrefill ? kPrefill : kDecode].slot[item.slot];
    const CUtensorMap* map = down ? &slot.y_store : &slot.act_store;
    const u32 pieces = (narrow ? 1 : 2) * (down ? 2 : 1);
    const u32 first_row = narrow ? 0 : wg * 64, box_bytes = kRowAlign * 64 * (down ? 2 : 1);
    const u32 boxes = narrow ? 1 : 2;
    for (u32 piece = 0; piece < pieces; ++ piece, out.next()) {
        s.out_full[wg][out.at].wait(out.phase);
        // A narrow tile's warpgroup has 64 columns of each 128-row half, a wide tile's all columns of its rows.
        const u32 col = item.col + (narrow ? piece * 128 + wg * 64 : piece * 64);
        for (u32 box = 0; box < boxes; ++ box)
            if (first_row + box * kRowAlign < item.rows)     // never beyond the expert's own rows
                cute::SM90_TMA_STORE_2D::copy(map, s.out[wg][out.at] + box * box_bytes, col, item.row + first_row + box * kRowAlign);
        cute::tma_store_arrive();
        cute::tma_store_wait<0>();                   // the buffer has been read
        s.out_empty[wg][out.at].arrive();
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");    // the results are written
}

__device__ inline void store_role(Shared& s, const Params& p, u32 wg, u32 lane) {
    Cursor<kItems> items;
    Cursor<kOuts> out;
    while (true) {
        const Item item = take_item(s, items, lane);
        if (item.flags & kStop)
            return;
        if (not (item.flags & kLast))
            continue;
        const u32 which = item.flags & kIsPrefill ? kPrefill : kDecode;
        const QueueView& q = p.queue[which];
        u32* arrived = q.arrived + item.slot * kMaxExperts;
        u32 before = 0;
        if (lane == 0) {
            store_pieces(s, p, item, out, wg);
            if (p.log != nullptr and wg == 0)
                atomicAdd(p.log + (static_cast<size_t>(which) * p.log_runs + (item.run - 1) % p.log_runs) * p.log_units + item.unit, 1u);
            fence_gpu();
            if (not (item.flags & kDown))
                atomicAdd(arrived + item.expert, 1u);
            before = atomicAdd(q.finished + item.slot, 1u);
            fence_gpu();
        }
        before = __shfl_sync(~0u, before, 0);
        if (before + 1 == 2 * item.run_units) {
            for (u32 e = lane; e < p.experts; e += 32)
                arrived[e] = 0;
            __syncwarp();
            if (lane == 0) {
                q.finished[item.slot] = 0;
                fence_sys();
                close_and_report(q, item.slot, item.run);
            }
            __syncwarp();
        }
    }
}

}  // namespace afd::apk
