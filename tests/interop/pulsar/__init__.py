"""Pulsar's own client against a real broker."""
