"""How long the broker needs until it takes connections after kill -9, with a long log.

`python -m bench.recovery` builds a log of 10 GB with 1 000 sessions that have a backlog in it, has
the broker killed on it under load some times, and writes `bench/results/recovery/<date>.json`,
which `bench.macro` puts into its page.

Owns: that log, which is removed in the end, and the figures. Never: judges; it ends with 0 whether
or not the target is met.

Flow: sessions (over MQTT) -> stored (the kernel's log, without a broker) -> kill, start, measure.
"""
