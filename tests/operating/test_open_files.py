"""A broker that may open few files says so, and leaves nobody waiting."""

import socket
import sys
from contextlib import ExitStack

from tests.interop.wire import Wire
from tests.operating.conftest import MakeBroker
from tests.process import HOST

OPEN_FILES = 600
LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_it_says_how_many_connections_it_allows_and_turns_the_next_away(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(program=[sys.executable, "-c", LIMITED], retention_bytes="64MiB")
    words = broker.log().split(f"the limit of {OPEN_FILES} open files allows ")[1]
    assert "not 100000 (limits.connections_maximum); raise it to" in words
    possible = int(words.split()[0])
    with ExitStack() as stack, Wire(broker.port) as first:
        first.connect("first")
        for _ in range(possible - 1):
            stack.enter_context(socket.create_connection((HOST, broker.port), 60))
        with Wire(broker.port) as beyond:
            assert beyond.next_packet() is None
        first.ping()
    assert broker.stop() == 0
