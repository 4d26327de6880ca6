"""`afd worker expert`: an expert worker (one expert GPU) as a process. What it is told: `worker.settings`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from afd_runtime.worker import process, settings
from afd_unit import logs
from afd_unit.identity import Role


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="afd worker expert",
        description="Run an expert worker (one expert GPU) of a unit.",
        epilog=settings.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    logs.setup("expert")
    return process.start(Role.EXPERT, _load)


def _load(worker: process.Worker) -> process.RoleLoop:
    # Here and not above: the tensor library takes a second to import, and /health answers meanwhile.
    from afd_runtime.worker import expert_role

    return expert_role.load(worker)


if __name__ == "__main__":
    raise SystemExit(main())
