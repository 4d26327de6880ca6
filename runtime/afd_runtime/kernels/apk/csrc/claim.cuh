// The claim protocol: how a CTA gets its next unit. tests/unit/apk/test_claim_protocol.py explores it.
//
// One 64-bit word per slot is the caller's ready flag and the ticket counter at once:
//
//        caller                          CTAs                             last store warp
//   ready = {n : 0}   ──release──►  {n : u} = fetch_add(ready, 1)
//                                   u < units(n): the unit is mine   ──►  ready = {n : kClosed}
//                                   else: look at run n + 1               counters = 0
//   write the next payload   ◄──────────────acquire──────────────────     done = n   (release)
//   ready = {n + slots : 0}
//
// A claim must hold against a CTA that lags by any amount:
//  - its ticket may come from a *later* run in the same slot ({n + slots : u}). The unit is then its own to
//    run ("adopted"), or it would be lost; its view still goes to run n + 1, or that run might be left by all.
//  - the extents it read may belong to a later run, whose caller was writing them. They are trusted only if a
//    ticket taken after reading them is open (below kClosed): callers write after `done`, `done` follows close.
#pragma once

#include "sync.cuh"

namespace afd::apk {

constexpr u32 kClosed = 0x80000000u;

__device__ __forceinline__ u32 run_of(u64 word) { return static_cast<u32>(word >> 32); }
__device__ __forceinline__ u32 ticket_of(u64 word) { return static_cast<u32>(word); }
__device__ __forceinline__ u32 slot_of(const QueueView& q, u32 run) { return (run - 1) % q.slots; }

__device__ __forceinline__ u32 rows_of(u32 extent) { return extent & 0xffffu; }
__device__ __forceinline__ bool is_narrow(u32 queue, u32 extent) {
    return queue == kDecode and rows_of(extent) <= kFewTokens;
}
__device__ __forceinline__ u32 token_tiles(u32 queue, u32 extent) {
    return is_narrow(queue, extent) ? rows_of(extent) != 0 : (rows_of(extent) + kTokens - 1) / kTokens;
}

struct Unit {
    bool valid, narrow, down;
    u32 run, index, run_units;
    u32 layer, expert;
    u32 row, rows;                   // first token row in the slot, valid rows
    u32 tile;                        // weight tile: 128 columns of the intermediate, or 256 of hidden
    u32 wanted;                      // down: arrivals of this expert's gate-up halves to wait for
};

// The extents of one run, spread over the claiming warp: lane l holds experts 8l .. 8l+7.
struct Extents {
    u32 queue, run, layer;
    u32 value[kExpertsPerLane];
    u32 tiles_before, tiles;         // token tiles of lower lanes; of the run

    __device__ void load(const Params& p, u32 which, u32 number, u32 lane) {
        const QueueView& q = p.queue[which];
        const u32 slot = slot_of(q, number);
        acquire_payload();
        const u32* from = q.extent + slot * kMaxExperts + lane * kExpertsPerLane;
        const uint4 a = load_fresh(from), b = load_fresh(from + 4);
        value[0] = a.x, value[1] = a.y, value[2] = a.z, value[3] = a.w;
        value[4] = b.x, value[5] = b.y, value[6] = b.z, value[7] = b.w;
        layer = load_fresh_word(q.layer + slot);
        queue = which, run = number;
        u32 mine = 0;
        #pragma unroll
        for (u32 i = 0; i < kExpertsPerLane; ++ i)
            mine += token_tiles(queue, value[i]);
        u32 sum = mine;
        #pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
            const u32 below = __shfl_up_sync(~0u, sum, step);
            sum += lane >= step ? below : 0;
        }
        tiles_before = sum - mine;
        tiles = __shfl_sync(~0u, sum, 31);
        fence_gpu();                 // the ticket that vouches for these values is taken after them
    }

    __device__ u32 units(const Params& p) const { return tiles * (p.intermediate / 128 + p.hidden / kWeightRows); }

    // Unit `index` of the run: all gate-up units expert by expert, then all down units. Inside an expert, up to
    // `group` token tiles share a weight tile before the next one, so that weights and tokens stay in L2.
    __device__ Unit locate(const Params& p, u32 index, u32 lane) const {
        Unit u;
        u.valid = true, u.run = run, u.index = index, u.run_units = units(p);
        u.layer = layer;
        const u32 gate_up_tiles = p.intermediate / 128;
        u.down = index >= tiles * gate_up_tiles;
        const u32 within = u.down ? index - tiles * gate_up_tiles : index;
        const u32 weight_tiles = u.down ? p.hidden / kWeightRows : gate_up_tiles;
        const u32 token_tile = within / weight_tiles;
        u32 first = tiles_before, expert = kMaxExperts, extent = 0, expert_first = 0;
        #pragma unroll
        for (u32 i = 0; i < kExpertsPerLane; ++ i) {
            const u32 mine = token_tiles(queue, value[i]);
            if (token_tile >= first and token_tile < first + mine)
                expert = lane * kExpertsPerLane + i, extent = value[i], expert_first = first;
            first += mine;
        }
        const u32 owner = __ffs(__ballot_sync(~0u, expert != kMaxExperts)) - 1;     // one lane holds it
        u.expert = __shfl_sync(~0u, expert, owner);
        extent = __shfl_sync(~0u, extent, owner);
        expert_first = __shfl_sync(~0u, expert_first, owner);

        const u32 local = within - expert_first * weight_tiles, all = token_tiles(queue, extent);
        const u32 group_first = local / (p.group * weight_tiles) * p.group;
        const u32 in_group = local - group_first * weight_tiles;
        const u32 width = min(p.group, all - group_first);
        const u32 tile_m = group_first + in_group % width;
        u.tile = in_group / width;
        u.narrow = is_narrow(queue, extent);
        u.row = (extent >> 16) * kRowAlign + tile_m * kTokens;
        u.rows = min(kTokens, rows_of(extent) - tile_m * kTokens);
        u.wanted = 2 * all * gate_up_tiles;
        return u;
    }
};

__device__ __forceinline__ void close_and_report(const QueueView& q, u32 slot, u32 run) {
    *reinterpret_cast<volatile u64*>(q.ready + slot) = static_cast<u64>(run) << 32 | kClosed;
    fence_sys();
    store_release_sys(q.done + slot, run);
}

// Takes a unit of the oldest run that has one; `view` is the run to look at next, `word` what its slot's ready
// word was at some time since. Whole warp, same values in all lanes.
__device__ inline Unit claim(const Params& p, u32 queue, u32& view, u64 word, Extents& extents, u32 lane) {
    const QueueView& q = p.queue[queue];
    Unit none;
    none.valid = false;
    while (true) {
        const int ahead = static_cast<int>(run_of(word) - view);
        if (ahead < 0)
            return none;                              // not published yet
        bool open = ahead == 0 and ticket_of(word) < kClosed;
        if (open) {
            u64* ready = q.ready + slot_of(q, view);
            if (extents.queue != queue or extents.run != view)
                extents.load(p, queue, view, lane);
            u64 ticket = lane == 0 ? fetch_add(ready, 1) : 0;
            ticket = __shfl_sync(~0u, ticket, 0);
            if (run_of(ticket) != view) {             // adopt; these extents are read after their ticket, so
                extents.load(p, queue, run_of(ticket), lane);   // a second look must find the run still open:
                const u64 again = peek_together(ready);         // a unit of mine that has not run keeps it so
                open = run_of(again) == run_of(ticket) and ticket_of(again) < kClosed;
                extents.run = open ? extents.run : 0;
            }
            const u32 number = ticket_of(ticket);
            if (open and number < extents.units(p)) {
                view += run_of(ticket) != view;
                if (number == 0 and lane == 0 and p.claimed_ns != nullptr)
                    p.claimed_ns[queue * 64 + slot_of(q, run_of(ticket))] = now_ns();
                return extents.locate(p, number, lane);
            }
            if (open and number == 0 and lane == 0)   // a run without rows: its first ticket ends it
                close_and_report(q, slot_of(q, run_of(ticket)), run_of(ticket));
        }
        ++ view;                                      // exhausted, closed, or over
        word = peek_together(q.ready + slot_of(q, view));
    }
}

}  // namespace afd::apk
