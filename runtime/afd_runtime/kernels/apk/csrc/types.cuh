// What host and device share: the operation table, the slots, and the words that change at run time.
// `afd_runtime/kernels/apk/layout.py` packs the same structs; the static_asserts hold the two together.
//
//   Params ──┬─ queue[decode] ──┬─ ready[slot]    u64  {run number : 32 | next unit : 32}
//            │                  ├─ done[slot]     u64  run number, written once the run's outputs are visible
//            │                  ├─ layer[slot]    u32  \ written by the caller
//            │                  ├─ extent[slot][] u32  /  {first row / 32 : 16 | rows : 16} of each expert
//            │                  ├─ arrived[slot][], finished[slot]  u32  completion counters, zero between runs
//            │                  └─ slot[slot]     tensor maps and scale planes of the slot's buffers
//            ├─ queue[prefill]     the same
//            ├─ layers[]           tensor maps and scales of each layer's weights
//            └─ control            budget, stop, time-out, fault: one cache line polled at every boundary
//
// A *run* is one round: one layer for one slot. A *unit* is one output tile of a run, over the whole of K.
#pragma once

#include <cuda.h>
#include <cuda/std/cstdint>

namespace afd::apk {

using u32 = uint32_t;
using u64 = uint64_t;

constexpr u32 kBlockK = 128;          // one scale of activations (1x128) and of weights (128x128) per K-block
constexpr u32 kTokens = 128;          // token rows of a wide tile
constexpr u32 kFewTokens = 32;        // token rows of a narrow tile
constexpr u32 kWeightRows = 256;      // weight rows of every tile: gate 128 + up 128, or 256 of down
constexpr u32 kRowAlign = 32;         // an expert's rows begin at a multiple of this
constexpr u32 kExpertsPerLane = 8;    // the claiming warp holds the extents of 8 x 32 experts in registers
constexpr u32 kMaxExperts = 32 * kExpertsPerLane;
constexpr u32 kMaxBlocksK = 64;       // K at most 8192: two weight scales a lane

enum Queue : u32 { kDecode = 0, kPrefill = 1 };

struct alignas(128) Layer {
    CUtensorMap gate_up;              // [experts * 2 * intermediate, hidden], box 128 x 128
    CUtensorMap down;                 // [experts * hidden, intermediate], box 128 x 128
    const float* gate_up_scale;       // [experts, 2 * intermediate / 128, k blocks padded to 4]
    const float* down_scale;          // [experts, hidden / 128, k blocks padded to 4]
};
static_assert(sizeof(Layer) == 384);

struct alignas(128) Slot {
    CUtensorMap x_wide, x_narrow;     // dispatched rows [rows, hidden] FP8, boxes of 128 and 32 rows
    CUtensorMap act_wide, act_narrow; // SwiGLU's output [rows, intermediate] FP8, likewise
    CUtensorMap act_store;            // the same buffer, box 32 x 64
    CUtensorMap y_store;              // results [rows, hidden] BF16, box 32 x 64
    const float* x_scale;             // [hidden / 128, scale_stride]
    float* act_scale;                 // [intermediate / 128, scale_stride]
};
static_assert(sizeof(Slot) == 896);

struct QueueView {
    u64* ready;
    u64* done;
    const u32* layer;
    const u32* extent;                // [slots, kMaxExperts], zero beyond the last expert
    u32* arrived;                     // [slots, kMaxExperts]
    u32* finished;                    // [slots]
    const Slot* slot;
    u32 slots;
    u32 scale_stride;                 // rows of a scale plane: capacity + kTokens, a whole tile may be read
};
static_assert(sizeof(QueueView) == 64);

enum Fault : u32 { kNoFault = 0, kActivationsMissing = 1 };

struct Control {
    u32 budget;                       // CTAs that may take decode units while prefill has work
    u32 stop;                         // 1: leave once nothing published is left
    u32 fault;                        // Fault; the rest describes the first one
    u32 fault_queue, fault_slot, fault_expert, fault_seen, fault_wanted;
    u64 timeout_ns;
    u32 fault_block;
    u32 reserved;
};
static_assert(sizeof(Control) == 48);

struct Params {
    QueueView queue[2];
    const Layer* layers;
    Control* control;
    float* parked;                    // [CTAs, 128, 256]: accumulators of a tile set aside
    u32* log;                         // null, or [2, log_runs, log_units]: how often each unit was stored
    u64* claimed_ns;                  // null, or [2, slots <= 64]: when unit 0 was claimed, globaltimer
    u32 experts, hidden, intermediate;
    u32 chunk;                        // K-blocks of prefill between two looks at the decode queue
    u32 group;                        // token tiles that share a weight tile before the next weight tile
    u32 log_runs, log_units;
};
static_assert(sizeof(Params) == 200);

// What the producer tells math and store warps about the next piece of work.
enum ItemFlags : u32 {
    kNarrow = 1,      // at most 32 tokens: weights are the M operand
    kDown = 2,        // second operation
    kLast = 4,        // ends its tile: run the epilogue
    kPark = 8,        // set the accumulators of the unfinished prefill tile aside first
    kResume = 16,     // take them back first
    kStop = 32,       // no more work
    kIsPrefill = 64,
};

struct alignas(16) Item {
    u32 flags, k_blocks;
    u32 row, rows;                    // first token row in the slot; valid rows in the tile
    u32 col;                          // first output column
    u32 expert, slot, run;
    u32 unit, run_units;              // this unit; units of the whole run
    float* scale_out;                 // gate-up: act_scale plane of this tile's 128 columns
};
static_assert(sizeof(Item) == 48);

}  // namespace afd::apk
