"""Which judge a unit file asks for, and what is said when something for it is missing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.auth.test_token import UNIT

from afd_runtime.auth.choose import judge
from afd_runtime.auth.judge import DeniedError
from afd_runtime.auth.secret import SecretJudge
from afd_runtime.auth.shown import NoCredentialError, path, read
from afd_runtime.auth.token import TokenJudge
from afd_unit.identity import Member, Role
from afd_unit.unitfile import Auth, AuthMode, UnitFile, UnitFileError


def unit(auth: Auth) -> UnitFile:
    return msgspec.structs.replace(UNIT, auth=auth)


async def test_a_shared_secret_opens_everything_and_nothing_else_does(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("open sesame\n")
    made = judge(unit(Auth(mode=AuthMode.SECRET, secret_file=str(file))), {})
    assert isinstance(made, SecretJudge)
    await made.worker("open sesame", Member(0, Role.EXPERT, 0))
    await made.gateway("open sesame")
    await made.status_reader("open sesame")
    for wrong in ("", "open", "öffne dich"):
        with pytest.raises(DeniedError):
            await made.gateway(wrong)


def test_tokens_need_a_way_to_the_keys() -> None:
    files = {"AFD_API_TOKEN_FILE": "/t", "AFD_API_CA_FILE": "/c"}
    assert isinstance(judge(UNIT, files), TokenJudge)
    with pytest.raises(NoCredentialError, match="AFD_API_CA_FILE must"):
        judge(UNIT, {"AFD_API_TOKEN_FILE": "/t"})


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        (Auth(mode=AuthMode.SECRET), "secretFile"),
        (Auth(mode=AuthMode.SERVICE_ACCOUNT), "serviceAccount"),
    ],
)
def test_an_incomplete_unit_file_names_the_field(auth: Auth, says: str) -> None:
    with pytest.raises(UnitFileError, match=says):
        judge(unit(auth), {})


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    with pytest.raises(NoCredentialError, match="is empty"):
        read(tmp_path / "secret")
    with pytest.raises(NoCredentialError, match="No such file"):
        read(tmp_path / "nothing")


def test_the_token_goes_before_the_secret() -> None:
    assert path({"AFD_TOKEN_FILE": "/token"}, "/secret") == "/token"
    assert path({}, "/secret") == "/secret"
    with pytest.raises(NoCredentialError, match="AFD_TOKEN_FILE"):
        path({})
