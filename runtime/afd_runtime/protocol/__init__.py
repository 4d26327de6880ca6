"""Who says what to whom in a unit: the control messages, their size limits and their codec.

    client --HTTP-- gateway --control-- coordinator --control-- attention lanes
                                             +--------control-- expert workers
                         attention lane <--data--> expert worker      (see `transport`)

`messages` are the sentences, `plan` the two that order a step, `codec` turns them into bounded
msgpack frames. No module here does I/O or knows a tensor library.
"""
