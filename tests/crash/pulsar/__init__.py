"""Pulsar's own client, while its broker is killed again and again."""
