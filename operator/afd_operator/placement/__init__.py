"""Where a unit runs: the choice of one NVLink domain for all of its nodes. Pure.

    Node, Occupant           what the API server says          (facts)
        |
    DomainView               free = fit, Ready, schedulable, GPUs not taken by others   (domains)
        |
    Chosen | Full | Impossible                                  (choice)
        |
    Reservation              the Lease that makes the choice ours alone     (reservation)

Invariants: a chosen domain has room for the whole unit and its spares, nobody else holds its
reservation, and the same facts give the same choice.
"""
