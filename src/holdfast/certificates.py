"""Certificates for a laptop: an authority of its own, and a server and clients that it has signed.

Owns: what stands in them. Never: writes a file or asks a clock. For what others reach, certificates
come from an authority that others trust.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = timedelta(days=825)
"""The longest that every client accepts of a server; nobody renews what a laptop has."""
EARLIER: Final = timedelta(hours=1)
"""A clock beside may be behind ours."""
HERE: Final = ("localhost", "127.0.0.1", "::1")
"""What a server on this machine is called from this machine."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates; its key is as secret as theirs."""

    def __init__(self, name: str, now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        uses = _key_usage(signs_certificates=True)
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(uses, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def issued(self) -> Issued:
        """Its own certificate and key."""
        return _in_pem(self._certificate, self._key)

    def server(self, names: Iterable[str]) -> Issued:
        """A certificate for a server of these host names and addresses."""
        each = list(dict.fromkeys(names))
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in each])
        return self._issue(each[0], ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, common_name: str) -> Issued:
        """A certificate that proves the user of this name."""
        return self._issue(common_name, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self, common_name: str, use: x509.ObjectIdentifier, names: x509.ExtensionType | None
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._builder(_name(common_name), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(authority, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _in_pem(builder.sign(self._key, hashes.SHA256()), key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - EARLIER)
            .not_valid_after(self._now + VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _in_pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
