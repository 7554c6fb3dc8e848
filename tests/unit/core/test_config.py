"""Settings: sources and their order, what is refused and in which words."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.core import config
from holdfast.core.errors import ConfigurationError
from holdfast.core.sections import TABLES

TERABYTE = 10**12


def load(
    toml: str | None = None,
    environment: Mapping[str, str] | None = None,
    disk_bytes: int = TERABYTE,
    **options: object,
) -> config.Effective:
    return config.load(
        file=None if toml is None else ("holdfast.toml", toml),
        environment=environment,
        options={config.BY_ATTRIBUTE[name].name: value for name, value in options.items()},
        disk_bytes=lambda directory: disk_bytes,
    )


def refusal(
    toml: str | None = None, environment: Mapping[str, str] | None = None, **options: object
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(toml, environment, **options)
    return str(caught.value)


def test_a_start_without_any_setting_is_reachable_from_this_machine_only() -> None:
    settings = load().config
    assert config.is_loopback(settings.host)
    assert (settings.mqtt_port, settings.pulsar_port, settings.http_port) == (1883, 6650, 8080)
    assert settings.durability == "fsync"


@pytest.mark.accepts("S2.39", "S2.40", "S2.41", "S2.43", "S2.47", "S2.48")
def test_the_defaults_of_sessions() -> None:
    settings = load().config
    assert settings.session_expiry_cron == "0 0 * ? * *"
    assert settings.session_expiry_zone == "UTC"
    assert settings.queue_ttl_s == 604_800
    assert settings.session_expiry_maximum_s == 604_800
    assert settings.session_ttl_s == 604_800
    assert settings.queue_messages_maximum == 10_000


@pytest.mark.parametrize("messages", [0, 65_536, 2**63 - 1])
def test_a_session_may_keep_any_number_of_messages(messages: int) -> None:
    assert load(queue_messages_maximum=str(messages)).config.queue_messages_maximum == messages
    assert "below the minimum of 0" in refusal(queue_messages_maximum="-1")


def test_later_sources_win_and_each_value_knows_its_own() -> None:
    environment = {"HOLDFAST_HTTP_PORT": "9001", "HOLDFAST_MQTT_PORT": "9002", "PATH": "/bin"}
    effective = load(
        "http.port = 1\nmqtt.port = 2\nlisten.host = '::1'\n", environment, mqtt_port="off"
    )
    assert effective.config.host == "::1"
    assert effective.config.http_port == 9001
    assert effective.config.mqtt_port is None
    assert effective.origins["listen.host"] == "holdfast.toml"
    assert effective.origins["http.port"] == "HOLDFAST_HTTP_PORT"
    assert effective.origins["mqtt.port"] == "--mqtt-port"
    assert effective.origins["log.cache_bytes"] == "default"


@pytest.mark.accepts("S2.55")
@pytest.mark.parametrize(
    ("alias", "name", "written", "value"),
    [
        ("MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL", "session.expiry_maximum_s", "60", 60),
        ("MQTT_CLIENT_SESSION_EXPIRY_TTL", "session.ttl_s", "0", 0),
        (
            "MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT",
            "queue.messages_maximum",
            "7",
            7,
        ),
        ("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_TTL", "queue.ttl_s", "60", 60),
        ("MQTT_CLIENT_SESSION_EXPIRY_CRON", "session.expiry_cron", '"5 4 * * 7"', "5 4 * * 7"),
        ("MQTT_CLIENT_SESSION_EXPIRY_ZONE", "session.expiry_zone", '"Asia/Tokyo"', "Asia/Tokyo"),
        ("MQTT_PERSISTENT_MSG_WRITE_AND_FLUSH", "device.write_and_flush", "false", False),
        ("MQTT_PERSISTENT_BUFFERED_MSG_COUNT", "device.flush_messages", "9", 9),
        ("MQTT_APP_MSG_WRITE_AND_FLUSH", "application.write_and_flush", "true", True),
        ("MQTT_APP_BUFFERED_MSG_COUNT", "application.flush_messages", "9", 9),
    ],
)
def test_names_of_the_acceptance_list_are_taken(
    alias: str, name: str, written: str, value: int | str
) -> None:
    from_environment = load(environment={alias: written.strip('"')})
    from_file = load(f"{alias} = {written}")
    row = config.SETTINGS[name]
    assert row.value_in(from_environment.config) == row.value_in(from_file.config) == value
    assert from_environment.origins[name] == alias
    assert from_file.origins[name] == f"holdfast.toml ({alias})"


ALIASES = sorted(alias for row in config.SETTINGS.values() for alias in row.aliases)


@pytest.mark.accepts("S2.55")
@pytest.mark.parametrize("alias", ALIASES)
def test_a_wrong_value_is_refused_with_the_name_it_was_given_by(alias: str) -> None:
    (name,) = [name for name, row in config.SETTINGS.items() if alias in row.aliases]
    words = refusal(environment={alias: "wrong!"})
    assert words.startswith(f"{alias}: {name}: expected ")


@pytest.mark.accepts("S2.39", "S2.40")
def test_a_wrong_schedule_is_refused_with_its_name() -> None:
    in_environment = {"MQTT_CLIENT_SESSION_EXPIRY_CRON": "0 0 25 ? * *"}
    assert refusal(environment=in_environment).startswith(
        "MQTT_CLIENT_SESSION_EXPIRY_CRON: session.expiry_cron: expected a cron expression"
    )
    assert refusal("session.expiry_zone = 'Europe/Atlantis'").startswith(
        "holdfast.toml, line 1: session.expiry_zone: expected a time zone such as"
    )
    assert '"../etc/passwd" is not known' in refusal("session.expiry_zone = '../etc/passwd'")


def test_our_own_name_wins_over_the_other_one() -> None:
    environment = {"MQTT_CLIENT_SESSION_EXPIRY_TTL": "1", "HOLDFAST_SESSION_TTL_S": "2"}
    assert load(environment=environment).config.session_ttl_s == 2


def test_a_dotted_key_may_be_a_table() -> None:
    assert load("[mqtt5]\nstrict_session_expiry = true").config.session_strict_expiry


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("listen.hots = '::1'", 'unknown name "listen.hots" (did you mean "listen.host"?)'),
        ("host = '::1'", 'line 1: unknown name "host" (did you mean "listen.host"?)'),
        ("port = 1", 'unknown name "port" (did you mean "mqtt.port"?)'),
        ("retention_byte = 1", 'name "retention_byte" (did you mean "log.retention_bytes"?)'),
        ("[lgo]\nx = 1", 'line 1: unknown table "lgo" (did you mean "log"?)'),
        ("[mqtt]\n\n[store]", 'holdfast.toml, line 3: unknown table "store"'),
        ("[[log]]\nx = 1", "line 1: log is a table: write [log]"),
        ("log = 1", "holdfast.toml, line 1: log is a table: write [log]"),
        ("log = 'x'", "holdfast.toml, line 1: log is a table: write [log]"),
        ("[access]\nanonymous = 1", "line 2: access.anonymous: expected true or false, but 1 is"),
        ("mqtt.port = true", "mqtt.port: expected a port from 0 to 65535, or off, but True is not"),
        ("mqtt.port = 65536", "65536 is above the maximum of 65535"),
        (
            "log.durability = 'none'",
            'expected one of fsync, os, memory, but "none" is not one of them',
        ),
        ("log.cache_bytes = '64 miles'", '"64 miles" is not a number with one of the units'),
        ("log.cache_bytes = 1", "1 is below the minimum of 1MiB"),
        ("log.retention_age_s = '1y'", '"1y" is not a number with one of the units s, m, h, d, w'),
        ("log.store_all = [1]", "1 is not a topic filter"),
        ("data.dir = ''", '"" is not a path'),
        ('data.dir = "a\\u0000b"', "is not a path"),
        ("listen.host =", "holdfast.toml is not valid TOML"),
        (f"mqtt.port = {'9' * 5_000}", "holdfast.toml is not valid TOML: Exceeds the limit"),
        (f"mqtt.port = {'[' * 5_000}", "holdfast.toml is not valid TOML: "),
        ("session.ttl_s = 1\nMQTT_CLIENT_SESSION_EXPIRY_TTL = 2", "is a second value of"),
        ("mqtt.port = 1\nhttp.port = 1", "mqtt.port and http.port are both 1"),
        ("mqtt.port = 'off'\npulsar.port = 'off'\nhttp.port = 'off'", "nothing would listen"),
        ("pulsar.namespaces = ['public']", '"public" is not a tenant, a slash and a namespace'),
        (
            "mqtt.tls_port = 8883",
            "holdfast.toml: mqtt.tls_port: it needs tls.certificate, which is",
        ),
        ("ws.tls_port = 8084", "holdfast.toml: ws.tls_port: it needs tls.certificate, which is"),
        ("ws.port = 1883", "mqtt.port and ws.port are both 1883"),
        ("tls.client_certificates = 'required'", "there is no tls.client_ca"),
        ("listen.host = []", "listen.host: expected an address or a list of them, but it is empty"),
        ("listen.host = '127.0.0.1, [::1]'", '"[::1]" is not a host'),
        (
            f"mqtt.unix_socket = '/{'x' * 105}ä'",
            "xä has 108 bytes, and the address of a socket has room for 107",
        ),
        ("mqtt.unix_socket_mode = 660", "permissions of a file in quotes such as 0660, but 660"),
        ("ws.origins = ['example.com']", '"example.com" is not an origin such as'),
        ("listen.proxy_protocol = ['http']", '"http" is not one of mqtt, mqtts, ws, wss'),
        (
            "listen.proxy_protocol_from = ['10.0.0.1/8']",
            '"10.0.0.1/8" is not an address or a network',
        ),
        ("log.segment_bytes = '1MiB'", "cannot hold one record of mqtt.maximum_packet_size_bytes"),
    ],
)
def test_what_cannot_be_right_is_refused_with_name_and_place(toml: str, sentence: str) -> None:
    assert sentence in refusal(toml)


def test_an_unknown_variable_of_ours_is_refused_and_others_are_left_alone() -> None:
    assert refusal(environment={"HOLDFAST_LISTEN_HOTS": "::1"}).endswith(
        'unknown variable "HOLDFAST_LISTEN_HOTS" (did you mean "HOLDFAST_LISTEN_HOST"?)'
    )
    assert 'unknown variable "HOLDFAST_HOST"' in refusal(environment={"HOLDFAST_HOST": "::1"})
    assert load(environment={"HOTS": "::1"}).origins["listen.host"] == "default"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.test"])
def test_a_wider_address_is_told_from_loopback(host: str) -> None:
    assert not config.is_loopback(host)
    assert config.is_loopback("127.0.0.1")
    assert config.is_loopback("::1")


def test_a_rate_of_bytes_that_no_packet_fits_into_is_refused() -> None:
    assert "less than one packet" in refusal(client_bytes_per_second="1KiB")
    assert load(client_bytes_per_second="1MiB").config.client_bytes_per_second == 2**20


def test_several_addresses_may_be_listened_on() -> None:
    for toml in ("listen.host = ['127.0.0.1', '::1']", "listen.host = '127.0.0.1, ::1'"):
        assert load(toml).config.hosts == ("127.0.0.1", "::1")


def test_ports_that_the_system_chooses_do_not_collide() -> None:
    ports = load("mqtt.port = 0\nhttp.port = 0\nws.port = 0").config.ports
    assert ports == {"mqtt": 0, "ws": 0, "pulsar": 6650, "http": 0}


def test_pulsar_clients_are_told_of_no_message_that_would_not_pass() -> None:
    assert load().config.pulsar_message_bytes == 5 * 2**20
    assert load(segment_bytes="2MiB").config.pulsar_message_bytes == 2 * 2**20 - 2**17
    assert load(client_bytes_per_second="1MiB").config.pulsar_message_bytes == 2**20 - 2**17


@pytest.mark.parametrize(
    ("disk_bytes", "kept"),
    [
        (TERABYTE, 10 * 10**9),
        (50 * 10**9, 5 * 10**9),
        (25_276_502_010, 2_527_000_000),
        (1, 2**20),
    ],
)
def test_retention_is_the_smaller_of_10_gb_and_a_tenth_of_the_disk(
    disk_bytes: int, kept: int
) -> None:
    effective = load(disk_bytes=disk_bytes)
    assert effective.config.retention_bytes == kept
    assert effective.origins["log.retention_bytes"] == "default (auto)"
    assert load(disk_bytes=disk_bytes, retention_bytes="3GB").config.retention_bytes == 3 * 10**9


def test_the_directory_asked_about_is_the_one_in_force() -> None:
    asked: list[Path] = []
    config.load(
        environment={"HOLDFAST_DATA_DIR": "elsewhere"},
        disk_bytes=lambda directory: asked.append(directory) or TERABYTE,  # type: ignore[func-returns-value]
    )
    assert asked == [Path("elsewhere")]


def test_each_setting_gives_its_reason_in_sentences() -> None:
    assert not [
        name for name, row in config.SETTINGS.items() if not re.fullmatch(r"[A-Z].+\.", row.reason)
    ]


def test_every_setting_is_in_a_table_and_all_names_follow_from_its_full_name() -> None:
    for name, row in config.SETTINGS.items():
        table, _, own = name.partition(".")
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
        assert table in TABLES
        assert row.attribute in (own, f"{table}_{own}")
        assert row.environment_variable == f"HOLDFAST_{table}_{own}".upper()
        assert row.option == f"--{table}-{own}".replace("_", "-")
    for names in ("environment_variable", "option", "attribute"):
        assert len({getattr(row, names) for row in config.SETTINGS.values()}) == len(
            config.SETTINGS
        )
    assert [*dict.fromkeys(row.table for row in config.SETTINGS.values())] == [*TABLES]
    # A table [[bridge]] is a thing, not a setting.
    settings = {field.name for field in fields(config.Config)} - {"bridge_tables"}
    assert set(config.BY_ATTRIBUTE) == settings


def test_a_table_is_written_as_one_or_with_dots_and_may_be_empty() -> None:
    for toml in ("[log]\ncache_bytes = '2MiB'\n[mqtt]\n", "log.cache_bytes = '2MiB'"):
        assert load(toml).config.cache_bytes == 2**21


LONG = """\
# queue.ttl_s is said below, and ttl_s of another table before it
[session]
ttl_s = 5
[log]
store_all = [
    "ttl_s", # a list goes on
    "b",
]
[queue]

ttl_s = %s
"""


@pytest.mark.parametrize(("written", "line"), [("'soon'", 11), ("[\n]", 11)])
def test_a_wrong_value_is_refused_with_the_line_on_which_it_begins(written: str, line: int) -> None:
    words = refusal(LONG % written)
    assert words.startswith(f"holdfast.toml, line {line}: queue.ttl_s: expected a duration")
    wrong_list = LONG.replace('"b"', "7") % "1"
    assert refusal(wrong_list).startswith("holdfast.toml, line 5: log.store_all: expected")


def test_what_processors_are_told_is_no_setting_of_a_broker() -> None:
    environment = {"HOLDFAST_BUILD": "development", "HOLDFAST_DEPLOYMENT": "Production"}
    assert load(environment=environment) == load()
