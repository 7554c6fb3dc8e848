"""What Pulsar clients may produce and consume, by the names that topics have for MQTT clients, and
how fast they may send.

Owns: the question, and that the kernel holds each client to its rates. Never: decides what is
allowed; access does.
"""

from holdfast.broker.access.access import Access
from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.clients import Client
from holdfast.broker.pulsar.pace import Pace
from holdfast.core.config import Config
from holdfast.protocols.pulsar.topic_names import PUBLIC_DEFAULT, Namespace, parse_namespace

NAMELESS = ""
"""A client of Pulsar has no client identifier: a rule with %c allows it nothing."""


class Rights:
    """Asks access."""

    def __init__(self, ground: Ground, access: Access, pace: Pace) -> None:
        self._access = access
        self._pace = pace
        self._now_us = ground.world.now_us
        self._inbox = ground.kernel.pulsar_inbox
        self.reconfigure(ground.config)

    def reconfigure(self, config: Config) -> None:
        """Other namespaces are there from now on, and other rates of each client hold; that of all
        is one for all protocols."""
        self._messages_per_second = config.client_messages_per_second
        self._bytes_per_second = config.client_bytes_per_second
        found = (parse_namespace(name) for name in config.pulsar_namespaces)
        named = (namespace for namespace in found if namespace is not None)
        self.namespaces: frozenset[Namespace] = frozenset((PUBLIC_DEFAULT, *named))

    def limit(self, client: Client) -> None:
        """The client may send as much in a second as its user, or everybody, from now on."""
        self._pace.go_on(client, self._now_us())
        messages = client.identity.messages_per_second
        size_bytes = client.identity.bytes_per_second
        self._inbox.limit(
            client.handle,
            messages_per_second=self._messages_per_second if messages is None else messages,
            bytes_per_second=self._bytes_per_second if size_bytes is None else size_bytes,
        )

    def may_produce(self, client: Client, topic_name: str) -> bool:
        """True if it may publish to this topic."""
        return self._access.may_publish(client.identity, NAMELESS, topic_name)

    def may_consume(self, client: Client, topic_name: str) -> bool:
        """True if it may receive from this topic."""
        return self._access.may_receive(client.identity, NAMELESS, topic_name)

    def renew(self, client: Client) -> bool:
        """Takes over what has changed about the client's user; false if it would have to log in
        again."""
        identity = self._access.renewed(client.identity, NAMELESS)
        if identity is None:
            return False
        client.identity = identity
        self.limit(client)
        return True
