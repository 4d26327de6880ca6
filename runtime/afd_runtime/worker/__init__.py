"""The process around a lane or an expert worker.

    main thread       builds the role, then acts on one command after the other     lane_role, expert_role
    control thread    the connection to the coordinator: registers, heartbeats, hands commands over
    http threads      /health, /ready, /metrics
    reader threads    of the data plane (`transport`)

`settings` is what the process was told, `membership` what the coordinator's table makes of it,
`registration` when it (again) introduces itself, `proof_of_life` whether the main thread still moves.
"""
