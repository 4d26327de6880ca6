"""Text up to a stop string, which itself is never given out, not even its first half.

text so far   The answer is 42.\\n\\nQ       stop "\\n\\nQ:"
given out     The answer is 42.               `\\n\\nQ` waits: it may become the stop string
"""

from __future__ import annotations


class StopFinder:
    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that may be given out now. After a stop string was `found`, nothing."""
        if self.found:
            return ""
        text = self._held + text
        at = min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=None)
        if at is not None:
            self.found, self._held = True, ""
            return text[:at]
        held = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that begins `stop`."""
        most = min(len(text), len(stop) - 1)
        return next((length for length in range(most, 0, -1) if text.endswith(stop[:length])), 0)

    def finish(self) -> str:
        """What was held back and became no stop string."""
        held, self._held = self._held, ""
        return held
