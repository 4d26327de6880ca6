"""The coordinator: it alone decides who is in the unit, what runs next, and what has happened.

    members    who fills which place          epochs     which member table is in force
    requests   what each request still needs  lanes      what each lane still holds
    admission  may it come in, where to       scheduler  what the next step runs
    steps      steps that are out             workload   all of these, moved on step by step
    desk       gateways and what they submit  meter      what steps measured, and the last minute
    sentences  what is said                   core       the events above, in order

Those are pure: messages and the time go in, messages come out, no sockets, no clock, no threads.
`shell` carries messages over ZeroMQ, `http` answers the operator and Prometheus, `main` starts both.
Nothing here imports a tensor library.
"""
