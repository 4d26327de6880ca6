"""What to do next: `plan(deployment, observed, now) -> actions, status, when to look again`. Pure.

A unit's life. Each arrow is one look at the cluster; nothing is remembered between looks, so a stage is
what the cluster shows and not what we once decided.

              Reserve         create pods       lift gates        ConfigMap        all Ready
    PENDING ──────────► RESERVED ───────► GATED ───────► RELEASED ──────────► STARTED ──────► READY
       ▲  a domain has     │                │               │   all pods      │   ▲             │
       │  room, is free    │ no room any more, new revision, scaled down      │   │ replaced    │ pod or
       │                   ▼                ▼               ▼   are bound     ▼   │             ▼ container
       └─── Release ◄── STOPPING ◄──────────────────────────────────────────◄───  BROKEN ◄──────┘ lost
         no pod is left   ConfigMap deleted, pods deleted,        new revision, scaled down,
                          wait until they are gone                moves to another domain

Invariants, whoever dies between whichever two writes:

- A unit's pods exist only in a domain that it holds the reservation of, and the reservation is given
  back only when none of its pods is left. So two units never share a domain.
- Containers of a unit can start only while its ConfigMap exists, and it is created only when all pods
  of the unit are bound to nodes. So half a unit never runs.
- Pods of one unit have one revision. So versions never mix in a unit.

    observed     what a look finds          actions     what can be done
    unit         the stages above           plan        a deployment: its units and what they share
    status       what is reported           conditions  as kstatus wants it
"""
