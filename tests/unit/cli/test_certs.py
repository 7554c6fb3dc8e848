"""`holdfast certs dev`: what a server and its clients can use at once, and what stays as it is."""

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast import system
from holdfast.cli import main


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "machine_name", lambda: "Daves-MacBook")
    monkeypatch.chdir(tmp_path)


def shaken(
    server_name: str, client: str | None = None, authority: Path = Path("certs/authority.pem")
) -> ssl.SSLObject:
    """A handshake in memory, from which the server's end is handed back; both ends verify."""
    at_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile="certs/authority.pem")
    at_server.load_cert_chain("certs/server.pem", "certs/server.key")
    at_server.verify_mode = ssl.CERT_REQUIRED if client else ssl.CERT_NONE
    at_client = ssl.create_default_context(cafile=str(authority))
    at_client.verify_flags |= ssl.VERIFY_X509_STRICT
    if client:
        at_client.load_cert_chain(f"certs/{client}.pem", f"certs/{client}.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = at_server.wrap_bio(there, back, server_side=True)
    ends = [at_client.wrap_bio(back, there, server_hostname=server_name), server]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "::1", "daves-macbook", "broker.example", "192.0.2.7"]
)
def test_the_server_is_trusted_by_its_names(name: str) -> None:
    assert main(["certs", "dev", "--host", "broker.example", "--host", "192.0.2.7"]) == 0
    assert shaken(name).version() == "TLSv1.3"


def test_the_server_is_not_trusted_by_other_names() -> None:
    assert main(["certs", "dev"]) == 0
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken("broker.example")


def test_another_authority_is_not_trusted() -> None:
    assert main(["certs", "dev"]) == 0
    assert main(["certs", "dev", "others"]) == 0
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken("localhost", authority=Path("others/authority.pem"))


@pytest.mark.parametrize("client", ["reader-7", "client"])
def test_a_client_is_known_by_its_name(client: str) -> None:
    assert main(["certs", "dev", "--client", client, "--client", "other"]) == 0
    certificate = shaken("localhost", client).getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", client),),)


def test_a_client_is_no_server_and_signs_nothing() -> None:
    assert main(["certs", "dev"]) == 0
    client = x509.load_pem_x509_certificate(Path("certs/client.pem").read_bytes())
    uses = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    for name in ("client", "server"):
        found = x509.load_pem_x509_certificate(Path(f"certs/{name}.pem").read_bytes())
        assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_are_their_owners_alone() -> None:
    assert main(["certs", "dev"]) == 0
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in Path("certs").iterdir()}
    assert {modes.pop(f"{name}.key") for name in ("authority", "server", "client")} == {0o600}
    assert set(modes) == {"authority.pem", "server.pem", "client.pem"}


@pytest.mark.parametrize("there", ["authority.pem", "server.key", "client.pem"])
def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str], there: str) -> None:
    Path("certs").mkdir()
    Path("certs", there).write_text("mine")
    assert main(["certs", "dev"]) == 2
    said = capsys.readouterr().err
    assert said == f"holdfast: certs/{there} is there already; nothing was written\n"
    assert [file.name for file in Path("certs").iterdir()] == [there]
    assert Path("certs", there).read_text() == "mine"


@pytest.mark.parametrize("name", ["a/b", "server", "authority", "..", "", "x" * 65, "a\n"])
def test_a_client_whose_name_is_no_file_is_refused(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["certs", "dev", "--client", name]) == 2
    assert "cannot be the name of a client's files" in capsys.readouterr().err


def test_a_host_that_no_certificate_can_name_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["certs", "dev", "--host", "bröker"]) == 2
    assert "no certificate can have this name" in capsys.readouterr().err
    assert not Path("certs").exists()
