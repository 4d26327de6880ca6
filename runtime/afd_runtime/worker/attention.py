"""`afd worker attention`: a lane (one attention GPU) as a process. What it is told: `worker.settings`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from afd_runtime.worker import process, settings
from afd_unit import logs
from afd_unit.identity import Role


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="afd worker attention",
        description="Run a lane (one attention GPU) of a unit.",
        epilog=settings.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    logs.setup("attention")
    return process.start(Role.ATTENTION, _load)


def _load(worker: process.Worker) -> process.RoleLoop:
    # Here and not above: the tensor library takes a second to import, and /health answers meanwhile.
    from afd_runtime.worker import lane_role

    return lane_role.load(worker)


if __name__ == "__main__":
    raise SystemExit(main())
