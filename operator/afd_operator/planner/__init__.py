"""The planner: whether disaggregation pays for a model, a rack and a service level, and how to lay it out.

    model, hardware, workload, SLO            what is asked
            |
    memory ---- how many requests fit, by role
    profile --- timed kernels --> fit: t(x, s) = a + b x + g x s + d x s^2, with its error
            |
    latency --- T_a, T_e, T_c of a layer      step --- T_step of m microbatches
            |
    layout ---- every M:N, microbatches, SM budget        baselines --- the best colocated systems
            |                                                   |
            +----------------- plan: yes, or no with the reason +--> manifest, tables, plots

Pure: numpy at most. The operator's `mode: Auto` and the dashboard's predicted series call `plan_for`;
`afd plan` prints the same answer. Every figure says its unit, source, kind and error; what no table or
published number covers is refused (`errors`), never guessed.
"""
