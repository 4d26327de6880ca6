"""What the gateway is told, and what it says when that is not enough."""

from __future__ import annotations

import pytest

from afd_runtime.auth.shown import NoCredentialError
from afd_runtime.server.main import Settings, SettingsError

WHOLE = {
    "AFD_COORDINATORS": "a:7400,b:7400",
    "AFD_DEPLOYMENT": "ns/name",
    "AFD_MODEL_ID": "m",
    "AFD_MODEL_PATH": "/model",
    "AFD_CONTEXT_LENGTH": "100",
    "AFD_TOKEN_FILE": "/token",
    "AFD_POD_NAME": "gw-1",
}


def test_whole() -> None:
    settings = Settings.of(WHOLE)
    assert settings.coordinators == ("a:7400", "b:7400")
    assert (settings.name, settings.context_length) == ("gw-1", 100)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"AFD_MODEL_ID": ""}, SettingsError, "AFD_MODEL_ID"),
        ({"AFD_COORDINATORS": "host"}, SettingsError, "host:port"),
        ({"AFD_COORDINATORS": "host:port"}, SettingsError, "host:port"),
        ({"AFD_CONTEXT_LENGTH": "many"}, SettingsError, "AFD_CONTEXT_LENGTH"),
        ({"AFD_CONTEXT_LENGTH": "0"}, SettingsError, "AFD_CONTEXT_LENGTH"),
        ({"AFD_TOKEN_FILE": ""}, NoCredentialError, "AFD_TOKEN_FILE"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, str], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Settings.of({**WHOLE, **changes})
