"""Durable messaging for fleets of devices and the services behind them.

One log, many queues: a message is stored once, and what a subscriber still has to get is implied by
its subscriptions and its position. `holdfast.broker` is the server, `holdfast.pipeline` the PySpark
side; `ARCHITECTURE.md` shows how the parts stand on one another.
"""

from typing import Final

__version__: Final = "0.1.0"
