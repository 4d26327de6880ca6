"""The judge that the unit file asks for."""

from __future__ import annotations

from collections.abc import Mapping

from afd_runtime.auth import keys, shown
from afd_runtime.auth.judge import Judge
from afd_runtime.auth.secret import SecretJudge
from afd_runtime.auth.token import TokenJudge
from afd_unit.unitfile import AuthMode, UnitFile, UnitFileError

API_TOKEN_FILE = "AFD_API_TOKEN_FILE"
"""Token of the API server's own audience, mounted for coordinators only."""
API_CA_FILE = "AFD_API_CA_FILE"


def judge(unit: UnitFile, environ: Mapping[str, str]) -> Judge:
    """Raises UnitFileError or NoCredentialError naming what is missing."""
    match unit.auth.mode:
        case AuthMode.SECRET:
            if unit.auth.secret_file is None:
                raise UnitFileError("auth.secretFile is missing, mode is secret")
            return SecretJudge(shown.read(unit.auth.secret_file))
        case AuthMode.SERVICE_ACCOUNT:
            if unit.auth.service_account is None:
                raise UnitFileError("auth.serviceAccount is missing, mode is serviceAccount")
            missing = [name for name in (API_TOKEN_FILE, API_CA_FILE) if not environ.get(name)]
            if missing:
                raise shown.NoCredentialError(f"{' and '.join(missing)} must name a file to verify tokens")
            fetch = keys.from_api_server(
                token_file=environ[API_TOKEN_FILE], ca_file=environ[API_CA_FILE], url=keys.API_SERVER
            )
            return TokenJudge(unit, keys.PublishedKeys(fetch))
