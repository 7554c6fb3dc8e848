"""Processors with databases and brokers that are not ours."""
