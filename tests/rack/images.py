"""The images that real nodes start with: archives in the cache, built without any registry.

    pause, CoreDNS          one static command each                                         `oci`
    base                    Debian with Python, by debootstrap: stands for python:3.11-slim
    afd-operator            operator/Containerfile, as users build it, over that base
    afd-runtime             runtime/Containerfile, likewise; here without torch (EXTRAS=server)

A reference ends with a hash of everything the image is built from, so a changed source is another image
and no node can run an old one. Wheels are fetched on the host, with the user's own pip settings, and
mounted into the build beside a pip.conf that names them: the Containerfiles know nothing of it.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.rack import cache, containerd, dns, oci
from tests.rack.binaries import Binaries
from tests.rack.progress import Progress
from tests.rack.shell import run

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
SOURCES = ("operator", "runtime")
"""What a Containerfile copies, beside pyproject.toml and constraints.txt."""
KEEP_IMAGES = 3

_PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\nno-cache-dir = true\n"
_BASE_CONTAINERFILE = "FROM scratch\nADD base.tar /\n"


@dataclass(frozen=True)
class Image:
    """An image and the OCI archive that holds it."""

    reference: str
    archive: Path


def system(binaries: Binaries) -> list[Image]:
    """What every node needs: the pause command of a pod's sandbox, and CoreDNS."""
    return [
        _single_command(containerd.PAUSE_IMAGE, Path(binaries["pause"])),
        _single_command(dns.IMAGE, Path(binaries["coredns"])),
    ]


def base() -> Image:
    """Debian's Python and nothing else. Takes a minute and a half when it is not in the cache."""
    digest = cache.digest(SUITE, *BASE_PACKAGES)
    reference = f"localhost/afd-base:{digest}"

    def build(folder: Path) -> None:
        with Progress("building the base image") as progress:
            with progress.task(f"debootstrap {SUITE} with {', '.join(BASE_PACKAGES)}"):
                _debootstrap(folder)
            with progress.task("commit"):
                (folder / "Containerfile").write_text(_BASE_CONTAINERFILE)
                _bud(folder, folder / "Containerfile", reference)
                _push(reference, folder / "image.tar")
        (folder / "base.tar").unlink()

    return Image(reference, cache.entry("images", f"base-{digest}", build) / "image.tar")


def project(name: str, *, extras: str) -> Image:
    """`<name>/Containerfile` with the given extras of pyproject.toml, for the tree as it is now."""
    over = base()
    wheels = wheelhouse(extras)
    digest = cache.digest(over.reference, wheels.name, extras, _source_digest(name))
    reference = f"localhost/afd-{name}:{digest}"

    def build(folder: Path) -> None:
        with Progress(f"building the {name} image") as progress:
            with progress.task(f"{name}/Containerfile with EXTRAS={extras}"):
                _bud(
                    ROOT, ROOT / name / "Containerfile", reference,
                    "--build-arg", f"BASE_IMAGE={over.reference}", "--build-arg", f"EXTRAS={extras}",
                    "--volume", f"{wheels}:/wheels:ro", "--volume", f"{wheels / 'pip.conf'}:/etc/pip.conf:ro",
                )  # fmt: skip
            with progress.task("archive"):
                _push(reference, folder / "image.tar")

    found = cache.entry("images", f"{name}-{digest}", build)
    cache.prune("images", name, KEEP_IMAGES)
    return Image(reference, found / "image.tar")


def wheelhouse(extras: str) -> Path:
    """A folder of the wheels that `pip install afd[extras]` needs, and the pip.conf that points there."""
    constraints = ROOT / "constraints.txt"
    wanted = requirements(extras)
    digest = cache.digest(sys.version, constraints.read_bytes(), *wanted)

    def fetch(folder: Path) -> None:
        with Progress("fetching wheels") as progress, progress.task(f"afd[{extras}]"):
            run(
                sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:",
                "--dest", str(folder), "--constraint", str(constraints), *wanted,
            )  # fmt: skip
        (folder / "pip.conf").write_text(_PIP_CONF)

    return cache.entry("images", f"wheels-{extras}-{digest}", fetch)


def requirements(extras: str) -> list[str]:
    """Requirement strings of the distribution with these extras, its build backend included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    optional = project["project"]["optional-dependencies"]
    waiting = extras.split(",")
    while waiting:
        for requirement in optional[waiting.pop()]:
            if requirement.startswith("afd["):
                waiting += requirement.removeprefix("afd[").removesuffix("]").split(",")
            else:
                found.append(requirement)
    return sorted(set(found))


def _single_command(reference: str, command: Path) -> Image:
    # The command's folder is named by the hash of what it was built from.
    name = f"{command.name}-{cache.digest(reference, command.parent.name, Path(oci.__file__).read_bytes())}"
    folder = cache.entry(
        "images", name, lambda new: oci.single_command(new / "image.tar", reference, command)
    )
    return Image(reference, folder / "image.tar")


def _debootstrap(folder: Path) -> None:
    root = folder / "root"
    run(
        "debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", SUITE, str(root),
        timeout_s=1200,
    )  # fmt: skip
    for unneeded in (
        "var/cache/apt",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
    ):
        shutil.rmtree(root / unneeded, ignore_errors=True)
    run("tar", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", str(folder / "base.tar"), ".")
    shutil.rmtree(root)


def _source_digest(name: str) -> str:
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt", ROOT / name / "Containerfile"]
    for source in SOURCES:
        files += [path for path in (ROOT / source).rglob("*") if _is_source(path)]
    return cache.digest_tree(ROOT, set(files))


def _is_source(path: Path) -> bool:
    hidden = {"__pycache__", "build"}
    generated = any(part in hidden or part.endswith(".egg-info") for part in path.parts)
    return path.is_file() and not generated


def _buildah(*arguments: str) -> None:
    """A storage of the rack's own: nothing of the user's images is read or changed."""
    storage = cache.folder() / "images" / "buildah"
    with cache.lock("buildah"):
        run(
            "buildah", "--root", str(storage), "--runroot", str(storage / "run"),
            "--storage-driver", "overlay", *arguments, timeout_s=1200,
        )  # fmt: skip


def _bud(context: Path, containerfile: Path, reference: str, *more: str) -> None:
    _buildah(
        "bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers",
        "--file", str(containerfile), "--tag", reference, *more, str(context),
    )  # fmt: skip


def _push(reference: str, archive: Path) -> None:
    _buildah("push", "--quiet", "--disable-compression", reference, f"oci-archive:{archive}:{reference}")
