"""What a running broker takes over of new settings."""

from dataclasses import replace

import pytest

from holdfast.core.change import plan_change
from holdfast.core.config import BY_ATTRIBUTE, SETTINGS, Config, Effective
from holdfast.core.errors import ConfigurationError

IN_FORCE = Config(retention_bytes=10**9)


def effective(config: Config, **origins: str) -> Effective:
    return Effective(config, {BY_ATTRIBUTE[name].name: origins[name] for name in origins})


def test_what_can_change_does_and_what_cannot_is_named() -> None:
    wanted = replace(IN_FORCE, receive_maximum=7, mqtt_port=1884, retention_age_s=60)
    change = plan_change(effective(IN_FORCE), effective(wanted))
    assert set(change.taken) == {"mqtt.receive_maximum", "log.retention_age_s"}
    assert change.waiting == ("mqtt.port",)
    assert change.settings.config == replace(IN_FORCE, receive_maximum=7, retention_age_s=60)


def test_the_same_settings_change_nothing() -> None:
    change = plan_change(effective(IN_FORCE), effective(replace(IN_FORCE)))
    assert (change.settings.config, change.taken, change.waiting) == (IN_FORCE, (), ())


def test_where_a_value_came_from_changes_with_what_is_in_force() -> None:
    before = effective(IN_FORCE, receive_maximum="a.toml", mqtt_port="a.toml", logging_level="a")
    wanted = replace(IN_FORCE, receive_maximum=7, mqtt_port=1884)
    after = effective(wanted, receive_maximum="--mqtt-receive-maximum", mqtt_port="--mqtt-port")
    origins = plan_change(before, after).settings.origins
    assert origins["mqtt.receive_maximum"] == "--mqtt-receive-maximum"
    # What waits for a restart is as it was; what has the same value comes from elsewhere now.
    assert origins["mqtt.port"] == "a.toml"
    assert origins["logging.level"] == "default"


def test_what_is_in_force_afterwards_must_be_right_in_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Both are right together, and the half of it that could be taken is not.
    larger = replace(IN_FORCE, maximum_packet_size_bytes=100 * 2**20, segment_bytes=2**28)
    rows = dict(SETTINGS)
    rows["mqtt.maximum_packet_size_bytes"] = replace(
        rows["mqtt.maximum_packet_size_bytes"], reloadable=True
    )
    monkeypatch.setattr("holdfast.core.change.SETTINGS", rows)
    with pytest.raises(ConfigurationError, match="cannot hold one record"):
        plan_change(effective(IN_FORCE), effective(larger))


@pytest.mark.parametrize(
    "key",
    [
        "data.dir",
        "listen.host",
        "mqtt.port",
        "http.port",
        "log.durability",
        "log.segment_bytes",
        "log.reserve_bytes",
    ],
)
def test_what_a_start_builds_on_is_not_changed_under_it(key: str) -> None:
    assert not SETTINGS[key].reloadable
