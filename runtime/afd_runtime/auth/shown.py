"""The credential that this process shows to its peers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TOKEN_FILE = "AFD_TOKEN_FILE"


class NoCredentialError(RuntimeError):
    """The credential cannot be read; the message names the file."""


def read(path: str | Path) -> str:
    """Read anew each time it is shown: the kubelet renews tokens in place. Raises NoCredentialError."""
    try:
        credential = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoCredentialError(f"credential file {path}: {error}") from error
    if not credential:
        raise NoCredentialError(f"credential file {path} is empty")
    return credential


def path(environ: Mapping[str, str], secret_file: str | None = None) -> str:
    """The file to show: the projected token, or the unit's secret. Raises NoCredentialError."""
    found = environ.get(TOKEN_FILE) or secret_file
    if not found:
        raise NoCredentialError(f"{TOKEN_FILE} is not set and the unit has no secret file")
    return found
