"""One instance of a processor, in a process of its own, as a pod runs it.

`python -m tests.crash.processors.instance SETTINGS [early]`: the settings as JSON. With `early` it
says PUBREC as soon as a message comes, as clients do that do not know of a commit: the planted
fault.
"""

import asyncio
import json
import sys
from collections.abc import Sequence

from holdfast.client.consumer import Arrival
from holdfast.processors.process import serve
from holdfast.processors.session import Session
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.zebra import ZebraRfid


def acknowledge_early() -> None:
    """From now on the broker is told that messages are done with before they are."""
    work_on = Session.arrived

    def arrived(self: Session, arrivals: Sequence[Arrival]) -> None:
        self.acknowledge_all(arrivals)
        work_on(self, arrivals)

    Session.arrived = arrived  # type: ignore[method-assign]


def main() -> None:
    """Runs until it is killed."""
    told = json.loads(sys.argv[1])
    if "early" in sys.argv[2:]:
        acknowledge_early()
    settings = ProcessorSettings(**{**told, "topics": tuple(told["topics"])})
    asyncio.run(serve([(ZebraRfid(), settings)]))


if __name__ == "__main__":
    main()
