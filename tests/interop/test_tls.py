"""TLS: who gets in, who does not and why, and new certificates without a restart."""

import contextlib
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from holdfast.client.http import HttpClient
from holdfast.core.errors import BrokerAbsentError
from holdfast.pipeline.writer.staging import StagingBroker, WriteError
from holdfast.reading.log import BrokerAwayError, UnreadableLogError
from holdfast.reading.remote import RemoteLog
from tests.builders.certificates import Authority
from tests.interop.device import WITHIN_S, Device
from tests.interop.wire import Wire
from tests.process import HOST, BrokerProcess
from tests.supervisor import Supervisor


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the broker does not know."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


class TlsBroker(BrokerProcess):
    """A broker with TLS on every listener that can have it, and without on one."""

    def __init__(self, directory: Path, authority: Authority, **settings: object) -> None:
        self.certificate, self.key = authority.server(f"server-{directory.name}")
        super().__init__(
            directory,
            mqtt_tls_port=0,
            ws_tls_port=0,
            http_tls_port=0,
            tls_certificate=self.certificate,
            tls_key=self.key,
            **settings,
        )

    @property
    def tls_port(self) -> int:
        """Where it takes MQTT with TLS."""
        return self.ports["mqtts"]

    @property
    def https_port(self) -> int:
        """Where it takes HTTP with TLS."""
        return self.ports["https"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[TlsBroker]:
    """Asks nobody for a certificate."""
    with _running(TlsBroker(tmp_path_factory.mktemp("broker"), authority)) as broker:
        yield broker


@contextlib.contextmanager
def _running(broker: TlsBroker) -> Iterator[TlsBroker]:
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.log()


def _tls(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(
        socket.create_connection((HOST, port), WITHIN_S), server_hostname=HOST
    )


def _is_refused(port: int, context: ssl.SSLContext) -> bool:
    """True if TLS ends before MQTT is answered; in TLS 1.3 a client learns it with the answer."""
    try:
        with Wire(over=_tls(port, context)) as wire:
            wire.connect("refused")
    except (ssl.SSLError, ConnectionError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("transport", ["tcp", "websockets", "http"])
def test_a_client_publishes_and_subscribes(
    broker: TlsBroker, authority: Authority, prefix: str, version: int, transport: str
) -> None:
    ports = {"tcp": broker.tls_port, "websockets": broker.ports["wss"], "http": broker.https_port}
    way = "tcp" if transport == "tcp" else "websockets"
    options = {"transport": way, "tls": authority.trusting(), "version": version}
    port = ports[transport]
    device = Device(port, prefix, clean_start=True, **options).connect()
    with contextlib.closing(device):
        device.subscribe(f"{prefix}/#", 1)
        payload = bytes(range(256)) * 2_000
        device.publish(f"{prefix}/a", payload, 1)
        assert device.receive().payload == payload


@pytest.mark.parametrize("tls", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_versions_of_tls_are_spoken(
    broker: TlsBroker, authority: Authority, prefix: str, tls: ssl.TLSVersion
) -> None:
    context = authority.trusting()
    context.minimum_version = context.maximum_version = tls
    with Wire(over=_tls(broker.tls_port, context)) as wire:
        assert wire.connect(prefix)["reason_code"] == 0


@pytest.mark.parametrize("tls", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(
    broker: TlsBroker, authority: Authority, tls: ssl.TLSVersion
) -> None:
    context = authority.trusting()
    # The client's own library would not offer them otherwise.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = tls
    with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL"):
        _tls(broker.tls_port, context)


def test_the_administration_is_asked_with_tls_and_not_without(
    broker: TlsBroker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    found = HttpClient.at(f"https://{HOST}:{broker.https_port}").get("/v1/broker")
    assert {"protocol": "https", "address": f"{HOST}:{broker.https_port}"} in found["listeners"]
    with pytest.raises(BrokerAbsentError):
        HttpClient.at(f"http://{HOST}:{broker.https_port}").get("/v1/broker")
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(BrokerAbsentError, match="certificate"):
        HttpClient.at(f"https://{HOST}:{broker.https_port}").get("/v1/broker")


def test_a_certificate_that_nobody_vouches_for_is_nothing_to_wait_for(broker: TlsBroker) -> None:
    address = f"https://{HOST}:{broker.https_port}"
    with pytest.raises(UnreadableLogError, match="SSL_CERT_FILE") as read:
        RemoteLog(address).extent()
    assert not isinstance(read.value, BrokerAwayError)
    with pytest.raises(WriteError, match="SSL_CERT_FILE"):
        StagingBroker(address, None, None, 60).commit("somebody", 1, [], is_last=True)


def test_mqtt_without_tls_is_ended_at_once(broker: TlsBroker) -> None:
    with socket.create_connection((HOST, broker.tls_port), WITHIN_S) as plain:
        plain.sendall(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc")
        assert plain.recv(1_000) == b""


def test_a_peer_that_goes_amidst_the_handshake_harms_nobody(
    broker: TlsBroker, authority: Authority, prefix: str
) -> None:
    for data in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with socket.create_connection((HOST, broker.tls_port), WITHIN_S) as gone:
            gone.sendall(data)
    with Wire(over=_tls(broker.tls_port, authority.trusting())) as wire:
        assert wire.connect(prefix)["reason_code"] == 0


def test_certificates_of_clients_are_required(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    broker = TlsBroker(
        tmp_path, authority, tls_client_ca=authority.file, tls_client_certificates="required"
    )
    with _running(broker):
        with Wire(over=_tls(broker.tls_port, authority.trusting(authority.client("one")))) as wire:
            assert wire.connect("one")["reason_code"] == 0
        assert _is_refused(broker.tls_port, authority.trusting())
        assert _is_refused(broker.tls_port, authority.trusting(stranger.client("two")))


def test_certificates_of_clients_are_optional_and_have_to_be_right(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    broker = TlsBroker(
        tmp_path, authority, tls_client_ca=authority.file, tls_client_certificates="optional"
    )
    with _running(broker):
        for client in (authority.client("one"), None):
            with Wire(over=_tls(broker.tls_port, authority.trusting(client))) as wire:
                assert wire.connect("any")["reason_code"] == 0
        assert _is_refused(broker.tls_port, authority.trusting(stranger.client("two")))


def test_certificates_are_read_again_and_connections_stay(
    tmp_path: Path, authority: Authority, supervisor: Supervisor
) -> None:
    with _running(TlsBroker(tmp_path, authority)) as broker:
        before = _tls(broker.tls_port, authority.trusting())
        with Wire(over=before) as open_all_the_time:
            open_all_the_time.connect("before")
            certificate, key = authority.server("renewed")
            certificate.replace(broker.certificate)
            key.replace(broker.key)
            broker.send(signal.SIGHUP)
            supervisor.wait_reloaded()
            for port in (broker.tls_port, broker.https_port):
                assert _shown_name(port, authority) == "renewed"
            open_all_the_time.send("pingreq")
            open_all_the_time.receive("pingresp")


def test_a_certificate_that_cannot_be_read_again_changes_nothing(
    tmp_path: Path, authority: Authority, supervisor: Supervisor
) -> None:
    with _running(TlsBroker(tmp_path, authority)) as broker:
        name = _shown_name(broker.tls_port, authority)
        broker.key.write_text("no key")
        broker.send(signal.SIGHUP)
        supervisor.wait_reloaded()
        assert "configuration refused" in broker.log()
        assert _shown_name(broker.tls_port, authority) == name


def _shown_name(port: int, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    with _tls(port, authority.trusting()) as connection:
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    subject = x509.load_der_x509_certificate(shown).subject
    return str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda broker, _: broker.certificate.unlink(), "cannot be read: No such file"),
        (lambda broker, _: broker.key.unlink(), "cannot be read: No such file"),
        (lambda broker, _: broker.key.write_text("no key"), "no certificate with its key in PEM"),
        (
            lambda broker, other: other.server("other")[1].replace(broker.key),
            "does not belong to",
        ),
    ],
    ids=["no certificate", "no key", "not a key", "another's key"],
)
def test_a_start_with_wrong_certificates_says_what_is_wrong(
    tmp_path: Path, authority: Authority, stranger: Authority, break_it: object, sentence: str
) -> None:
    broker = TlsBroker(tmp_path, authority)
    break_it(broker, stranger)  # type: ignore[operator]
    with pytest.raises(AssertionError, match=sentence) as ended:
        broker.start()
    assert "log recovered" not in str(ended.value)
    assert "Traceback" not in broker.log()
