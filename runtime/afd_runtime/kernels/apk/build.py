"""Compiles csrc/ into cubins on any x86 machine, with the compiler from PyPI, and refuses slow code.

    sources + flags + compiler and header versions ── SHA-256 ──► <cache>/<name>-<key>.cubin (+ .log)

The gate: a kernel of this kind is fast only if its accumulators stay in registers while the tensor cores write
them. Each of these is an error, with ptxas's own line:
  C7514  wgmma serialised because accumulators are in flight where they must not be (20 to 30 % of prefill)
  C7508  setmaxnreg ignored, the roles do not get their registers
  spills registers spilled to local memory, in any function
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

CSRC = Path(__file__).parent / "csrc"
KERNELS = ("apk", "traffic")
TARGET = "sm_90a"
FLAGS = (
    "-std=c++20",
    "-O3",
    "--expt-relaxed-constexpr",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-Xptxas=-v,-warn-spills",
)
COMPILER, COMPILER_VERSION = "nvidia-cuda-nvcc", "13.0.88"
HEADERS, HEADERS_VERSION = "sgl-deep-gemm", "0.1.4"

_GATES = (
    (re.compile(r"C7514"), "wgmma is serialised: accumulators are in flight over a loop's back edge"),
    (re.compile(r"C7508"), "setmaxnreg is ignored: the roles do not get their registers"),
    (re.compile(r"[1-9]\d* bytes spill"), "registers are spilled to local memory"),
)
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


class BuildError(RuntimeError):
    """A cubin could not be built, or was refused; the message carries the compiler's own words."""


@dataclass(frozen=True)
class Resources:
    """What ptxas reports of one kernel."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Cubin:
    path: Path
    resources: Resources
    built: bool
    """False if it came from the cache."""


def source_hash() -> str:
    """SHA-256 over every file of csrc/ and the flags: what a benchmark record names."""
    digest = hashlib.sha256(" ".join((*FLAGS, COMPILER_VERSION, HEADERS_VERSION)).encode())
    for path in sorted(CSRC.iterdir()):
        if path.suffix in (".cu", ".cuh"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def default_cache() -> Path:
    """$AFD_KERNEL_CACHE, or the user's cache folder."""
    given = os.environ.get("AFD_KERNEL_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "afd" / "kernels"


def check_target(capability: tuple[int, int]) -> None:
    """Raises BuildError for a GPU that these kernels are not written for."""
    if capability == (9, 0):
        return
    have = f"compute capability {capability[0]}.{capability[1]}"
    if capability[0] == 10:
        raise BuildError(
            f"{have} (Blackwell): the kernel is written for {TARGET}, whose wgmma sm_100 lacks; "
            "docs/kernels.md says what a port to tcgen05 and tensor memory takes"
        )
    raise BuildError(f"{have}: the kernel needs 9.0 (H100, H200), for wgmma and TMA")


def cubin(name: str, cache: Path | None = None) -> Cubin:
    """The cubin of csrc/<name>.cu, compiled unless the cache has it. Raises BuildError."""
    cache = cache or default_cache()
    path = cache / f"{name}-{source_hash()[:16]}.cubin"
    log = path.with_suffix(".log")
    built = not (path.exists() and log.exists())
    if built:
        _compile(CSRC / f"{name}.cu", path, log)
    return Cubin(path, parse_resources(log.read_text()), built)


def gate(output: str) -> None:
    """Raises BuildError if the compiler's output tells of one of the gated faults."""
    for pattern, meaning in _GATES:
        for line in output.splitlines():
            if pattern.search(line):
                raise BuildError(f"{meaning}: {line.strip()}")


def parse_resources(output: str) -> Resources:
    spills, registers = _SPILLS.search(output), _REGISTERS.search(output)
    if spills is None or registers is None:
        raise BuildError(f"no ptxas resource report in the compiler's output: {output.strip()[-400:]}")
    return Resources(int(registers[1]), *(int(number) for number in spills.groups()))


def _compile(source: Path, target: Path, log: Path) -> None:
    nvcc, includes = _nvcc(), [f"-I{folder}" for folder in _includes()]
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".part{os.getpid()}")
    command = [str(nvcc), *FLAGS, *includes, "-cubin", "-o", str(part), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode:
            raise BuildError(f"nvcc failed on {source.name}:\n{output.strip()}")
        gate(output)
        log.write_text(output)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _require(package: str, version: str) -> None:
    try:
        have = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise BuildError(f"{package} is not installed: pip install 'afd[gpu]'") from None
    if have != version:
        raise BuildError(f"{package} {have} is installed, the kernels are built with {version}")


def _nvcc() -> Path:
    _require(COMPILER, COMPILER_VERSION)
    for file in importlib.metadata.files(COMPILER) or ():
        if file.name == "nvcc":
            return Path(str(file.locate()))
    raise BuildError(f"{COMPILER} has no nvcc")


def _includes() -> list[Path]:
    _require(HEADERS, HEADERS_VERSION)
    spec = importlib.util.find_spec("deep_gemm")  # located, not imported: it would load the CUDA driver
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"{HEADERS} has no package deep_gemm")
    return [Path(spec.submodule_search_locations[0]) / "include", _nvcc().parent.parent / "include"]
