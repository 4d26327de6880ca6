"""Cluster DNS: CoreDNS under restricted settings on the CPU node, with names of the cluster and no others."""

from __future__ import annotations

from typing import Any

from tests.rack.addresses import Addresses

IMAGE = "localhost/coredns:rack"
NAME = "coredns"
NAMESPACE = "kube-system"

_COREFILE = """\
cluster.local:5353 in-addr.arpa:5353 {
    errors
    health :8080
    ready :8181
    kubernetes cluster.local in-addr.arpa {
        ttl 5
    }
    cache 5
    loadbalance
}
.:5353 {
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def manifests(addresses: Addresses) -> list[dict[str, Any]]:
    labels = {"k8s-app": "kube-dns"}
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    ports = [
        {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "targetPort": 5353, "protocol": "TCP"},
    ]
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    pod = {"metadata": {"labels": labels}, "spec": _pod()}
    here = {"name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role["name"]},
            "rules": rules,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role["name"]},
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here, "data": {"Corefile": _COREFILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": NAMESPACE},
            "spec": {"clusterIP": str(addresses.dns), "selector": labels, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": here,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod},
        },
    ]


def _pod() -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    return {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
