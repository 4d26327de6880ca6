"""The rack's real nodes: containers run, answer and fail as on any cluster, and leave nothing behind."""

from __future__ import annotations

import json
import socket
import struct
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from tests.rack import Rack, images
from tests.rack.clients import wait
from tests.rack.fixtures import MakeRack
from tests.rack.shell import run

pytestmark = pytest.mark.e2e

WITHIN_S = 60
PORT = 8080
SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["NODE"].encode())
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)
except OSError as error:
    print("refused:", error)
else:
    print("open")
"""


def python_pod(name: str, code: str, clique: str | None = None, gpus: int = 0) -> dict:
    """A restricted pod that runs Python code, on a GPU node of a domain or on the CPU node."""
    container = {
        "name": "c",
        "image": images.base().reference,
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", code],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if "serve_forever" in code:
        container["readinessProbe"] = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "nodeSelector": {"nvidia.com/gpu.clique": clique} if clique else {},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }


def serve(rack: Rack, namespace: str, name: str, domain: int | None = 0, gpus: int = 0) -> str:
    """Start a pod that answers with its node's name; returns its address."""
    clique = None if domain is None else rack.clique(domain)
    rack.core.create_namespaced_pod(namespace, python_pod(name, SERVER, clique, gpus))
    rack.kubectl("wait", "-n", namespace, "--for=condition=Ready", f"pod/{name}", f"--timeout={WITHIN_S}s")
    return rack.core.read_namespaced_pod(name, namespace).status.pod_ip


def get(address: str, port: int = PORT) -> str:
    with urllib.request.urlopen(f"http://{address}:{port}/", timeout=5) as answer:
        return answer.read().decode()


def try_get(address: str, port: int = PORT) -> str | None:
    """The answer, or None while there is none: a pod starts, proxies learn of an endpoint."""
    try:
        return get(address, port)
    except OSError:
        return None


def resolve(rack: Rack, name: str) -> str | None:
    """Ask the cluster's DNS for the address of a name, from the host (RFC 1035, one question of type A).
    None if it does not answer or does not know the name: DNS starts with the rack, nobody waits for it."""
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
    query = struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + question + struct.pack(">2H", 1, 1)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asker:
        asker.settimeout(2)
        asker.sendto(query, (str(rack.addresses.dns), 53))
        try:
            answer = asker.recv(512)
        except TimeoutError:
            return None
    return socket.inet_ntoa(answer[-4:]) if struct.unpack(">H", answer[6:8])[0] == 1 else None


def test_pod_answers_the_host_by_pod_service_and_name(rack: Rack, namespace: str) -> None:
    address = serve(rack, namespace, "web")
    assert get(address) == "d0-n00"

    rack.kubectl("expose", "pod", "web", "-n", namespace, "--port=80", f"--target-port={PORT}")
    service = rack.core.read_namespaced_service("web", namespace).spec.cluster_ip
    name = f"web.{namespace}.svc.cluster.local"
    assert wait(f"{name} resolves", lambda: resolve(rack, name), WITHIN_S) == service

    assert wait("the Service answers", lambda: try_get(service, 80), WITHIN_S) == "d0-n00"


def test_pods_reach_one_another_by_name_across_nodes(rack: Rack, namespace: str) -> None:
    serve(rack, namespace, "web", domain=0)
    rack.kubectl("expose", "pod", "web", "-n", namespace, "--port=80", f"--target-port={PORT}")
    code = f"""
import time, urllib.request
while True:
    try:
        print(urllib.request.urlopen("http://web.{namespace}", timeout=2).read().decode())
        break
    except OSError as error:
        time.sleep(0.2)
"""
    pod = python_pod("asks", code, rack.clique(1))
    pod["spec"]["restartPolicy"] = "Never"
    rack.core.create_namespaced_pod(namespace, pod)
    rack.kubectl(
        "wait", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "pod/asks", "--timeout=60s"
    )
    assert rack.kubectl("logs", "-n", namespace, "asks").strip() == "d0-n00"
    assert rack.core.read_namespaced_pod("asks", namespace).spec.node_name == "d1-n00"


def test_pods_reach_neither_host_nor_other_networks(rack: Rack, namespace: str) -> None:
    with closing(socket.create_server(("0.0.0.0", 0))) as listener:
        port = listener.getsockname()[1]
        addresses = {"127.0.0.1", str(rack.addresses.host_link[0])}
        addresses |= {
            info["local"]
            for link in json.loads(run("ip", "-j", "-4", "address"))
            for info in link["addr_info"]
        }
        for address in addresses:
            socket.create_connection((address, port), timeout=5).close()  # the host itself gets through
        serve(rack, namespace, "inside")
        for address in [*sorted(addresses - {"127.0.0.1"}), "192.0.2.1", "1.1.1.1"]:
            tried = rack.kubectl(
                "exec", "-n", namespace, "inside", "--", "python3", "-c", TRY, address, str(port)
            )
            assert tried.startswith("refused"), f"a pod reaches {address}:{port}: {tried}"


def test_gpus_are_counted_on_a_real_node(rack: Rack, namespace: str) -> None:
    serve(rack, namespace, "takes-all", domain=0, gpus=4)
    rack.core.create_namespaced_pod(namespace, python_pod("waits", SERVER, rack.clique(0), gpus=1))

    def refused() -> str | None:
        conditions = rack.core.read_namespaced_pod("waits", namespace).status.conditions or []
        return next((c.message for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)

    assert "Insufficient nvidia.com/gpu" in wait("the second pod is refused", refused, WITHIN_S)
    rack.core.delete_namespaced_pod("takes-all", namespace)
    rack.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/waits", f"--timeout={WITHIN_S}s")


def test_killed_process_is_restarted_in_its_pod(rack: Rack, namespace: str) -> None:
    serve(rack, namespace, "web")
    before = rack.core.read_namespaced_pod("web", namespace)
    rack.kill_container(namespace, "web", "c")

    def restarted() -> bool:
        (status,) = rack.core.read_namespaced_pod("web", namespace).status.container_statuses
        return status.restart_count == 1 and status.ready

    wait("the container is back", restarted, WITHIN_S)
    after = rack.core.read_namespaced_pod("web", namespace)
    assert (after.metadata.uid, after.status.pod_ip) == (before.metadata.uid, before.status.pod_ip)


def test_read_only_volume_of_the_host_is_allowed_through_a_claim(
    rack: Rack, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("from the host")
    tmp_path.chmod(0o755)  # containers run as uid 1000
    rack.share_folder(namespace, "shared", tmp_path)
    code = """
print(open("/shared/file").read())
try:
    open("/shared/new", "w")
except OSError as error:
    print(error.strerror)
"""
    pod = python_pod("reads", code, rack.clique(0))
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["volumes"] = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}
    ]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/shared", "readOnly": True}]
    rack.core.create_namespaced_pod(namespace, pod)
    rack.kubectl(
        "wait", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "pod/reads", "--timeout=60s"
    )
    said = rack.kubectl("logs", "-n", namespace, "reads").splitlines()
    assert said == ["from the host", "Read-only file system"]


def test_node_fails_and_comes_back(make_rack: MakeRack) -> None:
    rack = make_rack(domains=1, nodes=2, real=1, images=[images.base()])
    node = rack.node("d0-n00")
    address = serve(rack, "default", "web")

    node.not_ready()
    assert get(address) == "d0-n00", "containers outlive their kubelet"
    node.ready()
    wait("its pod is Ready again", lambda: "1/1" in rack.kubectl("get", "pod", "web"), WITHIN_S)
    assert rack.core.read_node("d0-n00").status.allocatable["nvidia.com/gpu"] == "4"

    node.remove()
    with pytest.raises(OSError, match=r"timed out|No route|refused"):
        get(address)
    node.add()
    wait(
        "its pod runs again",
        lambda: try_get(rack.core.read_namespaced_pod("web", "default").status.pod_ip),
        WITHIN_S,
    )
    assert rack.core.read_node("d0-n00").status.allocatable["nvidia.com/gpu"] == "4"


FIXED_PATHS = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/log/pods",
    "/run/containerd",
    "/etc/cni",
)
KERNEL_SETTINGS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "net/ipv4/ip_forward")


def shared_state() -> dict[str, object]:
    """What no rack may change, whoever else runs one."""
    paths: dict[str, object] = {path: sorted(map(str, Path(path).glob("**/*"))) for path in FIXED_PATHS}
    return paths | {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS}


def traces(rack: Rack) -> list[str]:
    """Everything on this machine that bears the rack's name or lies in its folder."""
    name, folder = rack.addresses.name, str(rack.folder)
    found = [
        line
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if folder in line or f"/{name}" in line
    ]
    found += [
        line for line in run("ip", "netns", "list").splitlines() if line.split()[0].split("-")[0] == name
    ]
    found += [line for line in run("ip", "-o", "link").splitlines() if line.split()[1].startswith(f"{name}@")]
    found += [line for line in run("ip", "route").splitlines() if f"dev {name} " in line]
    found += [line for line in run("nft", "list", "tables").splitlines() if line.split()[-1] == name]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{name}-*")]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if folder in command:
            found.append(command)
    return found + ([folder] if rack.folder.exists() else [])


def test_two_racks_at_a_time_and_nothing_left_behind() -> None:
    from tests.rack import rack as start

    before = shared_state()
    with start(domains=1, nodes=1, real=1, images=[images.base()]) as one:
        with start(domains=1, nodes=1, real=1, images=[images.base()]) as other:
            assert traces(one), "the check sees a running rack"
            for rack in (one, other):
                assert get(serve(rack, "default", "web")) == "d0-n00"
        assert traces(other) == []
        assert get(one.core.read_namespaced_pod("web", "default").status.pod_ip) == "d0-n00"
        assert shared_state() == before
    assert traces(one) == []
    assert shared_state() == before
