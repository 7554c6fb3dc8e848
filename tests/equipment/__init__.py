"""What the tests of the whole broker share: clients that note what they see, and judges of it.

Simulation, kill, soak, full disk and the measurement of recovery drive the same clients and ask
the same judges. Nothing here ships: whoever tests a broker that is not theirs needs the world of
`holdfast.testing`, and a judge of their own promises.
"""
