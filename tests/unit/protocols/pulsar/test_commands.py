"""Commands as bytes, beside bytes that were written by hand."""

import pytest

from holdfast.protocols.pulsar.commands import (
    MalformedCommandError,
    command_name,
    read_answer,
    read_request,
    write_command,
)
from holdfast.protocols.pulsar.fields import (
    NO_REQUEST,
    CloseProducer,
    Connect,
    Connected,
    Error,
    FeatureFlags,
    GetTopicsOfNamespaceResponse,
    InitialPosition,
    LookupResponse,
    LookupType,
    PartitionedMetadataResponse,
    PartitionedMetadataType,
    Ping,
    Producer,
    ProducerSuccess,
    Schema,
    Subscribe,
    SubType,
    Unsubscribe,
)
from holdfast.protocols.pulsar.server_error import ServerError


def base(number: int, body: bytes) -> bytes:
    """A BaseCommand below 128 bytes; the field's key has one byte or two."""
    key = number << 3 | 2
    keys = bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])
    return bytes([0x08, number]) + keys + bytes([len(body)]) + body


def test_connect():
    body = b"\x0a\x011" + b"\x1a\x03u:p" + b"\x20\x14" + b"\x2a\x05basic"
    assert read_request(base(2, body)) == Connect(
        client_version="1", auth_data=b"u:p", protocol_version=20, auth_method_name="basic"
    )


def test_what_is_absent_has_its_default():
    body = b"\x0a\x01t\x12\x01s\x18\x01\x20\x07\x28\xac\x02"
    assert read_request(base(4, body)) == Subscribe(
        topic="t",
        subscription="s",
        sub_type=SubType.SHARED,
        consumer_id=7,
        request_id=300,
        durable=True,
        force_topic_creation=True,
        initial_position=InitialPosition.LATEST,
    )


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (
            Connected(
                server_version="1",
                protocol_version=20,
                max_message_size=300,
                feature_flags=FeatureFlags(),
            ),
            "0000001a 00000016 0803 1a12 0a0131 1014 18ac02 2208 0800 1000 1800 2000",
        ),
        (
            Error(request_id=NO_REQUEST, error=ServerError.NOT_ALLOWED_ERROR, message="no"),
            "00000019 00000015 080e 7211 08ffffffffffffffffff01 1016 1a026e6f",
        ),
        (
            ProducerSuccess(request_id=1, producer_name="p"),
            "0000001b 00000017 0811 8a0112 0801 120170 18ffffffffffffffffff01 3001",
        ),
        (Ping(), "00000009 00000005 0812 920100"),
        (
            PartitionedMetadataResponse(
                request_id=2, partitions=0, response=PartitionedMetadataType.SUCCESS
            ),
            "0000000f 0000000b 0816 b20106 0800 1002 1800",
        ),
        (
            LookupResponse(request_id=2, response=LookupType.CONNECT, authoritative=True),
            "0000000f 0000000b 0818 c20106 1801 2002 2801",
        ),
        (
            GetTopicsOfNamespaceResponse(request_id=3, topics=("a", "b")),
            "00000015 00000011 0821 8a020c 0803 120161 120162 1800 2801",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_commands_of_a_broker_as_bytes(command, data):
    assert write_command(command).hex() == data.replace(" ", "")
    assert read_answer(write_command(command)[8:]) == command


def test_unknown_fields_are_skipped():
    body = b"\x08\x01\x10\x02\xf8\x07\x05\xfd\x07abcd\xf9\x07abcdefgh\xfa\x07\x02xy"
    assert read_request(base(12, body)) == Unsubscribe(consumer_id=1, request_id=2)


def test_the_last_of_a_field_counts():
    assert read_request(base(12, b"\x08\x01\x10\x02\x08\x09")) == Unsubscribe(
        consumer_id=9, request_id=2
    )


def test_a_negative_number_may_have_32_bits():
    for minus_one in (b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"):
        connect = read_request(base(2, b"\x0a\x011\x20" + minus_one))
        assert isinstance(connect, Connect)
        assert connect.protocol_version == -1


def test_a_message_within_a_command():
    body = b"\x0a\x01t\x10\x01\x18\x02\x3a\x08\x0a\x01n\x1a\x01{\x20\x02"
    producer = read_request(base(5, body))
    assert isinstance(producer, Producer)
    assert producer.schema == Schema(name="n", schema_data=b"{", schema_type=2)


@pytest.mark.parametrize(
    ("data", "command", "field", "reason"),
    [
        (b"", "BaseCommand", "type", "is missing"),
        (base(12, b"\x08\x01")[2:], "BaseCommand", "type", "is missing"),
        (base(3, b""), "BaseCommand", "type", "is 3"),
        (base(99, b""), "BaseCommand", "type", "is 99"),
        (b"\x08\x0c", "Unsubscribe", None, "its fields are missing"),
        (b"\x08", "BaseCommand", None, "does not end"),
        (base(12, b"\x08\x01"), "Unsubscribe", "request_id", "is missing"),
        (base(12, b"\x08\x01\x12\x01x"), "Unsubscribe", "request_id", "wire type"),
        (base(12, b"\x08\x01\x10"), "Unsubscribe", None, "does not end"),
        (base(12, b"\x08" + b"\xff" * 10), "Unsubscribe", None, "does not end"),
        (base(12, b"\x08" + b"\xff" * 9 + b"\x02"), "Unsubscribe", None, "does not end"),
        (base(12, b"\x00\x01"), "Unsubscribe", None, "field number"),
        (base(12, b"\x0b\x0c"), "Unsubscribe", None, "not used"),
        (base(12, b"\x1a\x05x"), "Unsubscribe", None, "ends early"),
        (base(12, b"\x1d\x05x"), "Unsubscribe", None, "ends early"),
        (base(2, b"\x0a\x01\xff"), "Connect", "client_version", "is not UTF-8"),
        (base(2, b"\x0a\x011\x20\x80\x80\x80\x80\x10"), "Connect", "protocol_version", "hold"),
        (
            base(4, b"\x0a\x01t\x12\x01s\x18\x09\x20\x07\x28\x01"),
            "Subscribe",
            "sub_type",
            "is 9",
        ),
        (
            base(5, b"\x0a\x01t\x10\x01\x18\x02\x3a\x03\x0a\x01n"),
            "Producer",
            "schema.schema_data",
            "is missing",
        ),
        (
            base(5, b"\x0a\x01t\x10\x01\x18\x02\x3a\x02\x0a\x09"),
            "Producer",
            None,
            "ends early",
        ),
    ],
)
def test_malformed_commands_are_refused(data, command, field, reason):
    with pytest.raises(MalformedCommandError, match=reason) as raised:
        read_request(data)
    assert (raised.value.command, raised.value.field) == (command, field)


def test_a_command_has_a_name():
    assert command_name(15) == CloseProducer.__name__
    assert command_name(77) == "command 77"


def test_a_password_is_not_shown():
    shown = repr(Connect(client_version="1", auth_data=b"u:secret", auth_method_name="basic"))
    assert "secret" not in shown
