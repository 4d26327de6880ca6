"""Which subcommands there are, where each lives, and which extra of the distribution it needs.

A subcommand is a module with `main(argv) -> int | None`. It parses its own arguments, so the command
itself imports nothing of either side.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    module: str
    extra: str
    help: str


COMMANDS = (
    Command(("serve",), "afd_runtime.local.main", "runtime", "serve a model on this machine (--local)"),
    Command(("worker", "gateway"), "afd_runtime.server.main", "server", "the OpenAI-compatible front"),
    Command(("worker", "coordinator"), "afd_runtime.coordinator.main", "server", "plans a unit's steps"),
    Command(("worker", "attention"), "afd_runtime.worker.attention", "runtime", "a lane: one attention GPU"),
    Command(("worker", "expert"), "afd_runtime.worker.expert", "runtime", "the experts of one expert GPU"),
    Command(("operator",), "afd_operator.controller.main", "operator", "the Kubernetes operator"),
    Command(("plan",), "afd_operator.planner.command", "planner", "whether AFD pays, and in which layout"),
    Command(
        ("simulate",),
        "afd_operator.planner.simulator.command",
        "planner",
        "five systems under load, side by side",
    ),
    Command(("crd",), "afd_cli.crd", "operator", "print the CustomResourceDefinition, or its reference"),
    Command(("dashboards",), "afd_dashboards.command", "dev", "write the Grafana boards"),
)
