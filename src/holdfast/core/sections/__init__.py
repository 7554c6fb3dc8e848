"""The settings, each a part of `core.config.Config`, and the tables that they are written in."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "data": "Where the data lie.",
        "listen": "Where the broker listens, and behind which proxies.",
        "mqtt": "MQTT over TCP, TLS and Unix sockets, and what one connection is granted.",
        "ws": "MQTT over WebSocket.",
        "pulsar": "Pulsar's binary protocol, and what one of its connections is granted.",
        "http": "Health, metrics, administration and the read interface.",
        "tls": "Certificates of the listeners with TLS, and of their clients.",
        "access": "Who is let in.",
        "limits": "What keeps one client from being a burden to the others.",
        "session": "How long sessions are kept.",
        "queue": "What is kept for an absent session of a DEVICE client.",
        "device": "How DEVICE clients are written to.",
        "application": "APPLICATION clients, their queues and packs, and how they are written to.",
        "shared": "Shared subscriptions: how the members of a group share its messages.",
        "environments": "Environments that share the broker, and what is held against mixing them.",
        "cursor": "Cursors: what is kept for readers that have their place here.",
        "bridges": "Bridges to other brokers: what all of them have in common.",
        "log": "The log: how durable, how large, for how long.",
        "logging": "Lines about what happens, on standard error.",
        "stop": "How the broker stops.",
    }
)
"""Each table and what it is about, in the order in which they are shown."""
