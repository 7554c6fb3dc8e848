"""Questions about topics: where they are, how many partitions they have, which there are.

Owns: what is asked for in them of the broker. Never: creates a topic.
"""

from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client
from holdfast.broker.pulsar.rights import Rights
from holdfast.broker.pulsar.topics import Topics
from holdfast.broker.sockets.connection import Connection, show_address
from holdfast.core.config import Config
from holdfast.core.limits import LISTED_TOPICS_BYTES_MAXIMUM
from holdfast.protocols.pulsar.fields import (
    Command,
    GetTopicsOfNamespace,
    Lookup,
    PartitionedMetadata,
)
from holdfast.protocols.pulsar.lookup import (
    plan_lookup,
    plan_partitioned_metadata,
    plan_topics_of_namespace,
)
from holdfast.protocols.pulsar.refusals import Refusal


class Lookups:
    """Answers them."""

    def __init__(self, ground: Ground, rights: Rights, topics: Topics, answers: Answers) -> None:
        self._rights = rights
        self._topics = topics
        self._answers = answers
        self.reconfigure(ground.config)

    def reconfigure(self, config: Config) -> None:
        """Tells this from now on."""
        self._advertised = config.pulsar_advertised_address

    def partitions(self, client: Client, command: PartitionedMetadata, now_us: int) -> None:
        """Takes a PARTITIONED_METADATA."""
        answer = plan_partitioned_metadata(command, namespaces=self._rights.namespaces)
        self._answer(client, command, answer, now_us)

    def where(self, client: Client, command: Lookup, now_us: int) -> None:
        """Takes a LOOKUP."""
        address = self._advertised or _reached(client.connection)
        answer = plan_lookup(
            command, service_url=f"pulsar://{address}", namespaces=self._rights.namespaces
        )
        self._answer(client, command, answer, now_us)

    def topics(self, client: Client, command: GetTopicsOfNamespace, now_us: int) -> None:
        """Takes a GET_TOPICS_OF_NAMESPACE."""
        answer = plan_topics_of_namespace(
            command, self._topics.names(), names_bytes_maximum=LISTED_TOPICS_BYTES_MAXIMUM
        )
        self._answer(client, command, answer, now_us)

    def _answer(
        self, client: Client, command: Command, answer: Command | Refusal, now_us: int
    ) -> None:
        if isinstance(answer, Refusal):
            self._answers.refuse(client.connection, command, answer, now_us)
        else:
            self._answers.send(client.handle, answer)


def _reached(connection: Connection) -> str:
    """The address that the client has connected to: it can be reached there again."""
    host, port = connection.transport.get_extra_info("sockname")[:2]
    return show_address(host, port)
