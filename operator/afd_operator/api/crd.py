"""The CustomResourceDefinition of AFDDeployment: `crds/afd.dev_afddeployments.yaml`, printed by `afd crd`."""

from __future__ import annotations

from typing import Any

import yaml

from afd_operator.api.deployment import GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION, AFDDeployment
from afd_operator.api.schema import structural

NAME = f"{PLURAL}.{GROUP}"
FILE = f"{GROUP}_{PLURAL}.yaml"
"""Its file in crds/."""

_HEADER = "# Made by `afd crd` from operator/afd_operator/api. Change the models, not this file.\n"

_COLUMNS = (
    ("Ready", "string", ".status.ready", "Units that serve of those asked for.", 0),
    ("Ratio", "string", ".status.plan.ratio", "Attention nodes : expert nodes of each unit.", 0),
    ("Domain", "string", ".status.domain", "NVLink domains of the units.", 0),
    ("Step", "string", ".status.observed.stepTime", "Wall time of a decode step.", 0),
    ("Slack", "string", ".status.observed.ffnSlack", "FFN slack: (T_a - T_e) / T_a.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was created.", 0),
    ("Model", "string", ".spec.model.id", "Name under which clients ask for the model.", 1),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why it is Ready, or not.", 1),
)
"""Title, type, path, description, priority (1: only with `-o wide`)."""


def definition() -> dict[str, Any]:
    """The CRD as a dict."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.units",
                "statusReplicasPath": ".status.units",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": priority}
            for name, kind, path, text, priority in _COLUMNS
        ],
    }


def _schema() -> dict[str, Any]:
    """The object's schema. What the API server owns (identity, metadata) is only named, and a status has no
    defaults: it is written whole by the operator."""
    schema = structural(AFDDeployment)
    fields = schema["properties"]
    return {
        "description": schema["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": fields["spec"],
            "status": without_defaults(fields["status"]),
        },
    }


def without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with no default anywhere in it."""
    out = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in out:
        out["properties"] = {name: without_defaults(child) for name, child in out["properties"].items()}
    if "items" in out:
        out["items"] = without_defaults(out["items"])
    return out


class _Plain(yaml.SafeDumper):
    """No anchors for values that occur twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> str:
    """The CRD as the text of its file."""
    body = yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True)
    return f"{_HEADER}{body}"


def render_for_chart() -> str:
    """The CRD as a template of the chart: installed or not, kept or not when the release is removed."""
    keep = """metadata:
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
  labels:
    {{- include "afd-operator.labels" . | nindent 4 }}
"""
    return "{{- if .Values.crds.install }}\n" + render().replace("metadata:\n", keep, 1) + "{{- end }}\n"
