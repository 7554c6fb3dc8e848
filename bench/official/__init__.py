"""Pulsar's official clients as a load, beside Pulsar's own broker.

`Pair.java` is run by Java as it stands, with the jars that `pom.xml` brings the broker with;
`python_client.py` is a process of its own. Each does what its arguments say, and tells on standard
output where each measured part begins and ends; `bench.macro.official` looks at the clock then.

Never: takes a time or looks at the broker, so that both brokers are measured in one way.
"""
