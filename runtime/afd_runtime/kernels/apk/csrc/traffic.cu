// A caller on the device, for measurements: one CTA on an SM that the resident kernel leaves free. Thread 0 publishes
// decode runs at given gaps and times each from its ready word to its done word; thread 32 keeps the prefill queue
// full meanwhile. Latencies are in cycles of this SM; `cycles` and `ns` over the whole window give its clock.
#include "claim.cuh"

namespace afd::apk {

struct Traffic {
    QueueView queue[2];
    Control* control;
    const u32* gap_cycles;            // [decode_runs]: pause before each
    u64* latency_cycles;              // [decode_runs]
    u64* claim_ns;                    // [decode_runs]: ready word -> first unit claimed; globaltimer
    const u64* claimed_ns;            // Params::claimed_ns
    u64* window;                      // {cycles, ns, prefill runs, prefill cycles}
    u32 decode_runs, prefill_runs;    // prefill_runs: 0 = until decode has ended
    u32 layers, feed_prefill;
};
static_assert(sizeof(Traffic) == 192);

__device__ void publish(const QueueView& q, u32 run, u32 layer) {
    const_cast<volatile u32*>(q.layer)[slot_of(q, run)] = layer;
    fence_sys();
    store_release_sys(q.ready + slot_of(q, run), static_cast<u64>(run) << 32);
}

__device__ void await_done(const QueueView& q, u32 run) {
    while (static_cast<int>(static_cast<u32>(peek(q.done + slot_of(q, run))) - run) < 0)
        ;
    fence_sys();
}

}  // namespace afd::apk

extern "C" __global__ void afd_apk_traffic(const __grid_constant__ afd::apk::Traffic t) {
    using namespace afd::apk;
    __shared__ volatile u32 decode_over;
    if (threadIdx.x == 0)
        decode_over = 0;
    __syncthreads();
    const u64 cycle_0 = clock64(), ns_0 = now_ns();
    if (threadIdx.x == 0) {
        const QueueView& q = t.queue[kDecode];
        for (u32 i = 0; i < t.decode_runs; ++ i) {
            const u64 pause = clock64();
            while (clock64() - pause < t.gap_cycles[i])
                ;
            const u32 run = i + 1;
            const u64 begin = clock64(), begin_ns = now_ns();
            publish(q, run, i % t.layers);
            await_done(q, run);
            t.latency_cycles[i] = clock64() - begin;
            t.claim_ns[i] = *reinterpret_cast<const volatile u64*>(t.claimed_ns + slot_of(q, run)) - begin_ns;
        }
        decode_over = 1;
    } else if (threadIdx.x == 32 and t.feed_prefill) {
        const QueueView& q = t.queue[kPrefill];
        u32 published = 0, done = 0;
        while (true) {
            const bool more = t.prefill_runs ? published < t.prefill_runs : decode_over == 0;
            if (more and published - done < q.slots) {
                publish(q, published + 1, published % t.layers);
                ++ published;
            } else if (done < published) {
                await_done(q, done + 1);
                ++ done;
            } else if (not more) {
                break;
            }
        }
        t.window[2] = done;
        t.window[3] = clock64() - cycle_0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        t.window[0] = clock64() - cycle_0;
        t.window[1] = now_ns() - ns_0;
        __threadfence_system();
        t.control->stop = 1;
    }
}
