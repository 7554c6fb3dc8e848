"""Settings: sources and their order, what is refused and in which words."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.core import config
from holdfast.core.errors import ConfigurationError

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
        options=options,
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
    assert (settings.mqtt_port, settings.http_port) == (1883, 8080)
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


@pytest.mark.accepts("S2.35")
def test_no_setting_lets_a_session_keep_more_than_65535_messages() -> None:
    assert load(queue_messages_maximum="65535").config.queue_messages_maximum == 65_535
    assert "above the maximum of 65535" in refusal(queue_messages_maximum="65536")


def test_later_sources_win_and_each_value_knows_its_own() -> None:
    environment = {"HOLDFAST_HTTP_PORT": "9001", "HOLDFAST_MQTT_PORT": "9002", "PATH": "/bin"}
    effective = load("http_port = 1\nmqtt_port = 2\nhost = '::1'\n", environment, mqtt_port="off")
    assert effective.config.host == "::1"
    assert effective.config.http_port == 9001
    assert effective.config.mqtt_port is None
    assert effective.origins["host"] == "holdfast.toml"
    assert effective.origins["http_port"] == "HOLDFAST_HTTP_PORT"
    assert effective.origins["mqtt_port"] == "--mqtt-port"
    assert effective.origins["cache_bytes"] == "default"


@pytest.mark.accepts("S2.55")
@pytest.mark.parametrize(
    ("name", "key", "written", "value"),
    [
        ("MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL", "session_expiry_maximum_s", "60", 60),
        ("MQTT_CLIENT_SESSION_EXPIRY_TTL", "session_ttl_s", "0", 0),
        (
            "MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT",
            "queue_messages_maximum",
            "7",
            7,
        ),
        ("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_TTL", "queue_ttl_s", "60", 60),
        ("MQTT_CLIENT_SESSION_EXPIRY_CRON", "session_expiry_cron", '"5 4 * * 7"', "5 4 * * 7"),
        ("MQTT_CLIENT_SESSION_EXPIRY_ZONE", "session_expiry_zone", '"Asia/Tokyo"', "Asia/Tokyo"),
        ("MQTT_PERSISTENT_MSG_WRITE_AND_FLUSH", "device_write_and_flush", "false", False),
        ("MQTT_PERSISTENT_BUFFERED_MSG_COUNT", "device_flush_messages", "9", 9),
        ("MQTT_APP_MSG_WRITE_AND_FLUSH", "application_write_and_flush", "true", True),
        ("MQTT_APP_BUFFERED_MSG_COUNT", "application_flush_messages", "9", 9),
    ],
)
def test_names_of_the_acceptance_list_are_taken(
    name: str, key: str, written: str, value: int | str
) -> None:
    from_environment = load(environment={name: written.strip('"')})
    from_file = load(f"{name} = {written}")
    assert getattr(from_environment.config, key) == getattr(from_file.config, key) == value
    assert from_environment.origins[key] == name
    assert from_file.origins[key] == f"holdfast.toml ({name})"


ALIASES = sorted(alias for row in config.SETTINGS.values() for alias in row.aliases)


@pytest.mark.accepts("S2.55")
@pytest.mark.parametrize("alias", ALIASES)
def test_a_wrong_value_is_refused_with_the_name_it_was_given_by(alias: str) -> None:
    (key,) = [key for key, row in config.SETTINGS.items() if alias in row.aliases]
    words = refusal(environment={alias: "wrong!"})
    assert words.startswith(f"{alias}: {key}: expected ")


@pytest.mark.accepts("S2.39", "S2.40")
def test_a_wrong_schedule_is_refused_with_the_name_of_its_key() -> None:
    in_environment = {"MQTT_CLIENT_SESSION_EXPIRY_CRON": "0 0 25 ? * *"}
    assert refusal(environment=in_environment).startswith(
        "MQTT_CLIENT_SESSION_EXPIRY_CRON: session_expiry_cron: expected a cron expression"
    )
    assert refusal("session_expiry_zone = 'Europe/Atlantis'").startswith(
        "holdfast.toml: session_expiry_zone: expected a time zone such as"
    )
    assert '"../etc/passwd" is not known' in refusal("session_expiry_zone = '../etc/passwd'")


def test_our_own_name_wins_over_the_other_one() -> None:
    environment = {"MQTT_CLIENT_SESSION_EXPIRY_TTL": "1", "HOLDFAST_SESSION_TTL_S": "2"}
    assert load(environment=environment).config.session_ttl_s == 2


def test_a_dotted_key_may_be_a_table() -> None:
    assert load("[mqtt5]\nstrict_session_expiry = true").config.strict_session_expiry


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("hots = '::1'", 'holdfast.toml: unknown key "hots" (did you mean "host"?)'),
        ("[store]\nx = 1", 'holdfast.toml: unknown key "store.x"'),
        ("anonymous = 1", "holdfast.toml: anonymous: expected true or false, but 1 is neither"),
        ("mqtt_port = true", "mqtt_port: expected a port from 0 to 65535, or off, but True is not"),
        ("mqtt_port = 65536", "65536 is above the maximum of 65535"),
        ("durability = 'none'", 'expected one of fsync, os, memory, but "none" is not one of them'),
        ("cache_bytes = '64 miles'", '"64 miles" is not a number with one of the units'),
        ("cache_bytes = 1", "1 is below the minimum of 1MiB"),
        ("retention_age_s = '1y'", '"1y" is not a number with one of the units s, m, h, d, w'),
        ("store_all = [1]", "1 is not a topic filter"),
        ("data_dir = ''", '"" is not a path'),
        ("host =", "holdfast.toml is not valid TOML"),
        ("session_ttl_s = 1\nMQTT_CLIENT_SESSION_EXPIRY_TTL = 2", "is a second value of"),
        ("mqtt_port = 1\nhttp_port = 1", "mqtt_port and http_port are both 1"),
        ("mqtt_port = 'off'\nhttp_port = 'off'", "nothing would listen"),
        ("mqtts_port = 8883", "holdfast.toml: mqtts_port: it needs tls_certificate, which is off"),
        ("wss_port = 8084", "holdfast.toml: wss_port: it needs tls_certificate, which is off"),
        ("ws_port = 1883", "mqtt_port and ws_port are both 1883"),
        ("tls_client_certificates = 'required'", "there is no tls_client_ca"),
        ("host = []", "host: expected an address or a list of them, but it is empty"),
        ("host = '127.0.0.1, [::1]'", '"[::1]" is not a host'),
        ("mqtt_unix_socket_mode = 660", "permissions of a file in quotes such as 0660, but 660"),
        ("ws_origins = ['example.com']", '"example.com" is not an origin such as'),
        ("proxy_protocol = ['http']", '"http" is not one of mqtt, mqtts, ws, wss'),
        ("proxy_protocol_from = ['10.0.0.1/8']", '"10.0.0.1/8" is not an address or a network'),
        ("segment_bytes = '1MiB'", "cannot hold one record of maximum_packet_size_bytes"),
    ],
)
def test_what_cannot_be_right_is_refused_with_key_and_place(toml: str, sentence: str) -> None:
    assert sentence in refusal(toml)


def test_an_unknown_variable_of_ours_is_refused_and_others_are_left_alone() -> None:
    assert 'unknown variable "HOLDFAST_HOTS"' in refusal(environment={"HOLDFAST_HOTS": "::1"})
    assert load(environment={"HOTS": "::1"}).origins["host"] == "default"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.test"])
def test_a_wider_address_is_told_from_loopback(host: str) -> None:
    assert not config.is_loopback(host)
    assert config.is_loopback("127.0.0.1")
    assert config.is_loopback("::1")


def test_a_rate_of_bytes_that_no_packet_fits_into_is_refused() -> None:
    assert "less than one packet" in refusal(client_bytes_per_second="1KiB")
    assert load(client_bytes_per_second="1MiB").config.client_bytes_per_second == 2**20


def test_several_addresses_may_be_listened_on() -> None:
    for toml in ("host = ['127.0.0.1', '::1']", "host = '127.0.0.1, ::1'"):
        assert load(toml).config.hosts == ("127.0.0.1", "::1")


def test_ports_that_the_system_chooses_do_not_collide() -> None:
    ports = load("mqtt_port = 0\nhttp_port = 0\nws_port = 0").config.ports
    assert ports == {"mqtt_port": 0, "ws_port": 0, "http_port": 0}


@pytest.mark.parametrize(
    ("disk_bytes", "kept"), [(TERABYTE, 10 * 10**9), (50 * 10**9, 5 * 10**9), (1, 2**20)]
)
def test_retention_is_the_smaller_of_10_gb_and_a_tenth_of_the_disk(
    disk_bytes: int, kept: int
) -> None:
    effective = load(disk_bytes=disk_bytes)
    assert effective.config.retention_bytes == kept
    assert effective.origins["retention_bytes"] == "default (auto)"
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
        key for key, row in config.SETTINGS.items() if not re.fullmatch(r"[A-Z].+\.", row.reason)
    ]
