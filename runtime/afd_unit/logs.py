"""Logs of all processes: one event a line on stderr, key=value, quiet when nothing happens.

    time=2026-03-01T10:00:00.123Z level=info process=coordinator event=table epoch=3 members="0/…"

Say it with `log.info("table", extra={"epoch": 3})`. `AFD_LOG_LEVEL` sets the level. Values that a
peer chose are quoted and shortened, so a log line is always one line.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[\w./:+\-\[\]]+")
LONGEST_VALUE = 400


def _text(value: Any) -> str:
    text = str(value)
    if len(text) > LONGEST_VALUE:
        text = f"{text[:LONGEST_VALUE]}…"
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class KeyValue(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        line = " ".join(f"{key}={_text(value)}" for key, value in fields.items() if value is not None)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup(process: str) -> None:
    """Call once, first thing in a process's main."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValue(process))
    logging.basicConfig(level=os.environ.get("AFD_LOG_LEVEL", "INFO").upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
