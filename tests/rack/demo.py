"""The demo: a rack in a box, the operator installed by its chart, one AFDDeployment, an answer streamed.

    python -m tests.rack.demo up        KEEP=1 leaves everything up; CLUSTER=current uses the cluster of
                                        the current kubeconfig instead of a rack
    python -m tests.rack.demo down      ends what KEEP=1 left up

Ends with 0 after an answer, else with 1 and the state of the part that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from openai import OpenAI, OpenAIError

from tests.rack import CommandError, RackError, down
from tests.rack.binaries import BuildError
from tests.rack.clients import WaitError
from tests.rack.demo_cluster import (
    NAMESPACE,
    Cluster,
    DemoError,
    apply_and_wait,
    install_operator,
    pods_table,
)
from tests.rack.demo_current import CurrentCluster
from tests.rack.demo_rack import RackCluster, demos
from tests.rack.host import HostError
from tests.rack.phases import Phases
from tests.rack.shell import ShellError

QUESTIONS = ("Who are you?", "What do you think of Emma?")
ANSWER_TOKENS = 96
SEED = 2
FAILURES = (
    CommandError, RackError, BuildError, HostError, ShellError, WaitError, DemoError, OpenAIError,
    subprocess.TimeoutExpired,
)  # fmt: skip


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Exit code of `up` or `down`; 2 for anything else."""
    match list(argv):
        case ["up"]:
            return up(environment)
        case ["down"]:
            return end()
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def up(environment: Mapping[str, str]) -> int:
    keep = environment.get("KEEP", "") not in ("", "0")
    match environment.get("CLUSTER", ""):
        case "":
            cluster: Cluster = RackCluster()
        case "current":
            cluster = CurrentCluster(environment)
        case other:
            print(f"CLUSTER={other}: only CLUSTER=current is known; without it the demo makes a rack")
            return 2
    phases = Phases()
    failed = True
    try:
        run(cluster, phases)
        failed = False
    except FAILURES as error:
        print(f"\nthe demo failed while: {phases.current}\n{error}\n{cluster.describe()}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"\ninterrupted while: {phases.current}", file=sys.stderr)
    finally:
        if keep and not failed:
            cluster.keep()
            print("everything is left up; `make demo-down` ends it\n")
        else:
            with phases.phase("everything is taken down"):
                cluster.close()
    print(phases.table())
    return int(failed)


def run(cluster: Cluster, phases: Phases) -> None:
    """From nothing to an answer. Raises one of FAILURES."""
    for what, step in cluster.prepare():
        with phases.phase(what):
            step()
    with phases.phase("operator installed by its chart"):
        install_operator(cluster)
    with phases.phase("AFDDeployment applied and Ready"):
        apply_and_wait(cluster)
    print(f"\n{cluster.kubectl('get', 'afd', '-n', NAMESPACE)}\n{pods_table(cluster)}\n")
    with phases.phase("answer streamed"), cluster.gateway() as url:
        answer = ask(url)
    if not answer.strip():
        raise DemoError("the answer is empty")
    print(f"\n{cluster.look_around()}\n")


def ask(url: str) -> str:
    """Stream answers through the openai client, printing them as they come."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60)
    (model,) = (model.id for model in client.models.list())
    print(f"{model} at {url}", flush=True)
    parts = []
    for question in QUESTIONS:
        print(f"\n> {question}\n", flush=True)
        stream = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], max_tokens=ANSWER_TOKENS,
            temperature=0.6, seed=SEED, stream=True,
        )  # fmt: skip
        for event in stream:
            for choice in event.choices:
                parts.append(choice.delta.content or "")
                print(parts[-1], end="", flush=True)
        print(flush=True)
    return "".join(parts)


def end() -> int:
    """Take down the racks that demos were asked to keep."""
    kept = demos()
    for found in kept:
        down(found)
    print(f"ended: rack {', '.join(str(found.number) for found in kept)}" if kept else "no demo is up")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
