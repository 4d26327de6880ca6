"""The ConfigMap of a unit: `unit.json`, what the unit should be. Creating it is what starts the unit."""

from __future__ import annotations

from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.resources import containers as parts
from afd_operator.resources.ownership import child, unit_labels
from afd_operator.resources.revision import revision
from afd_unit import labels, names, ports, unitfile
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile

Json = dict[str, Any]


def unit_config(deployment: AFDDeployment, unit: int, domain: str, status_reader: str) -> Json:
    """The ConfigMap of `unit` in `domain`; `status_reader` is the operator's account, `namespace/name`."""
    body = child(
        deployment,
        "v1",
        "ConfigMap",
        names.unit(deployment.metadata.name, unit),
        own_labels=unit_labels(unit),
        annotations={labels.REVISION: revision(deployment.spec), labels.DOMAIN: domain},
    )
    body["data"] = {"unit.json": unitfile.encode(unit_file(deployment, unit, domain, status_reader))}
    return body


def unit_file(deployment: AFDDeployment, unit: int, domain: str, status_reader: str) -> UnitFile:
    spec, metadata = deployment.spec, deployment.metadata
    gpus = spec.placement.gpus_per_node
    # Resolved through the search path of every pod, so that the cluster's own domain need not be known.
    coordinator = f"{names.coordinator(metadata.name, unit)}.{metadata.namespace}.svc"
    return UnitFile(
        deployment=deployment.key,
        unit=unit,
        model=Model(
            id=spec.model.id,
            path=parts.MODEL_PATH,
            context_length=spec.model.context_length,
            kv_cache_dtype=spec.model.kv_cache_dtype,
        ),
        attention_workers=(spec.ratio.attention or 0) * gpus,
        expert_workers=(spec.ratio.expert or 0) * gpus,
        gpus_per_node=gpus,
        microbatches=spec.microbatches,
        coordinator=f"{coordinator}:{ports.COORDINATOR_CONTROL}",
        domain=domain,
        auth=Auth(
            mode=AuthMode.SERVICE_ACCOUNT,
            service_account=f"{metadata.namespace}/{names.service(metadata.name)}",
            status_reader=status_reader,
        ),
    )
