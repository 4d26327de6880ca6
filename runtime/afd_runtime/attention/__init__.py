"""A lane: one attention GPU. It owns requests, KV pages and sampling, and runs the attention side of
every step that the coordinator plans.

    StepPlan --> lane --> table (who is resident, what is known of them)    pages (who owns which)
                  |--> pipeline: for each layer and microbatch
                  |        attention + router --> push to all expert workers --> the other microbatch
                  |        --> pull, add up
                  |--> sampler --> StepOutput

Nothing here knows sockets or processes: a lane is driven by `run(plan)` and answers or raises.
"""
