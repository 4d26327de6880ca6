"""The entry point of `afd`: finds the subcommand, loads it, hands over the rest of the line."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from afd_cli.commands import COMMANDS, Command


def usage() -> str:
    width = max(len(" ".join(command.words)) for command in COMMANDS)
    lines = [f"  {' '.join(command.words):{width}}  {command.help}" for command in COMMANDS]
    return "\n".join(["usage: afd COMMAND [OPTIONS]", "", *lines, "", "afd COMMAND --help says more."])


def find(line: Sequence[str]) -> tuple[Command, list[str]] | None:
    """The command that the line begins with, and what follows it."""
    for command in COMMANDS:
        if tuple(line[: len(command.words)]) == command.words:
            return command, list(line[len(command.words) :])
    return None


def main(argv: Sequence[str] | None = None) -> int:
    line = sys.argv[1:] if argv is None else list(argv)
    if line[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    found = find(line)
    if found is None:
        said = f"afd: there is no command {' '.join(line)!r}\n\n" if line else ""
        print(f"{said}{usage()}", file=sys.stderr)
        return 2
    command, rest = found
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0].startswith("afd_"):
            raise
        print(
            f"afd {' '.join(command.words)}: the package {error.name} is missing; "
            f"install it with: pip install 'afd[{command.extra}]'",
            file=sys.stderr,
        )
        return 1
    try:
        code = int(module.main(rest) or 0)
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader that went away (`afd crd | head`) ends the command without a traceback. Not by the
        # signal's default action: that would end a server whose peer closes a connection.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code


if __name__ == "__main__":
    raise SystemExit(main())
