"""When a worker introduces itself to the coordinator.

    connected             now
    Refused               again in RETRY_S
    out of every table    again in REPEAT_S: the coordinator may have counted it as lost
    in the table          not again, until the table ends or the connection does

Registering twice is harmless while no table is in force, and that is the only time it happens.
"""

from __future__ import annotations

RETRY_S = 2.0
REPEAT_S = 5.0


class Registration:
    """Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._due_s: float | None = None
        self.connected = False

    def on_connected(self, now_s: float) -> None:
        self.connected, self._due_s = True, now_s

    def on_disconnected(self) -> None:
        self.connected, self._due_s = False, None

    def on_sent(self, now_s: float) -> None:
        self._due_s = now_s + REPEAT_S

    def on_refused(self, now_s: float) -> None:
        self._due_s = now_s + RETRY_S

    def on_table(self, now_s: float, *, seated: bool) -> None:
        self._due_s = None if seated else now_s + REPEAT_S

    def on_abort(self, now_s: float) -> None:
        """Normally a table follows at once."""
        self._due_s = now_s + REPEAT_S

    def due(self, now_s: float) -> bool:
        return self.connected and self._due_s is not None and now_s >= self._due_s
