"""APPLICATION clients: who they are, their queues, packs and how they are written to."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.settings import boolean, choice, duration, integer, setting, texts
from holdfast.core.topic_properties import TopicProperties, topic_properties


def _is_pattern(item: str) -> bool:
    return item != "" and item.isprintable()


@dataclass(frozen=True, kw_only=True)
class ApplicationsSection:
    """The table `application`."""

    application_client_identifiers: tuple[str, ...] = setting(
        "application.client_identifiers",
        texts(_is_pattern, "a client identifier, in which * stands for anything"),
        (),
        """Clients without a credential that are APPLICATION clients by their client identifier: *
        stands for anything. A client with a credential has the type that its credential names.""",
        reloadable=True,
    )
    application_user_names: tuple[str, ...] = setting(
        "application.user_names",
        texts(_is_pattern, "a user name, in which * stands for anything"),
        (),
        """The same by the user name that they give, which nothing proves.""",
        reloadable=True,
    )
    application_client_id_validation: bool = setting(
        "application.client_id_validation",
        boolean(),
        True,
        """True: the queue of a client whose identifier has other characters than letters and
        digits is named by a hash of it. False: such a client has no queue of its own, and is told
        so when it connects.""",
        aliases=("TB_APP_PERSISTED_MSG_CLIENT_ID_VALIDATION",),
        reloadable=True,
    )
    application_shared_topic_validation: bool = setting(
        "application.shared_topic_validation",
        boolean(),
        True,
        """The same for the queue of a shared subscription whose topic filter has other characters
        than letters, digits, /, + and #.""",
        aliases=("TB_APP_PERSISTED_MSG_SHARED_TOPIC_VALIDATION",),
        reloadable=True,
    )
    application_queue_properties: TopicProperties = setting(
        "application.queue_properties",
        topic_properties(),
        "retention.ms:604800000;segment.bytes:26214400;retention.bytes:1048576000;"
        "replication.factor:1",
        """How much a queue with a name keeps, read or not: nothing older than retention.ms, and
        about retention.bytes; it loses segment.bytes at a time, and an absent client what was
        waiting in them, which the loss ledger then has. queue.messages_maximum is for DEVICE
        clients. -1: no limit but the log's.""",
        aliases=("TB_KAFKA_APP_PERSISTED_MSG_TOPIC_PROPERTIES",),
        reloadable=True,
    )
    application_pack_messages_maximum: int = setting(
        "application.pack_messages_maximum",
        integer(1, 65_535),
        200,
        """Messages of one pack: what is given to an APPLICATION client before it has acknowledged
        all of that.""",
        aliases=("max.poll.records",),
        reloadable=True,
    )
    application_pack_timeout_s: int = setting(
        "application.pack_timeout_s",
        duration(1, 3_600),
        "20s",
        """How long a pack that has been sent waits to be acknowledged before application.strategy
        decides.""",
        aliases=("TB_APP_PERSISTED_MSG_PACK_PROCESSING_TIMEOUT",),
        reloadable=True,
    )
    application_strategy: Literal["RETRY_ALL", "SKIP_ALL"] = setting(
        "application.strategy",
        choice("RETRY_ALL", "SKIP_ALL"),
        "RETRY_ALL",
        """What becomes of messages of a pack that are not acknowledged in time: they are sent
        again, or given up. What is given up is in the loss ledger.""",
        aliases=("TB_APP_PERSISTED_MSG_ACK_STRATEGY_TYPE",),
        reloadable=True,
    )
    application_retries: int = setting(
        "application.retries",
        integer(0, 1_000_000),
        3,
        """How often RETRY_ALL sends again before it gives up, so that one message does not hold up
        a client for ever. 0: without end.""",
        aliases=("TB_APP_PERSISTED_MSG_ACK_STRATEGY_RETRIES",),
        reloadable=True,
    )
    resend_on_live_connection: bool = setting(
        "application.resend_on_live_connection",
        boolean(),
        False,
        """Whether RETRY_ALL sends again to MQTT 5 clients while they stay connected, which the
        standard forbids and strict clients answer by leaving. False: the rounds are counted, and
        messages are sent again when the client has come back.""",
        aliases=("mqtt5.resend_on_live_connection",),
        reloadable=True,
    )
    application_write_and_flush: bool = setting(
        "application.write_and_flush",
        boolean(),
        False,
        """True: each message to an APPLICATION client is a write of its own. False: up to
        application.flush_messages make one.""",
        aliases=("MQTT_APP_MSG_WRITE_AND_FLUSH",),
        reloadable=True,
    )
    application_flush_messages: int = setting(
        "application.flush_messages",
        integer(1, 65_535),
        10,
        "Messages to an APPLICATION client in one write; fewer where a pack ends.",
        aliases=("MQTT_APP_BUFFERED_MSG_COUNT",),
        reloadable=True,
    )
