"""The only I/O of the operator. Data goes one way:

    event ──► key ──► observe ──► plan ──► apply ──► status
    handlers  queue   observe     lifecycle  apply     status
              (one worker a key, `reconcile` is the loop)

Level-triggered: an event says only which deployment to look at. What is done follows from what a live
read finds, so a lost, doubled or reordered event changes nothing but the time until the next look.
"""
