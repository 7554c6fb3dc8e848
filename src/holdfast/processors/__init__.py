"""Services that consume device data per environment: a class of a few lines, and rows in a table.

The path of one message: `session` has it from the client, `gathering` puts it into a batch, `work`
has the batch parsed by the processor and committed by the sink, and then `session` acknowledges it
(docs/adr/0027-committed-before-acknowledged.md).

It knows nothing of the broker but what goes over the wire: any MQTT 5 broker will do.
"""

from holdfast.processors.process import run, run_all, serve

__all__ = ["run", "run_all", "serve"]
