"""Projected ServiceAccount tokens: signed by the API server, bound to a pod, for audience `afd`.

    worker          runs as the unit's account, in the very pod that the place belongs to
    gateway         runs as the unit's account, in a pod of the deployment's gateway
    status reader   the account that the unit file names (the operator)

Claims: https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jwt

from afd_runtime.auth.judge import DeniedError
from afd_runtime.auth.keys import KeysUnavailableError, PublishedKeys
from afd_unit import names
from afd_unit.identity import Member, pod_of
from afd_unit.labels import TOKEN_AUDIENCE
from afd_unit.unitfile import UnitFile

ALGORITHMS = ["RS256", "ES256", "ES384", "ES512"]
"""Those that an API server signs with. Never a symmetric one: the keys are public."""
LONGEST_TOKEN = 16 << 10


@dataclass(frozen=True)
class Bearer:
    """What a verified token says of who shows it."""

    account: str
    """`namespace/name`"""
    pod: str | None


class TokenJudge:
    def __init__(self, unit: UnitFile, keys: PublishedKeys) -> None:
        self._unit, self._keys = unit, keys
        self._namespace, _, self._deployment = unit.deployment.partition("/")

    async def worker(self, credential: str, member: Member) -> None:
        bearer = await self._of_unit(credential)
        pod_index, _ = pod_of(member.index, self._unit.gpus_per_node)
        due = names.pod(self._deployment, member.unit, member.role, pod_index)
        if bearer.pod != due:
            raise DeniedError(f"pod {bearer.pod} may not fill place {member}: it belongs to pod {due}")

    async def gateway(self, credential: str) -> None:
        bearer = await self._of_unit(credential)
        due = names.gateway(self._deployment)
        if not (bearer.pod or "").startswith(f"{due}-"):
            raise DeniedError(f"pod {bearer.pod} is not of the Deployment {due}")

    async def status_reader(self, credential: str) -> None:
        bearer = await self._verify(credential)
        if bearer.account != self._unit.auth.status_reader:
            raise DeniedError(f"account {bearer.account} may not read the status")

    async def _of_unit(self, credential: str) -> Bearer:
        bearer = await self._verify(credential)
        if bearer.account != self._unit.auth.service_account:
            raise DeniedError(f"account {bearer.account} is not the unit's {self._unit.auth.service_account}")
        return bearer

    async def _verify(self, credential: str) -> Bearer:
        if len(credential) > LONGEST_TOKEN:
            raise DeniedError(f"a token of {len(credential)} characters")
        try:
            key = await self._keys.find(str(jwt.get_unverified_header(credential).get("kid")))
            if key is None:
                raise DeniedError("the token is signed by a key that the API server does not publish")
            claims = jwt.decode(
                credential,
                key,
                algorithms=ALGORITHMS,
                audience=TOKEN_AUDIENCE,
                options={"require": ["exp", "aud", "sub"]},
            )
        except KeysUnavailableError as error:
            raise DeniedError(f"the token cannot be verified now: {error}") from error
        except (jwt.PyJWTError, ValueError) as error:
            raise DeniedError(f"the token is not valid: {error}") from error
        return _bearer(claims)


def _bearer(claims: dict[str, Any]) -> Bearer:
    try:
        bound = claims["kubernetes.io"]
        account = f"{bound['namespace']}/{bound['serviceaccount']['name']}"
        pod = bound.get("pod", {}).get("name")
    except (KeyError, TypeError, AttributeError) as error:
        raise DeniedError(f"the token lacks the claim {error}") from error
    return Bearer(account=account, pod=pod)
