"""What is doubtful in a processor's settings: it can be carried out, and is seldom what is meant.

Owns: these sentences. Never: refuses anything; `configuration` and the command line do that.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.processors.settings import ProcessorSettings

PLAIN_PORT: Final = 1883


def doubts(settings: ProcessorSettings) -> Iterator[str]:
    """One sentence for each doubt."""
    if not settings.topics:
        yield "SubscribeTopics is empty: it would get no message"
    if settings.clean_start:
        yield "CleanSession is true: what was queued while it was away is lost at its next start"
    elif not settings.session_expiry_interval_s:
        yield (
            "SessionExpiryIntervalSeconds is 0: nothing is queued while it is away, although"
            " CleanSession is false"
        )
    if settings.tls and settings.broker_port == PLAIN_PORT:
        yield f"BrokerPort {PLAIN_PORT} is usually not encrypted, but UseTls is true"
    if not settings.tls and settings.password is not None and not _is_here(settings.broker_host):
        yield "UseTls is false: the password goes over the network in the clear"
    if settings.tls_key is not None and settings.tls_certificate is None:
        yield "TlsKey is the key of no certificate: TlsCertificate is not set"
    if settings.batch_messages > settings.receive_maximum:
        yield (
            f"BatchMessages {settings.batch_messages} is more than ReceiveMaximum"
            f" {settings.receive_maximum}: each batch waits until it is old enough"
        )


def shared_sessions(
    settings: ProcessorSettings, among: Sequence[ProcessorSettings]
) -> Iterator[str]:
    """One sentence for each of the others that would take over its session."""
    for other in among:
        if other.name != settings.name and _session(other) == _session(settings):
            yield (
                f"its client identifier {settings.client_identifier} is that of {other.name} too,"
                " so each would end the other: it needs a ClientId of its own"
            )


def _session(settings: ProcessorSettings) -> tuple[str, int, str]:
    return settings.broker_host, settings.broker_port, settings.client_identifier


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")
