"""What is said of certificate files that cannot be used, and what the context accepts."""

import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from holdfast.broker.sockets.certificates import server_context, warning
from holdfast.broker.sockets.tls import common_name
from holdfast.core.config import Config
from holdfast.core.errors import ConfigurationError
from tests.builders.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def config(authority: Authority, tmp_path: Path) -> Config:
    certificate, key = authority.server()
    return Config(
        tls_certificate=certificate.rename(tmp_path / "server.pem"),
        tls_key=key.rename(tmp_path / "server.key"),
        tls_client_ca=authority.file,
    )


def lock(key: Path) -> None:
    encrypted = load_pem_private_key(key.read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    key.write_bytes(encrypted)


@pytest.mark.parametrize(
    ("file", "break_it", "sentence"),
    [
        ("server.pem", Path.unlink, r"tls.certificate: .*server.pem cannot be read: No such file"),
        ("server.key", Path.unlink, r"tls.key: .*server.key cannot be read: No such file"),
        (
            "server.pem",
            lambda file: file.write_text("x"),
            r"tls.certificate: no certificate with its key in PEM in .*server.pem and .*server.key",
        ),
        ("server.key", lock, r"tls.key: .*server.key is locked by a passphrase"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    config: Config, tmp_path: Path, file: str, break_it: Callable[[Path], None], sentence: str
) -> None:
    break_it(tmp_path / file)
    with pytest.raises(ConfigurationError, match=sentence):
        server_context(config)


@pytest.mark.parametrize(
    ("days", "sentence"), [(-1, "has expired at"), (3, "expires at"), (30, None)]
)
def test_a_certificate_that_is_good_no_more_or_not_for_long_is_told(
    config: Config, authority: Authority, days: int, sentence: str | None
) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    certificate, key = authority.server("dated", until=now + timedelta(days=days))
    dated = replace(config, tls_certificate=certificate, tls_key=key)
    server_context(dated)
    told = warning(dated, int(now.timestamp() * 1_000_000))
    if sentence is None:
        assert told is None
    else:
        assert told is not None
        assert sentence in told
        assert str(certificate) in told


def test_a_key_of_another_certificate_is_named(config: Config, authority: Authority) -> None:
    _, key = authority.server("other")
    with pytest.raises(ConfigurationError, match=r"tls.key: the key in .* does not belong to"):
        server_context(replace(config, tls_key=key))


def test_authorities_that_are_none_are_named(config: Config, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("x")
    with pytest.raises(ConfigurationError, match=r"tls.client_ca: no certificate in PEM in .*noth"):
        server_context(replace(config, tls_client_ca=nothing))


def test_certificate_and_key_may_share_a_file(config: Config) -> None:
    assert config.tls_certificate is not None
    assert config.tls_key is not None
    with config.tls_certificate.open("ab") as file:
        file.write(config.tls_key.read_bytes())
    server_context(replace(config, tls_key=None))


@pytest.mark.parametrize(
    ("word", "mode"),
    [("off", ssl.CERT_NONE), ("optional", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_clients_are_asked_as_the_setting_says(
    config: Config, word: str, mode: ssl.VerifyMode
) -> None:
    context = server_context(replace(config, tls_client_certificates=word))
    assert context.verify_mode == mode
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "one"),),), "one"),
        (((("organizationName", "o"),), (("commonName", "one"),)), "one"),
        (((("commonName", "one"),), (("commonName", "two"),)), None),
        ((), None),
    ],
)
def test_a_certificate_has_one_common_name_or_none(subject: object, name: str | None) -> None:
    assert common_name({"subject": subject}) == name
    assert common_name(None) is None
