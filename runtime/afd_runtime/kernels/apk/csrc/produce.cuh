// The producer: decides what the CTA does next, and loads it. A boundary, where the decision is taken, is the end
// of a decode unit or of a chunk of prefill; the words it needs are read before the last K-block is issued.
//
//   at a boundary                                     decode units run whole, prefill units in chunks
//     decode unit to be had, and I am within budget?    -> run it (a wide one first parks the accumulators)
//     prefill unit unfinished?                          -> its next chunk (accumulators are still in registers)
//     prefill unit to be had, its activations there?    -> begin it
//     none of these, stop asked?                        -> leave
//
// Why this cannot deadlock: a CTA waits only between items, when all K-blocks it began are issued, so its own
// math never waits for it. A decode unit waits (for activations) only for units that were claimed earlier and
// that run without waiting. A prefill unit is only held, never waited for.
#pragma once

#include <deep_gemm/common/tma_copy.cuh>

#include "claim.cuh"
#include "shared.cuh"

namespace afd::apk {

struct Producer {
    const Params& p;
    Shared& s;
    const u32 lane;
    Cursor<kStages> stage;
    Cursor<kItems> items;
    Extents extents;
    u32 view[2] = {1, 1};
    u64 word[2] = {0, 0};
    u64 control = 0;                                  // {stop, budget}

    __device__ Producer(const Params& p, Shared& s, u32 lane): p(p), s(s), lane(lane) { extents.queue = ~0u; }

    __device__ u32 budget() const { return static_cast<u32>(control); }
    __device__ bool stop() const { return control >> 32 != 0; }

    __device__ void look() {
        control = peek_together(reinterpret_cast<const u64*>(p.control));
        for (u32 queue = 0; queue < 2; ++ queue)
            word[queue] = peek_together(p.queue[queue].ready + slot_of(p.queue[queue], view[queue]));
    }

    __device__ bool published(u32 queue) const { return static_cast<int>(run_of(word[queue]) - view[queue]) >= 0; }

    // Whether the activations that a down unit reads are all there.
    __device__ bool activated(u32 queue, const Unit& u) const {
        if (not u.down)
            return true;
        const u32* arrived = p.queue[queue].arrived + slot_of(p.queue[queue], u.run) * kMaxExperts + u.expert;
        const bool there = __all_sync(~0u, load_acquire(arrived) == u.wanted);
        fence_async_proxy();
        return there;
    }

    __device__ void await_activations(u32 queue, const Unit& u) const {
        const u64 begin = now_ns();
        while (not activated(queue, u))
            if (now_ns() - begin > p.control->timeout_ns and lane == 0) {
                report_missing(queue, u);
                break;
            }
        __syncwarp();
    }

    __device__ void report_missing(u32 queue, const Unit& u) const {
        Control& c = *p.control;
        if (atomicCAS(&c.fault, kNoFault, kActivationsMissing) == kNoFault) {
            c.fault_queue = queue, c.fault_slot = slot_of(p.queue[queue], u.run), c.fault_expert = u.expert;
            c.fault_seen = load_acquire(p.queue[queue].arrived + slot_of(p.queue[queue], u.run) * kMaxExperts + u.expert);
            c.fault_wanted = u.wanted, c.fault_block = blockIdx.x;
        }
        __threadfence_system();
        atomicExch_system(&c.stop, 1u);
    }

    __device__ void put_item(const Item& item) {
        if (lane == 0) {
            s.item_empty[items.at].wait(items.phase ^ 1);
            s.item[items.at] = item;
            s.item_full[items.at].arrive();
        }
        __syncwarp();
        items.next();
    }

    __device__ Item describe(u32 queue, const Unit& u) const {
        Item item;
        item.flags = (u.narrow ? kNarrow : 0) | (u.down ? kDown : 0) | (queue == kPrefill ? kIsPrefill : 0);
        item.row = u.row, item.rows = u.rows;
        item.col = u.tile * (u.down ? kWeightRows : 128);
        item.expert = u.expert, item.slot = slot_of(p.queue[queue], u.run), item.run = u.run, item.unit = u.index, item.run_units = u.run_units;
        const QueueView& q = p.queue[queue];
        item.scale_out = q.slot[item.slot].act_scale + static_cast<size_t>(u.tile) * q.scale_stride;
        return item;
    }

    __device__ u32 blocks_k(const Unit& u) const { return (u.down ? p.intermediate : p.hidden) / kBlockK; }

    // Issues K-blocks [first, first + count) of a unit. With `await`, weights are loaded ahead of the activations
    // they will meet, so that memory stays busy between the two operations of a decode round.
    __device__ void load(u32 queue, const Unit& u, u32 first, u32 count, bool await) {
        const QueueView& q = p.queue[queue];
        const Slot& slot = q.slot[slot_of(q, u.run)];
        const Layer& layer = p.layers[u.layer];
        const u32 blocks = blocks_k(u), padded = (blocks + 3) / 4 * 4;
        const u32 rows_n = u.down ? p.hidden : 2 * p.intermediate;
        const u32 row_0 = u.tile * (u.down ? kWeightRows : 128);
        const u32 row_1 = u.down ? row_0 + 128 : p.intermediate + row_0;
        const CUtensorMap* weights = u.down ? &layer.down : &layer.gate_up;
        const CUtensorMap* tokens = u.down ? (u.narrow ? &slot.act_narrow : &slot.act_wide)
                                           : (u.narrow ? &slot.x_narrow : &slot.x_wide);
        const float* token_scale = (u.down ? slot.act_scale : slot.x_scale) + u.row;
        const u32 token_rows = u.narrow ? kFewTokens : kTokens;

        const float* weight_scale = (u.down ? layer.down_scale : layer.gate_up_scale) + first;
        const u32 base_0 = (u.expert * rows_n + row_0) / 128 * padded, base_1 = (u.expert * rows_n + row_1) / 128 * padded;
        float scale_0[2], scale_1[2];
        #pragma unroll
        for (u32 i = 0; i < 2; ++ i) {
            const u32 k = i * 32 + lane;
            scale_0[i] = k < count ? __ldg(weight_scale + base_0 + k) : 0;
            scale_1[i] = k < count ? __ldg(weight_scale + base_1 + k) : 0;
        }

        auto load_weights = [&](const Cursor<kStages>& at, u32 k) {
            s.stage_empty[at.at].wait(at.phase ^ 1);
            uint8_t* to = s.stage[at.at].weights;
            deep_gemm::tma::copy<kBlockK, 128, 128>(weights, &s.stage_full[at.at], to, (first + k) * kBlockK, u.expert * rows_n + row_0);
            deep_gemm::tma::copy<kBlockK, 128, 128>(weights, &s.stage_full[at.at], to + kHalfBytes, (first + k) * kBlockK, u.expert * rows_n + row_1);
        };
        u32 ahead = 0;
        if (await and not activated(queue, u)) {
            ahead = min(kStages, count);
            Cursor<kStages> at = stage;
            #pragma unroll 1
            for (u32 k = 0; k < ahead; ++ k, at.next())
                if (lane == 0)
                    load_weights(at, k);
            __syncwarp();
            await_activations(queue, u);
        }
        #pragma unroll 1
        for (u32 k = 0; k < count; ++ k, stage.next()) {
            if (k + 1 == count)
                look();
            const float w_0 = __shfl_sync(~0u, k < 32 ? scale_0[0] : scale_0[1], k % 32);
            const float w_1 = __shfl_sync(~0u, k < 32 ? scale_1[0] : scale_1[1], k % 32);
            if (lane == 0) {
                if (k >= ahead)
                    load_weights(stage, k);
                Barrier& full = s.stage_full[stage.at];
                if (u.narrow)
                    deep_gemm::tma::copy<kBlockK, kFewTokens, 128>(tokens, &full, s.stage[stage.at].tokens, (first + k) * kBlockK, u.row);
                else
                    deep_gemm::tma::copy<kBlockK, kTokens, 128>(tokens, &full, s.stage[stage.at].tokens, (first + k) * kBlockK, u.row);
                cute::SM90_BULK_COPY_G2S::copy(token_scale + static_cast<size_t>(first + k) * q.scale_stride,
                                               reinterpret_cast<u64*>(&full), s.token_scale[stage.at], token_rows * 4);
                s.weight_scale[stage.at][0] = w_0, s.weight_scale[stage.at][1] = w_1;
                full.arrive_and_expect_tx(2 * kHalfBytes + token_rows * (kBlockK + 4));
            }
            __syncwarp();
        }
    }

    // Claims a prefill unit into the hand, unless one is there.
    __device__ bool hold_prefill(bool held) {
        if (held or not published(kPrefill))
            return held;
        const Unit u = claim(p, kPrefill, view[kPrefill], word[kPrefill], extents, lane);
        if (lane == 0)
            s.prefill = u;
        __syncwarp();
        return u.valid;
    }

    __device__ void run_decode(const Unit& u, bool park) {
        Item item = describe(kDecode, u);
        item.k_blocks = blocks_k(u), item.flags |= kLast | (park ? kPark : 0);
        put_item(item);
        load(kDecode, u, 0, item.k_blocks, true);
    }

    // The next chunk of the prefill unit in hand; returns how much of it is then done, 0 for all.
    __device__ u32 run_prefill(const Unit& u, u32 done, bool resume) {
        const u32 blocks = blocks_k(u), count = min(p.chunk, blocks - done);
        Item item = describe(kPrefill, u);
        item.k_blocks = count, item.flags |= (done + count == blocks ? kLast : 0) | (resume ? kResume : 0);
        put_item(item);
        load(kPrefill, u, done, count, false);
        return done + count == blocks ? 0 : done + count;
    }

    __device__ void run() {
        bool held = false, parked = false;
        u32 done = 0;                                 // K-blocks of the prefill unit in hand
        look();
        #pragma unroll 1
        while (true) {
            if (published(kDecode) and (blockIdx.x < budget() or not (held or published(kPrefill)))) {
                const Unit u = claim(p, kDecode, view[kDecode], word[kDecode], extents, lane);
                if (u.valid) {
                    const bool park = not u.narrow and done > 0 and not parked;
                    parked |= park;
                    run_decode(u, park);
                    continue;
                }
            }
            held = hold_prefill(held);
            if (held and (done > 0 or activated(kPrefill, s.prefill))) {
                done = run_prefill(s.prefill, done, parked);
                held = done > 0, parked = false;
                continue;
            }
            const bool leave = stop() and not held;
            __nanosleep(32);
            fence_sys();                              // the next look sees what was published before `stop`
            look();
            if (leave and not published(kDecode) and not published(kPrefill))
                break;
        }
        Item item;
        item.flags = kStop;
        put_item(item);
    }
};

}  // namespace afd::apk
