"""Run the machine's own commands; an error carries what they said."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class ShellError(RuntimeError):
    """A command failed; the message holds the command, its input and its output."""


def run(*command: str, stdin: str | None = None, check: bool = True, timeout_s: float = 600) -> str:
    """Standard output of a command. Raises ShellError if it fails, unless `check` is false."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if check and done.returncode:
        given = f"\nwith input:\n{stdin}" if stdin else ""
        output = (done.stdout + done.stderr)[-4000:]
        raise ShellError(f"{' '.join(command)} ended with {done.returncode}:\n{output}{given}")
    return done.stdout


def run_lines(*command: str, lines: Sequence[str]) -> None:
    """Feed a command one instruction a line, as `ip -batch -` and `nft -f -` take them."""
    run(*command, stdin="\n".join(lines) + "\n")
