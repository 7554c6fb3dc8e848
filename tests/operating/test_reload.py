"""A changed file and a running broker: by SIGHUP, and by `holdfast reload`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.client.http import HttpClient
from tests.interop.device import Device, payloads
from tests.interop.test_admin import eventually
from tests.operating.conftest import MakeBroker
from tests.process import BrokerProcess
from tests.supervisor import Supervisor

HEAD = """
[[bridge]]
name = "head"
address = "127.0.0.1:1"
[[bridge.local_subscriptions]]
filters = ["{}"]
"""


class Site:
    """A broker with a file, and clients."""

    def __init__(self, make_broker: MakeBroker, file: Path, supervisor: Supervisor) -> None:
        self.file = file
        file.write_text("")
        self.broker: BrokerProcess = make_broker("--config", str(file))
        self._supervisor = supervisor

    def reload(self, toml: str) -> None:
        """The file says this now, and the broker has looked."""
        self.file.write_text(toml)
        self.broker.send(signal.SIGHUP)
        self._supervisor.wait_reloaded()

    def device(self, name: str, **options: object) -> Device:
        """A connected client."""
        return Device(self.broker.port, name, **options).connect()  # type: ignore[arg-type]


@pytest.fixture
def site(make_broker: MakeBroker, tmp_path: Path, supervisor: Supervisor) -> Site:
    return Site(make_broker, tmp_path / "site.toml", supervisor)


def test_a_reload_disturbs_no_client_and_binds_the_next_one(site: Site) -> None:
    before = site.device("before", clean_start=True)
    before.subscribe("t", 1)
    site.reload(
        "mqtt.receive_maximum = 7\nmqtt.keep_alive_maximum_s = 30\nmqtt.topic_alias_maximum = 3\n"
        "session.expiry_maximum_s = 100\n"
    )
    after = site.device("after", clean_start=True, SessionExpiryInterval=3_600)
    assert after.connack_properties["ReceiveMaximum"] == 7
    assert after.connack_properties["ServerKeepAlive"] == 30
    assert after.connack_properties["TopicAliasMaximum"] == 3
    assert after.connack_properties["SessionExpiryInterval"] == 100
    after.publish("t", b"heard")
    assert payloads([before.receive()]) == [b"heard"]
    before.close()
    after.close()


def test_a_wrong_file_changes_nothing_and_says_why(site: Site) -> None:
    before = site.device("before", clean_start=True)
    site.reload("mqtt.receive_maximum = 7\nqueue.mesages_maximum = 1\n")
    assert "configuration refused" in site.broker.log()
    assert 'did you mean \\"queue.messages_maximum\\"' in site.broker.log()
    after = site.device("after", clean_start=True)
    assert after.connack_properties["ReceiveMaximum"] == 1_000
    before.publish("t", b"")
    before.close()
    after.close()


def test_what_needs_a_restart_is_named_and_the_rest_is_taken(site: Site) -> None:
    site.reload("log.segment_bytes = '32MiB'\nmqtt.receive_maximum = 9\n")
    assert '"setting needs a restart" setting=log.segment_bytes in_force=64MiB' in site.broker.log()
    assert '"setting changed" setting=mqtt.receive_maximum was=1000 is=9' in site.broker.log()
    site.reload("mqtt.receive_maximum = 9\n")
    assert site.broker.log().count("setting needs a restart") == 1


def test_the_configuration_says_where_values_come_from_now(site: Site) -> None:
    running = HttpClient.on(site.broker.data_directory)
    site.reload(
        "mqtt.receive_maximum = 9\nmqtt.sys_interval_s = '1s'\nlog.segment_bytes = '32MiB'\n"
    )
    settings = running.get("/v1/configuration")["settings"]
    for key, value in (("mqtt.receive_maximum", "9"), ("mqtt.sys_interval_s", "1s")):
        assert (settings[key]["value"], settings[key]["origin"]) == (value, str(site.file))
    assert (settings["log.segment_bytes"]["value"], settings["log.segment_bytes"]["origin"]) == (
        "64MiB",
        "default",
    )


def test_system_topics_go_and_come_back(site: Site) -> None:
    site.reload("mqtt.sys_interval_s = '1s'\n")
    reader = site.device("reader", clean_start=True)
    reader.subscribe("$SYS/broker/uptime", 0)
    assert reader.receive().payload
    reader.close()
    site.reload("mqtt.sys_interval_s = '0s'\n")
    late = site.device("late", clean_start=True)
    site.reload("mqtt.sys_interval_s = '1s'\n")
    late.subscribe("$SYS/broker/uptime", 0)
    assert late.receive().payload
    late.close()


def test_the_log_level_changes(site: Site) -> None:
    site.reload("logging.level = 'info'\n")
    site.reload("logging.level = 'error'\nmqtt.receive_maximum = 5\n")
    asks = site.device("asks", clean_start=True)
    assert asks.connack_properties["ReceiveMaximum"] == 5
    assert "setting changed" not in site.broker.log()
    asks.close()


def test_sessions_beyond_the_maximum_are_refused_and_those_on_record_are_not(site: Site) -> None:
    kept = site.device("kept", SessionExpiryInterval=3_600)
    site.reload("limits.sessions_maximum = 1\n")
    refused = Device(site.broker.port, "one-more", SessionExpiryInterval=3_600).connect()
    assert refused.reason_code == 0x97
    passing = site.device("passing", clean_start=True)
    assert passing.reason_code == 0
    kept.disconnect()
    back = site.device("kept", SessionExpiryInterval=3_600)
    assert (back.reason_code, back.session_present) == (0, True)
    back.disconnect(SessionExpiryInterval=0)
    taken = site.device("one-more", SessionExpiryInterval=3_600)
    assert taken.reason_code == 0
    for each in (passing, taken):
        each.close()


def test_connections_beyond_the_maximum_are_turned_away(site: Site) -> None:
    first = site.device("first", clean_start=True)
    site.reload("limits.connections_maximum = 1\n")
    second = Device(site.broker.port, "second", clean_start=True)
    second.connect()
    assert second.reason_code is None
    first.publish("t", b"")
    site.reload("")
    second = site.device("second", clean_start=True)
    assert second.reason_code == 0
    first.close()
    second.close()


def test_the_limit_of_a_queue_changes_for_who_comes_back(site: Site) -> None:
    away = site.device("away", SessionExpiryInterval=3_600)
    away.subscribe("t", 1)
    away.disconnect()
    publisher = site.device("publisher", clean_start=True)
    sent = [b"%d" % number for number in range(20)]
    publisher.publish_all("t", sent)
    site.reload("queue.messages_maximum = 5\nqueue.keep = 'oldest'\n")
    away = site.device("away", SessionExpiryInterval=3_600)
    assert payloads(away.all_received()) == sent[:5]
    publisher.close()
    away.close()


def test_qos_0_is_stored_where_a_reload_asks_for_it(site: Site) -> None:
    away = site.device("away", SessionExpiryInterval=3_600)
    away.subscribe("t/#", 1)
    publisher = site.device("publisher", clean_start=True)
    publisher.publish("t/a", b"before", 0)
    assert payloads([away.receive()]) == [b"before"]
    away.disconnect()
    site.reload("log.store_all = ['t/#']\n")
    publisher.publish("t/a", b"after", 0)
    publisher.publish("other", b"", 1)
    stored = holdfast(site, "log", "records", "--json")
    assert "after" in stored.stdout
    assert "before" not in stored.stdout
    publisher.close()


def test_retention_is_shortened_by_a_reload(site: Site) -> None:
    site.broker.stop()
    site.file.write_text("log.segment_bytes = '2MiB'\n")
    site.broker.start()
    publisher = site.device("publisher", clean_start=True)
    for _ in range(4):
        publisher.publish_all("t", [bytes(900_000)] * 4)
    site.reload("log.segment_bytes = '2MiB'\nlog.retention_bytes = '4MiB'\n")
    running = HttpClient.on(site.broker.data_directory)

    def begins_at() -> float:
        return float(running.get("/v1/statistics")["statistics"]["holdfast_log_begin_offset"])

    eventually(lambda: begins_at() > 0, "segments removed")
    publisher.close()


def test_the_command_says_what_came_of_it(site: Site) -> None:
    site.file.write_text("log.segment_bytes = '32MiB'\nmqtt.receive_maximum = 9\n")
    done = holdfast(site, "reload")
    assert done.stdout.splitlines() == [
        "changed: mqtt.receive_maximum",
        "needs a restart: log.segment_bytes",
    ]
    site.file.write_text("mqtt.receive_maximum = 'many'\n")
    refused = holdfast(site, "reload")
    assert refused.returncode == 1
    assert "expected a whole number" in refused.stderr
    site.file.write_text("mqtt.receive_maximum = 9\n")
    unchanged = "no setting is different; certificates, where it has any, were read again"
    assert holdfast(site, "reload").stdout.strip() == unchanged


def test_bridges_of_the_file_wait_for_a_restart_and_a_wrong_one_is_refused(site: Site) -> None:
    site.reload(HEAD.format("plant/#"))
    assert '"bridge needs a restart" bridge=head' in site.broker.log()
    assert '"configuration read again" changed=0 need_a_restart=1' in site.broker.log()
    assert holdfast(site, "reload").stdout.splitlines() == ["needs a restart: [[bridge]] head"]
    site.reload("mqtt.receive_maximum = 9\n" + HEAD.format("plant/#/x"))
    assert "configuration refused" in site.broker.log()
    assert "[[bridge]] 1: local_subscriptions 1:" in site.broker.log()
    assert "setting changed" not in site.broker.log()
    site.reload("")
    assert '"configuration read again" changed=0 need_a_restart=0' in site.broker.log()


def holdfast(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("holdfast")), *words]
    directory = ("--data-dir", str(site.broker.data_directory))
    return subprocess.run([*command, *directory], capture_output=True, text=True, timeout=120)
