"""An expert worker: one expert GPU. It owns a slice of every MoE layer's experts and no request state.

    next round that all lanes have delivered --> rows of all lanes as one batch --> grouped FFN
        --> each lane gets its partial sums

`loop` serves rounds, `ledger` knows when a step is complete and what it took.
"""
