"""What a broker imports before its port is open: clients that come back after a crash wait for
that."""

import subprocess
import sys

LATE = ("aiohttp", "pyarrow", "prometheus_client", "rich")
"""What only those need who look on from outside: more than half of a start, if it came first."""


def test_a_broker_accepts_clients_before_it_imports_what_administers_it() -> None:
    program = (
        "import sys, holdfast.cli, holdfast.broker.serve;"
        f"print(*(name for name in {LATE} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not done.stdout.split()
