"""Certificates for tests: an authority, servers and clients that it has signed, in files."""

import ssl
from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """Signs certificates and writes them down."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA(organization_name=name)
        self.file = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def server(self, name: str = "server", until: datetime | None = None) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and ::1, and its key."""
        hosts = ("127.0.0.1", "::1", "localhost")
        issued = self._authority.issue_cert(*hosts, common_name=name, not_after=until)
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key

    def client(self, common_name: str, until: datetime | None = None) -> Path:
        """A client's certificate together with its key."""
        issued = self._authority.issue_cert(
            f"{common_name}@example.test", common_name=common_name, not_after=until
        )
        file = self._directory / f"client-{common_name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        return file

    def trusting(self, client: Path | None = None) -> ssl.SSLContext:
        """What a client of a server of this authority uses, with a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client is not None:
            context.load_cert_chain(client)
        return context
