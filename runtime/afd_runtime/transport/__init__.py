"""Dispatch and combine: how routed rows get from a lane to the expert workers and back.

    lane                                             expert worker
    push(round, rows)  --- dispatch, into a slot -->  DispatchSlots
                                                      next_round(): all lanes have delivered
    pull(round)        <-- combine, into a slot ----  finish(round, partial sums)

One pair of endpoints lives for one epoch: a new member table means new endpoints, so nothing of an
old epoch can ever be read in a new one. `contract` says what every transport promises; one test
suite holds all of them to it. The state machines of the slots (`lane_slots`, `expert_slots`) are
shared, so a transport is only the way the bytes take: `inprocess` (threads), `tcp_*` (sockets).
"""
