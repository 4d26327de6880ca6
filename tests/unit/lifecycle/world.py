"""A model of a cluster to plan in: API server, scheduler, kubelets and garbage collector, each a step that
a test takes when it likes. API objects are dicts in the API's own form, read by the operator's own readers.

It does not model: probes, images, quotas, preemption, watches, field ownership, time-outs of evictions.

    world = World(rack(a=2, b=2))
    world.create("demo", units=2)
    world.settle()
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.resources.samples import body

from afd_operator.api.load import parse
from afd_operator.api.status import AFDDeploymentStatus, UnitStage
from afd_operator.lifecycle.actions import (
    Action,
    Apply,
    CreatePod,
    Delete,
    DeletePod,
    LiftGate,
    Release,
    Reserve,
)
from afd_operator.lifecycle.observed import Observed, look
from afd_operator.lifecycle.orphans import orphans
from afd_operator.lifecycle.plan import Plan, plan
from afd_operator.placement.domains import Cluster
from afd_operator.placement.facts import Node, node_from_api, occupant_from_api
from afd_operator.placement.reservation import from_lease, to_lease
from afd_operator.resources.ownership import controller_uid
from afd_unit import labels, names

Json = dict[str, Any]
NAMESPACE = "prod"
OPERATOR = "afd-system/afd-operator"


class Refused(Exception):
    """The API server answered with an error: the reconcile ends here and is tried again."""


class Killed(Exception):
    """The operator was killed between two writes."""


def rack(gpus: int = 2, **domains: int) -> list[Json]:
    """`rack(a=2, b=2)`: core/v1 Nodes of two domains."""
    return [
        {
            "metadata": {"name": f"{domain}-{number}", "labels": {labels.CLIQUE: domain}},
            "spec": {},
            "status": {
                "allocatable": {labels.GPU: str(gpus)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for domain, size in domains.items()
        for number in range(size)
    ]


class World:
    """`after_write` is called after each write of the operator: checks hook in there."""

    def __init__(self, nodes: list[Json]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.deployments: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.children: dict[tuple[str, str], Json] = {}
        self.leases: dict[str, Json] = {}
        self.claims = {"models"}
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.writes: list[Action | str] = []
        self._uids = itertools.count(1)

    # ---- the users ----

    def create(self, name: str, **spec: Any) -> None:
        self.deployments[name] = body(name, NAMESPACE, uid=f"{name}-{next(self._uids)}", **spec)

    def change(self, name: str, **spec: Any) -> None:
        old = self.deployments[name]
        fresh = body(name, NAMESPACE, uid=old["metadata"]["uid"], **spec)
        generation = old["metadata"]["generation"] + (fresh["spec"] != old["spec"])
        fresh["metadata"]["generation"] = generation
        self.deployments[name] = fresh | {"status": old["status"]}

    def delete(self, name: str) -> None:
        del self.deployments[name]

    def occupy(self, node: str, gpus: int = 2) -> None:
        """A pod of somebody else's takes GPUs of a node."""
        container = {"resources": {"limits": {labels.GPU: str(gpus)}}}
        self.pods[f"other-{node}"] = {
            "metadata": {"name": f"other-{node}"},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }

    # ---- the operator ----

    def reconcile(self, name: str, *, killed_after: int | None = None, fails_at: int | None = None) -> None:
        """One reconcile as the controller does it. `killed_after`: dies after so many writes; `fails_at`: the
        API server refuses that write."""
        budget = itertools.count()

        def write(what: Action | str, do: Callable[[], None]) -> None:
            number = next(budget)
            if number == killed_after:
                raise Killed
            if number == fails_at:
                raise Refused(what)
            do()
            self.writes.append(what)
            self.check()

        try:
            self._reconcile(name, write)
        except (Killed, Refused):
            return

    def _reconcile(self, name: str, write: Callable[[Action | str, Callable[[], None]], None]) -> None:
        living = self.deployments.get(name)
        observed = self.look(name)
        for release in orphans(
            NAMESPACE,
            name,
            living["metadata"]["uid"] if living else None,
            observed.reservations,
            (*observed.pods, *observed.former_pods),
        ):
            write(release, lambda release=release: self._do(release))
        if living is None:
            return
        found = self.plan(name)
        for action in found.actions:
            write(action, lambda action=action: self._do(action))
        status = found.status.dump()
        if status != living["status"]:
            write(f"status of {name}", lambda: living.update(status=status))

    def look(self, name: str) -> Observed:
        stem = names.stem(name)
        uid = self.deployments[name]["metadata"]["uid"] if name in self.deployments else ""
        return look(
            uid,
            pods=[
                pod
                for pod in self.pods.values()
                if pod["metadata"].get("labels", {}).get(labels.DEPLOYMENT) == stem
            ],
            children=list(self.children.values()),
            leases=list(self.leases.values()),
        )

    def plan(self, name: str) -> Plan:
        """What the operator would do now; asks for the costly look only if the plan does."""
        deployment, observed = parse(self.deployments[name]), self.look(name)
        found = plan(deployment, observed, self.now, status_reader=OPERATOR)
        if found.needs_cluster:
            claim = deployment.spec.model.pvc
            exists = claim is None or claim.claim in self.claims
            observed = replace(observed, cluster=self.cluster(), claim_exists=exists)
            found = plan(deployment, observed, self.now, status_reader=OPERATOR)
            assert not found.needs_cluster
        return found

    def cluster(self) -> Cluster:
        return Cluster(
            nodes=tuple(self._nodes()),
            occupants=tuple(o for pod in self.pods.values() if (o := occupant_from_api(pod))),
            reservations=tuple(r for lease in self.leases.values() if (r := from_lease(lease))),
        )

    def _do(self, action: Action) -> None:
        match action:
            case Reserve(key, domain, holder):
                lease = to_lease(key, domain, holder, "afd-system")
                if lease["metadata"]["name"] in self.leases:
                    raise Refused(action)
                self.leases[lease["metadata"]["name"]] = self._stored(lease)
            case Release(reservation):
                lease = self.leases.get(reservation.lease)
                if lease and lease["metadata"]["uid"] == reservation.lease_uid:
                    del self.leases[reservation.lease]
            case CreatePod(manifest):
                if manifest["metadata"]["name"] in self.pods:
                    raise Refused(action)
                self.pods[manifest["metadata"]["name"]] = self._stored(manifest) | {
                    "status": {"phase": "Pending"}
                }
            case DeletePod(name, uid, _):
                if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
                    self._delete_pod(name)
            case LiftGate(name, uid):
                if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
                    self.pods[name]["spec"]["schedulingGates"] = []
            case Apply(manifest):
                key = (manifest["kind"], manifest["metadata"]["name"])
                present = self.children.get(key)
                if present is not None and controller_uid(present) != controller_uid(manifest):
                    raise Refused(action)
                uid = present["metadata"]["uid"] if present else None
                self.children[key] = self._stored(manifest, uid)
            case Delete(kind, name, uid):
                if (kind, name) in self.children and self.children[kind, name]["metadata"]["uid"] == uid:
                    del self.children[kind, name]

    def _stored(self, manifest: Json, uid: str | None = None) -> Json:
        stored = copy.deepcopy(manifest)
        stored["metadata"]["uid"] = uid or f"uid-{next(self._uids)}"
        stored["metadata"]["creationTimestamp"] = self.now.isoformat()
        return stored

    # ---- the cluster ----

    def schedule(self) -> None:
        """Bind what is not gated and fits, say of the rest that it does not."""
        for pod in self.units_pods():
            if (
                pod["spec"].get("nodeName")
                or pod["spec"]["schedulingGates"]
                or "deletionTimestamp" in pod["metadata"]
            ):
                continue
            domain = pod["spec"]["nodeSelector"][labels.CLIQUE]
            gpus = len(pod["spec"]["containers"]) if "coord" not in pod["metadata"]["name"] else 0
            held = self._held()
            for node in self._nodes():
                if (
                    node.labels[labels.CLIQUE] == domain
                    and node.ready
                    and node.gpus - held.get(node.name, 0) >= gpus
                ):
                    pod["spec"]["nodeName"] = node.name
                    pod["status"].pop("conditions", None)
                    break
            else:
                old = pod["status"].get("conditions")
                pod["status"]["conditions"] = old or [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0 nodes are available",
                        "lastTransitionTime": self.now.isoformat(),
                    }
                ]

    def run(self) -> None:
        """Kubelets: start what is bound and finds its ConfigMap, remove what is to go, on nodes that live."""
        for name, pod in list(self.pods.items()):
            node = self.nodes.get(pod["spec"].get("nodeName", ""))
            alive = node is not None and node["status"]["conditions"][0]["status"] == "True"
            if "deletionTimestamp" in pod["metadata"]:
                if alive or not pod["spec"].get("nodeName"):
                    del self.pods[name]
            elif alive and pod["status"]["phase"] == "Pending" and self._volumes_exist(pod):
                ready = [{"type": "Ready", "status": "True"}]
                pod["status"] |= {"phase": "Running", "conditions": ready}

    def fail(self, name: str) -> None:
        """The kubelet evicts a pod."""
        self.pods[name]["status"] = {"phase": "Failed", "reason": "Evicted"}

    def lose(self, node: str) -> None:
        """A node is gone for good, and its pods with it."""
        del self.nodes[node]
        for name in [n for n, pod in self.pods.items() if pod["spec"].get("nodeName") == node]:
            del self.pods[name]

    def silence(self, node: str, *, ready: bool = False) -> None:
        """A node stops answering, or answers again."""
        self.nodes[node]["status"]["conditions"][0]["status"] = "True" if ready else "Unknown"

    def collect(self) -> None:
        """The garbage collector: children go when their owner has gone."""
        living = {found["metadata"]["uid"] for found in self.deployments.values()}
        for name, pod in self.pods.items():
            if controller_uid(pod) and controller_uid(pod) not in living:
                self._delete_pod(name)
        for key in [k for k, child in self.children.items() if controller_uid(child) not in living]:
            del self.children[key]

    def gateways(self) -> None:
        """The Deployment controller and the kubelets of the nodes outside: gateways run."""
        for (kind, name), child in self.children.items():
            if kind == "Deployment" and name not in self.pods:
                template = child["spec"]["template"]
                pod = {
                    "metadata": {"name": name, **copy.deepcopy(template["metadata"]),
                                 "ownerReferences": child["metadata"]["ownerReferences"]},
                    "spec": {"containers": []},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }  # fmt: skip
                self.pods[name] = self._stored(pod)

    def settle(self, rounds: int = 60) -> None:
        """Let everybody work until nothing changes any more; fails if it goes on for ever."""
        for _ in range(rounds):
            before = self._everything()
            self.everybody_works()
            if self._everything() == before:
                return
        raise AssertionError(f"does not settle: {self.writes[-20:]}")

    def everybody_works(self) -> None:
        """One round of everybody, and a minute of time."""
        for name in self.names():
            self.reconcile(name)
            self.schedule()
            self.run()
            self.gateways()
            self.collect()
        self.now += timedelta(seconds=70)

    # ---- what holds always ----

    def check(self) -> None:
        """The invariants of `afd_operator.lifecycle`, after every write of the operator."""
        for pod in self.units_pods():
            lease = self._lease_of(pod["metadata"]["annotations"][labels.DOMAIN])
            assert lease is not None, f"{pod['metadata']['name']} is in a domain that nobody holds"
            for key in (labels.DEPLOYMENT_UID, labels.UNIT):
                assert lease["metadata"]["labels"][key] == pod["metadata"]["labels"][key], (
                    f"{pod['metadata']['name']} is in the domain of {lease['spec']['holderIdentity']}"
                )
        for unit in {self._unit(pod) for pod in self.units_pods()}:
            pods = [pod for pod in self.units_pods() if self._unit(pod) == unit]
            revisions = {pod["metadata"]["annotations"][labels.REVISION] for pod in pods}
            assert len(revisions) == 1, f"unit {unit} has pods of revisions {revisions}"
        last = self.writes[-1]
        if isinstance(last, Apply) and last.manifest["kind"] == "ConfigMap":
            self._check_start(last.manifest)

    def _check_start(self, config: Json) -> None:
        """The ConfigMap appears, or changes: all pods of the unit must have a node."""
        unit = config["metadata"]["labels"][labels.UNIT]
        deployment = self.deployments[config["metadata"]["annotations"][labels.DEPLOYMENT_NAME]]
        ratio = deployment["spec"]["ratio"]
        bound = [
            pod
            for pod in self.units_pods()
            if pod["metadata"]["labels"][labels.UNIT] == unit
            and controller_uid(pod) == controller_uid(config)
            and pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(bound) == ratio["attention"] + ratio["expert"] + 1, "half a unit was started"

    # ---- questions ----

    def status(self, name: str) -> AFDDeploymentStatus:
        return AFDDeploymentStatus.model_validate(self.deployments[name]["status"])

    def condition(self, name: str, kind: str) -> tuple[str, str] | None:
        """(status, reason) of a condition; None if it is absent."""
        for found in self.status(name).conditions:
            if found.type == kind:
                return found.status, found.reason
        return None

    def message(self, name: str, kind: str) -> str:
        return next(found.message for found in self.status(name).conditions if found.type == kind)

    def stages(self, name: str) -> list[UnitStage]:
        return [unit.stage for unit in self.status(name).unit_statuses]

    def domains(self) -> dict[str, str]:
        """Holder by domain."""
        return {
            lease["metadata"]["annotations"][labels.DOMAIN]: lease["spec"]["holderIdentity"]
            for lease in self.leases.values()
        }

    def units_pods(self) -> list[Json]:
        return [pod for pod in self.pods.values() if labels.UNIT in pod["metadata"].get("labels", {})]

    def _unit(self, pod: Json) -> tuple[str, str]:
        found = pod["metadata"]["labels"]
        return found[labels.DEPLOYMENT_UID], found[labels.UNIT]

    def _lease_of(self, domain: str) -> Json | None:
        for lease in self.leases.values():
            if lease["metadata"]["annotations"][labels.DOMAIN] == domain:
                return lease
        return None

    def _nodes(self) -> Iterator[Node]:
        return map(node_from_api, self.nodes.values())

    def _held(self) -> dict[str, int]:
        held: dict[str, int] = {}
        for occupant in filter(None, map(occupant_from_api, self.pods.values())):
            held[occupant.node] = held.get(occupant.node, 0) + occupant.gpus
        return held

    def _volumes_exist(self, pod: Json) -> bool:
        wanted = [v["configMap"]["name"] for v in pod["spec"].get("volumes", ()) if "configMap" in v]
        return all(("ConfigMap", name) in self.children for name in wanted)

    def _delete_pod(self, name: str) -> None:
        self.pods[name]["metadata"].setdefault("deletionTimestamp", self.now.isoformat())

    def names(self) -> list[str]:
        """Deployments, and names in reservations whose deployment is gone."""
        named = {lease["metadata"]["annotations"][labels.DEPLOYMENT_NAME] for lease in self.leases.values()}
        return [*self.deployments, *sorted({n.partition("/")[2] for n in named} - set(self.deployments))]

    def _everything(self) -> Any:
        return copy.deepcopy((self.deployments, self.pods, self.children, self.leases))
