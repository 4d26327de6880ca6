"""Projected ServiceAccount tokens, signed here as an API server signs them."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from afd_runtime.auth.judge import DeniedError
from afd_runtime.auth.keys import FETCH_AT_MOST_EVERY_S, KeysUnavailableError, PublishedKeys
from afd_runtime.auth.token import TokenJudge
from afd_unit.identity import Member, Role
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile

UNIT = UnitFile(
    deployment="models/qwen",
    unit=2,
    model=Model(id="q", path="/model", context_length=10),
    attention_workers=8,
    expert_workers=4,
    gpus_per_node=4,
    microbatches=2,
    coordinator="c:7400",
    domain="d",
    auth=Auth(
        mode=AuthMode.SERVICE_ACCOUNT, service_account="models/qwen", status_reader="afd-system/afd-operator"
    ),
)
LANE_5 = Member(2, Role.ATTENTION, 5)


class Signer:
    """An API server's key, and the set that it publishes."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def published(self) -> dict[str, Any]:
        entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return {**entry, "kid": self.key_id, "alg": "RS256", "use": "sig"}

    def token(
        self, *, account: str = "models/qwen", pod: str | None = "qwen-2-attn-1", **changes: Any
    ) -> str:
        namespace, _, name = account.partition("/")
        bound: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": "u"}}
        if pod is not None:
            bound["pod"] = {"name": pod, "uid": "p"}
        claims = {
            "aud": ["afd"],
            "exp": time.time() + 600,
            "iss": "https://kubernetes.default.svc",
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "kubernetes.io": bound,
            **changes,
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self.key_id})


class ApiServer:
    def __init__(self, *signers: Signer) -> None:
        self.signers, self.fetches, self.down = list(signers), 0, False

    async def fetch(self) -> jwt.PyJWKSet:
        self.fetches += 1
        if self.down:
            raise KeysUnavailableError("the API server does not answer")
        return jwt.PyJWKSet.from_dict({"keys": [signer.published() for signer in self.signers]})


SIGNER = Signer("one")


def judge(server: ApiServer | None = None, clock: Any = time.monotonic) -> TokenJudge:
    return TokenJudge(UNIT, PublishedKeys((server or ApiServer(SIGNER)).fetch, clock))


async def test_a_pod_fills_its_own_place() -> None:
    await judge().worker(SIGNER.token(), LANE_5)


@pytest.mark.parametrize(
    ("why", "token", "says"),
    [
        ("another pod's place", SIGNER.token(pod="qwen-2-attn-0"), "belongs to pod qwen-2-attn-1"),
        ("a pod of another unit", SIGNER.token(pod="qwen-1-attn-1"), "may not fill"),
        ("a pod of the other role", SIGNER.token(pod="qwen-2-exp-1"), "may not fill"),
        ("bound to no pod", SIGNER.token(pod=None), "may not fill"),
        ("another account", SIGNER.token(account="models/other"), "is not the unit's"),
        ("another namespace", SIGNER.token(account="evil/qwen"), "is not the unit's"),
        ("another audience", SIGNER.token(aud=["https://kubernetes.default.svc"]), "Audience"),
        ("expired", SIGNER.token(exp=time.time() - 1), "expired"),
        ("without an end", SIGNER.token(exp=None), "exp"),
        ("no claims of Kubernetes", SIGNER.token(**{"kubernetes.io": None}), "lacks the claim"),
        ("signed by someone else", Signer("one").token(), "not valid"),
        ("signed by a key that is not published", Signer("two").token(), "does not publish"),
        ("no token", "", "not valid"),
        ("noise", "a.b.c", "not valid"),
        ("endless", "x" * 100_000, "100000 characters"),
        (
            "unsigned",
            jwt.encode({"aud": "afd"}, "", algorithm="none", headers={"kid": "one"}),
            "not valid",
        ),
    ],
)
async def test_a_worker_that_proves_too_little(why: str, token: str, says: str) -> None:
    with pytest.raises(DeniedError, match=says) as denied:
        await judge().worker(token, LANE_5)
    assert not token or token not in str(denied.value), "a credential never gets into a log"


async def test_a_public_key_is_no_shared_secret() -> None:
    """The classic confusion: a token signed with HMAC, keyed by the published key's own text."""
    forged = jwt.encode({"aud": "afd"}, "x" * 32, algorithm="HS256", headers={"kid": "one"})
    with pytest.raises(DeniedError, match="not valid"):
        await judge().gateway(forged)


async def test_gateways_come_from_their_deployment() -> None:
    await judge().gateway(SIGNER.token(pod="qwen-gateway-7d9f-abcde"))
    with pytest.raises(DeniedError, match="not of the Deployment"):
        await judge().gateway(SIGNER.token(pod="qwen-2-attn-1"))


async def test_the_status_is_the_operators() -> None:
    await judge().status_reader(SIGNER.token(account="afd-system/afd-operator", pod="afd-operator-1"))
    with pytest.raises(DeniedError, match="may not read"):
        await judge().status_reader(SIGNER.token())


async def test_keys_are_fetched_once_and_again_for_a_new_key() -> None:
    server, now_s = ApiServer(SIGNER), 0.0
    one = judge(server, lambda: now_s)
    for _ in range(5):
        await one.worker(SIGNER.token(), LANE_5)
    assert server.fetches == 1
    rotated = Signer("two")
    server.signers.append(rotated)
    now_s += FETCH_AT_MOST_EVERY_S
    await one.worker(rotated.token(), LANE_5)
    assert server.fetches == 2


async def test_forged_key_names_do_not_flood_the_api_server() -> None:
    server = ApiServer(SIGNER)
    one = judge(server, lambda: 0.0)
    for number in range(3):
        with pytest.raises(DeniedError, match="does not publish"):
            await one.worker(Signer(f"forged-{number}").token(), LANE_5)
    assert server.fetches == 1


async def test_an_api_server_that_is_down_denies_and_recovers() -> None:
    server, now_s = ApiServer(SIGNER), 0.0
    server.down = True
    one = judge(server, lambda: now_s)
    with pytest.raises(DeniedError, match="cannot be verified now"):
        await one.worker(SIGNER.token(), LANE_5)
    server.down = False
    now_s += FETCH_AT_MOST_EVERY_S
    await one.worker(SIGNER.token(), LANE_5)
