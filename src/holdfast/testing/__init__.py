"""The simulated world: virtual time, a network in memory, and a machine with a disk to run on.

It ships with the product, because whoever writes a processor needs the same clock. Nothing else in
the package may import it. Clients and judges of the broker are the tests' own (`tests/equipment`).
"""
