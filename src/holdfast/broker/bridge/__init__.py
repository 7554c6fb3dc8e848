"""Bridges to other brokers: a queue, and a connection that was opened from here.

Flow: core.bridge -> bridges -> link -> remote; messages pass the stages like any others.
"""
