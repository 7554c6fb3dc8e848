"""How control records hold sessions, and the Wills of those that have ended.

Owns: the values of the tables SESSIONS and WILLS. Never: appends or looks up.
"""

from dataclasses import asdict, fields
from typing import Any, Final

from holdfast.broker.mqtt.session import Session
from holdfast.broker.store.tables import format_value, parse_value
from holdfast.protocols.mqtt.packets import Will

_DEFAULTS: Final = tuple((field.name, field.default) for field in fields(Session))


def format_session(session: Session) -> bytes:
    """The value of a row in SESSIONS; what is as it is by default is left out."""
    # This is done for each CONNECT and each end of a connection, and `asdict` would copy what never
    # changes.
    found = ((name, getattr(session, name), default) for name, default in _DEFAULTS)
    values = {name: value for name, value, default in found if value != default}
    if session.will is not None:
        values["will"] = asdict(session.will)
    return format_value(values)


def parse_session(value: bytes) -> Session:
    """The inverse of `format_session`."""
    fields = parse_value(value)
    will = fields.get("will")
    return Session(**{**fields, "will": None if will is None else _will(will)})


def will_key(client_identifier: str, due_at_us: int) -> bytes:
    """The key of a row in WILLS."""
    return due_at_us.to_bytes(8, "big") + client_identifier.encode()


def format_will(will: Will) -> bytes:
    """The value of a row in WILLS."""
    return format_value(asdict(will))


def parse_will_row(key: bytes, value: bytes) -> tuple[Will, str, int]:
    """The Will of a row in WILLS, whose it is, and when it was due."""
    return _will(parse_value(value)), key[8:].decode(), int.from_bytes(key[:8], "big")


def _will(fields: dict[str, Any]) -> Will:
    properties = dict(fields["properties"])
    if "user_property" in properties:
        # JSON has no pairs.
        properties["user_property"] = [tuple(pair) for pair in properties["user_property"]]
    return Will(**{**fields, "properties": properties})
