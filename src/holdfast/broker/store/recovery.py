"""What recovery found, as lines for the operator.

Owns: the words. Never: recovers; the log does, and the view from it.
"""

import logging
from typing import Any

log = logging.getLogger(__name__)


def report(found: dict[str, Any], *, control_records: int, seconds: float) -> None:
    """Logs what opening the log has found; damage is a warning for each place."""
    log.info(
        "log recovered",
        extra={
            "fields": {
                "begin_offset": found["begin_offset"],
                "end_offset": found["end_offset"],
                "segments": found["segments"],
                "bytes": found["bytes"],
                "from_checkpoint": found["from_checkpoint"],
                "control_records_read": control_records,
                "seconds": round(seconds, 3),
            }
        },
    )
    if found["trimmed_bytes"]:
        # Expected after a crash: what was being written, and had not been acknowledged.
        fields = {"bytes": found["trimmed_bytes"]}
        log.info("torn tail trimmed", extra={"fields": fields})
    for place in found["damaged"]:
        log.warning("log damaged", extra={"fields": dict(place)})
