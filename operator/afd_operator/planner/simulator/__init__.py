"""A discrete-event simulator of serving, on the planner's kernel tables.

    traffic   requests: Poisson or a trace, drawn from a seed
    loop      the clock: events in order of time, then of scheduling
    station   a queue with c servers: expert ranks, links, and the textbook queues that check it
    pipeline  one decode step, event by event: lanes, links, expert ranks, microbatches
    timing    how long an iteration takes, by system, from the planner's formulas
    serving   the five systems: chunked, colocated, PDD, PDMux, disaggregated attention and experts
    search    goodput: the highest rate at which enough requests meet both targets

The planner answers for means; the simulator shows what means hide: queues, bursts, head-of-line blocking,
the price of a failure. A run is a function of its inputs and its seed.
"""
