"""A broker with every kind of listener."""

from datetime import datetime
from pathlib import Path

from tests.builders.certificates import Authority
from tests.process import HOST, BrokerProcess


class SecuredBroker(BrokerProcess):
    """Its certificate is signed by an authority, until some time."""

    def __init__(
        self,
        directory: Path,
        authority: Authority,
        until: datetime | None = None,
        **settings: object,
    ) -> None:
        directory.mkdir()
        self.certificate, self.key = authority.server(until=until)
        super().__init__(
            directory,
            mqtt_tls_port=0,
            ws_port=0,
            ws_tls_port=0,
            tls_certificate=self.certificate,
            tls_key=self.key,
            **settings,
        )

    def address(self, scheme: str, host: str = HOST) -> str:
        """Where one of its listeners is."""
        return f"{scheme}://{host}:{self.ports[scheme]}"
