"""A checkpoint folder as a table of named tensors that are read one at a time.

    config.json                      what the model is
    generation_config.json           optional: more end-of-text tokens
    model.safetensors.index.json     optional: tensor name -> file
    *.safetensors                    memory-mapped: a tensor costs memory only once it is taken

Every failure is a ModelError that names the folder, the tensor or field, and what to do about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

INDEX = "model.safetensors.index.json"
READABLE = (torch.float32, torch.bfloat16, torch.float16)


class ModelError(ValueError):
    """The checkpoint cannot be served; the message says what is wrong where, and what to do."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; raises ModelError."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}: is this a Hugging Face model folder?") from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, a JSON object is needed")
    return value


class Checkpoint:
    """An open checkpoint folder; use it in a `with` block, which unmaps the files at its end."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ModelError(
                f"{self.folder} is not a folder: model.path must name a Hugging Face model folder"
            )
        self.config = read_json(self.folder / "config.json")
        self._stack = ExitStack()
        self._open: dict[str, Any] = {}
        try:
            self._file_of = self._index()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._open.clear()
        self._stack.close()

    @property
    def digest(self) -> str:
        """SHA-256 of config.json: members of one unit must agree in it."""
        return hashlib.sha256((self.folder / "config.json").read_bytes()).hexdigest()

    def eos_token_ids(self) -> tuple[int, ...]:
        """End-of-text tokens by config.json and generation_config.json, sorted."""
        sources = [self.config]
        if (self.folder / "generation_config.json").exists():
            sources.append(read_json(self.folder / "generation_config.json"))
        found: set[int] = set()
        for source in sources:
            value = source.get("eos_token_id")
            found.update(value if isinstance(value, list) else [] if value is None else [value])
        if not all(isinstance(token, int) for token in found):
            raise ModelError(f"{self.folder}: eos_token_id holds {found}, whole numbers are needed")
        return tuple(sorted(found))

    def has(self, name: str) -> bool:
        return name in self._file_of

    def copy_into(self, out: torch.Tensor, name: str) -> None:
        """Fill `out` with tensor `name`, converted to out's dtype; raises ModelError on another shape."""
        out.copy_(self._mapped(name, out.shape))

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Tensor `name` of `shape` as `dtype`, in memory of its own."""
        out = torch.empty(tuple(shape), dtype=dtype)
        self.copy_into(out, name)
        return out

    def _mapped(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        if name not in self._file_of:
            raise ModelError(
                f"{self.folder}: tensor {name} is missing: the download is incomplete or the files are of "
                f"another architecture than config.json says"
            )
        try:
            tensor: torch.Tensor = self._file(self._file_of[name]).get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{self.folder}/{self._file_of[name]}: tensor {name}: {error}") from error
        if tuple(tensor.shape) != tuple(shape):
            raise ModelError(
                f"{self.folder}: tensor {name} has shape {tuple(tensor.shape)}, "
                f"config.json implies {tuple(shape)}"
            )
        if tensor.dtype not in READABLE:
            raise ModelError(
                f"{self.folder}: tensor {name} is {tensor.dtype}: this backend reads bf16, f16 and f32; "
                f"use an unquantised checkpoint"
            )
        return tensor

    def _file(self, file: str) -> Any:
        if file not in self._open:
            try:
                self._open[file] = self._stack.enter_context(safe_open(self.folder / file, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise ModelError(
                    f"{self.folder}/{file}: {error}: the file is missing or cut short"
                ) from error
        return self._open[file]

    def _index(self) -> dict[str, str]:
        """Tensor name -> file name. The index counts when there is one: folders may hold other files."""
        if (self.folder / INDEX).exists():
            return self._from_index(read_json(self.folder / INDEX))
        files = sorted(path.name for path in self.folder.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{self.folder} has no *.safetensors file (other weight formats are not read)")
        return {name: file for file in files for name in self._file(file).keys()}  # noqa: SIM118

    def _from_index(self, index: Mapping[str, Any]) -> dict[str, str]:
        table = index.get("weight_map")
        if not isinstance(table, dict) or not table:
            raise ModelError(f"{self.folder}/{INDEX} has no weight_map")
        for file in set(table.values()):
            if not isinstance(file, str) or Path(file).name != file:
                raise ModelError(f"{self.folder}/{INDEX} names the file {file!r}, which is not in the folder")
        return dict(table)
