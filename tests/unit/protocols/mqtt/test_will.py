"""When a Will is published."""

import pytest

from holdfast.protocols.mqtt.will import Ending, plan_will
from tests.unit.protocols.mqtt.builders import will

NOW = 1_000_000_000


def due(ending: Ending, *, delay_s: int = 0, expiry_s: int | None = 3_600) -> int | None:
    return plan_will(will(delay_interval_s=delay_s), expiry_s, ending, NOW)


def test_mqtt_3_14_4_3_a_normal_disconnect_deletes_the_will() -> None:
    assert due(Ending.NORMAL) is None
    assert due(Ending.NORMAL, delay_s=5) is None


def test_mqtt_3_1_2_8_any_other_end_publishes_it() -> None:
    assert due(Ending.ABNORMAL) == NOW


def test_it_waits_for_its_delay() -> None:
    assert due(Ending.ABNORMAL, delay_s=5) == NOW + 5_000_000


def test_it_does_not_wait_longer_than_the_session_lasts() -> None:
    assert due(Ending.ABNORMAL, delay_s=5, expiry_s=2) == NOW + 2_000_000
    assert due(Ending.ABNORMAL, delay_s=5, expiry_s=0) == NOW
    assert due(Ending.ABNORMAL, delay_s=5, expiry_s=None) == NOW + 5_000_000


def test_mqtt_3_1_3_9_a_connection_within_the_delay_cancels_it() -> None:
    assert due(Ending.RESUMED, delay_s=5) is None
    assert due(Ending.RESUMED, delay_s=0) == NOW


def test_the_end_of_the_session_publishes_it_at_once() -> None:
    assert due(Ending.DISCARDED, delay_s=5) == NOW


@pytest.mark.parametrize("ending", Ending)
def test_without_a_will_there_is_none(ending: Ending) -> None:
    assert plan_will(None, 3_600, ending, NOW) is None
