"""Each client of a row is told where it connects, and what it speaks there."""

import pytest

from bench.macro.measurement import doors
from bench.macro.rows import MQTT, PULSAR, ROWS


@pytest.mark.parametrize(
    ("speaks", "expected"),
    [
        ((MQTT, MQTT), "--port 1883"),
        ((PULSAR, PULSAR), "--port 1884 --protocol pulsar --to-protocol pulsar --to-port 1884"),
        ((MQTT, PULSAR), "--port 1883 --protocol mqtt --to-protocol pulsar --to-port 1884"),
        ((PULSAR, MQTT), "--port 1884 --protocol pulsar --to-protocol mqtt --to-port 1883"),
    ],
)
def test_pulsar_clients_connect_behind_the_port_of_mqtt(
    speaks: tuple[str, str], expected: str
) -> None:
    row = next(row for row in ROWS if row.speaks == speaks)
    assert doors(row, 1883) == expected.split()
