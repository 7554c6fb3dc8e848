"""What the TLS listeners show and accept, and what links do, from files.

Owns: the making of an `ssl.SSLContext`. Never: keeps one; a reload makes another, and connections
that are open go on with the one that they began with.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.broker.regular_file import open_regular
from holdfast.core.bridge import Tls
from holdfast.core.config import ENCRYPTED, Config
from holdfast.core.errors import ConfigurationError
from holdfast.core.units import SECOND_US

EXPIRES_SOON = timedelta(days=14)
"""Whoever renews certificates does it before."""
_CLIENTS = {
    "off": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def is_encrypted(config: Config) -> bool:
    """True if something listens with TLS."""
    return not config.ports.keys().isdisjoint(ENCRYPTED)


def check_files(config: Config) -> None:
    """Raises as `server_context` does for what the listeners would need, if any has TLS."""
    if is_encrypted(config):
        server_context(config)


def server_context(config: Config) -> ssl.SSLContext:
    """What the settings ask for. Raises `ConfigurationError`: which file, and what is wrong."""
    assert config.tls_certificate is not None, "the settings were checked"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that asks for new keys again and again would cost more than it brings (TLS 1.2).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_mode = _CLIENTS[config.tls_client_certificates]
    _load_certificate(context, config.tls_certificate, config.tls_key)
    if config.tls_client_ca is not None:
        _load_authorities(context, "tls.client_ca", config.tls_client_ca)
    return context


def warning(config: Config, now_us: int) -> str | None:
    """What there is to say of how long the certificate is good, if it is not good now, or not for
    much longer. The files were read before."""
    from cryptography import x509  # Only whoever has TLS waits for it to load.

    assert config.tls_certificate is not None, "the settings were checked"
    try:
        shown = x509.load_pem_x509_certificates(config.tls_certificate.read_bytes())[0]
    except ValueError:
        # OpenSSL has taken it, and is less strict about what no client looks at.
        return None
    now = datetime.fromtimestamp(now_us // SECOND_US, UTC)
    about = f"the certificate in {config.tls_certificate} (tls.certificate)"
    if shown.not_valid_after_utc < now:
        return f"{about} has expired at {shown.not_valid_after_utc}: clients will refuse it"
    if shown.not_valid_before_utc > now:
        return f"{about} is good from {shown.not_valid_before_utc} on: clients refuse it until then"
    if shown.not_valid_after_utc < now + EXPIRES_SOON:
        return f"{about} expires at {shown.not_valid_after_utc}"
    return None


def client_context(tls: Tls) -> ssl.SSLContext:
    """What a link asks of its remote, and shows it. The remote's certificate is always verified,
    and so is the name in it. Raises `ConfigurationError`: which file, and what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if tls.ca is None:
        context.load_default_certs()
    else:
        _load_authorities(context, "tls.ca", Path(tls.ca))
    if tls.certificate is not None and tls.key is not None:
        _load_certificate(context, Path(tls.certificate), Path(tls.key))
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    _check_readable("tls.certificate", certificate)
    if key is not None:
        _check_readable("tls.key", key)
    holder = certificate if key is None else key
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except _PassphraseError:
        raise ConfigurationError(f"tls.key: {holder} is locked by a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            sentence = f"tls.key: the key in {holder} does not belong to {certificate}"
        else:
            told = f"{certificate} and {holder}" if key else str(certificate)
            sentence = f"tls.certificate: no certificate with its key in PEM in {told}"
        raise ConfigurationError(f"{sentence} ({error.reason or 'not PEM'})") from error


def _load_authorities(context: ssl.SSLContext, setting: str, authorities: Path) -> None:
    _check_readable(setting, authorities)
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{setting}: no certificate in PEM in {authorities} ({error.reason or 'not PEM'})"
        ) from error


def _check_readable(key: str, file: Path) -> None:
    try:
        open_regular(file).close()
    except (OSError, ValueError) as error:
        # A path with U+0000 in it is no error of the system.
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{key}: {file} cannot be read: {reason}") from error


class _PassphraseError(Exception):
    """The key asks for a passphrase; without this OpenSSL would ask the terminal."""


def _refuse_passphrase() -> str:
    raise _PassphraseError
