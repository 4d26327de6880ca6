"""Environment variables of a unit's processes that are the user's to set, through `podTemplate`.

All others that begin with `AFD_` say who a process is and come from the operator (`unitfile`).
"""

TUNING = (
    "AFD_DTYPE",
    "AFD_KV_BYTES",
    "AFD_MAX_ROWS",
    "AFD_PAGE_TOKENS",
    "AFD_ROUND_TIMEOUT_S",
    "AFD_TABLE_SLOTS",
    "AFD_THREADS",
)
"""How much a worker may use; meanings and defaults in `afd_runtime.worker.settings`."""
