"""The rack's certificates: one authority of its own, a certificate for each party, kubeconfigs around them.

Parties have the names that Kubernetes' built-in RBAC roles are bound to (`system:kube-scheduler`, ...), so
each works under its own rights and the audit log tells them apart.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=7)
"""A rack that is kept for longer has to be started again."""
CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder: `ca.crt`, and `<file>.{crt,key}` for each pair it issues."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "ca.crt"
        if self.certificate.exists():
            self._certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "afd-rack")])
        self._certificate = (
            _builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(folder / "ca.key", self._key)

    def issue(
        self, file: str, common_name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> KeyPair:
        """A client certificate of user `common_name` in `groups`; also a server's, if `hosts` are given."""
        pair = KeyPair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        builder = (
            _builder(name, self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def kubeconfig(self, path: Path, server: str, user: KeyPair) -> Path:
        credentials = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
        return self._kubeconfig(path, server, credentials)

    def token_kubeconfig(self, path: Path, server: str, token: str) -> Path:
        return self._kubeconfig(path, server, {"token": token})

    def _kubeconfig(self, path: Path, server: str, user: dict[str, str]) -> Path:
        cluster = {"server": server, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rack", "cluster": cluster}],
            "users": [{"name": "rack", "user": user}],
            "contexts": [{"name": "rack", "context": {"cluster": "rack", "user": "rack"}}],
            "current-context": "rack",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path


def service_account_keys(folder: Path) -> KeyPair:
    """The pair that signs ServiceAccount tokens. RSA, as on most clusters: its public half is what
    `/openid/v1/jwks` publishes and verifiers have to read."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pair = KeyPair(folder / "sa.pub", folder / "sa.key")
    _write_key(pair.key, key)
    pair.certificate.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=not sign_certificates,
        data_encipherment=False, key_agreement=False, key_cert_sign=sign_certificates,
        crl_sign=sign_certificates, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
