"""What `$SYS` shows of a broker's numbers."""

from holdfast.broker.observe.system_values import SystemValues
from holdfast.core.loss_reason import LossReason
from tests.builders.counted import snapshot


def test_rows_that_left_the_ledger_are_no_dropped_messages() -> None:
    shown: dict[str, bytes] = {}
    seen = snapshot(losses={LossReason.OVERFLOW: 3, LossReason.EXPIRED: 4}, loss_rows_removed=100)
    SystemValues(shown.update, lambda: seen, interval_s=10).tick(now_us=0)
    assert shown["$SYS/broker/publish/messages/dropped"] == b"7"
