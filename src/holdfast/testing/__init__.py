"""The simulated world: virtual time, a network and clients in memory, and the checkers that judge a
run.

It ships with the product, because whoever writes a processor needs the same clock. Nothing else in
the package may import it.
"""
