"""Certificates that expire while a bridge is connected or away: it says so, counts it and goes on
trying, and what is published here waits for a new one."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGHUP

import pytest

from tests.builders.certificates import Authority
from tests.interop.bridge.administered import AdministeredBroker
from tests.interop.bridge.bridged import bridge, carries
from tests.interop.bridge.conftest import Connect, MakeBroker, MakeRemote
from tests.interop.bridge.secured import SecuredBroker
from tests.interop.device import Device
from tests.interop.relay import Relay
from tests.interop.test_admin import eventually
from tests.process import HOST

REMOTE_EXPIRED = "TLS: the remote's certificate was refused: certificate has expired"
OWN_EXPIRED = "TLS: the remote refused this broker's certificate (sslv3 alert certificate expired)"
LASTS_S = 8
"""Long enough for a connection to be made with a certificate on a machine that is busy."""
Through = tuple[SecuredBroker, Relay]


def ago() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=LASTS_S)


def secured(port: int, **tls: object) -> dict[str, object]:
    told = {key: str(value) for key, value in tls.items()}
    address = f"mqtts://{HOST}:{port}"
    return bridge("b", 0, address=address, tls=told, local_subscriptions=[carries("up/#")])


@pytest.fixture
def through(request: pytest.FixtureRequest, make_remote: MakeRemote) -> Iterator[Through]:
    """A remote with a way to it that can be cut."""
    remote = make_remote(**getattr(request, "param", {}))
    with Relay(remote.ports["mqtts"]) as relay:
        yield remote, relay


def renew(remote: SecuredBroker) -> None:
    """It takes the certificate that its file has now."""
    before = remote.log_file.read_text().count("configuration read again")
    remote.send(SIGHUP)
    eventually(
        lambda: remote.log_file.read_text().count("configuration read again") > before,
        "the remote has read its certificate",
    )


def assert_refused(here: Device, local: AdministeredBroker, reason: str) -> None:
    """The bridge is refused again and again for this reason, and clients are served."""
    eventually(lambda: local.bridge("b")["failures"].get("handshake", 0) >= 2, reason)
    eventually(lambda: local.bridge("b")["last_error"] == reason, reason)
    shown = local.bridge("b")
    assert shown["state"] in ("waiting", "connecting")
    assert shown["attempts"] > shown["connections"] + 1
    assert set(shown["failures"]) <= {"handshake", "closed"}
    here.subscribe("here/#", 1)
    here.publish("here/x", b"nobody notices", 1)
    assert here.receive().payload == b"nobody notices"


@pytest.mark.slow
def test_a_certificate_that_expires_during_a_connection_matters_at_the_next_one(
    through: Through, administered: MakeBroker, client: Connect, authority: Authority
) -> None:
    remote, relay = through
    local = administered(secured(relay.port, ca=authority.file), bridges_storage="FILE_NATIVE")
    local.wait_state("b", "connected")
    here, there = client(local, "here"), client(remote, "there")
    there.subscribe("up/#", 2)
    ends_at = soon()
    authority.server(until=ends_at)
    renew(remote)
    relay.cut()
    local.wait_number("b", "connections", 2)
    eventually(lambda: datetime.now(UTC) > ends_at, "the certificate has expired")
    here.publish("up/x", b"during", 2)
    assert there.receive().payload == b"during", "a connection that is open goes on"
    assert local.bridge("b")["connections"] == 2
    relay.cut()
    here.publish("up/x", b"after", 2)
    assert_refused(here, local, REMOTE_EXPIRED)
    authority.server()
    renew(remote)
    assert there.receive().payload == b"after", "what waited comes with the new one"
    assert local.bridge("b")["last_error"] == ""


@pytest.mark.parametrize("through", [{"until": ago()}], indirect=True, ids=["expired"])
def test_a_certificate_that_has_expired_is_refused_until_there_is_a_new_one(
    through: Through, administered: MakeBroker, client: Connect, authority: Authority
) -> None:
    remote, relay = through
    local = administered(secured(relay.port, ca=authority.file))
    here, there = client(local, "here"), client(remote, "there")
    there.subscribe("up/#", 2)
    here.publish("up/x", b"before", 1)
    assert_refused(here, local, REMOTE_EXPIRED)
    assert local.bridge("b")["connections"] == 0
    authority.server()
    renew(remote)
    assert there.receive().payload == b"before"


def test_our_own_certificate_that_has_expired_before_a_reconnect_is_said(
    make_remote: MakeRemote,
    administered: MakeBroker,
    client: Connect,
    authority: Authority,
    tmp_path: Path,
) -> None:
    remote = make_remote(tls_client_ca=authority.file, tls_client_certificates="required")
    own = tmp_path / "own.pem"
    own.write_bytes(authority.client("site7").read_bytes())
    tls = {"ca": authority.file, "certificate": own, "key": own}
    with Relay(remote.ports["mqtts"]) as relay:
        local = administered(secured(relay.port, **tls))
        local.wait_state("b", "connected")
        here, there = client(local, "here"), client(remote, "there")
        there.subscribe("up/#", 2)
        own.write_bytes(authority.client("site7", until=ago()).read_bytes())
        relay.cut()
        here.publish("up/x", b"waits", 2)
        assert_refused(here, local, OWN_EXPIRED)
        own.write_bytes(authority.client("site7").read_bytes())
        assert there.receive().payload == b"waits"
