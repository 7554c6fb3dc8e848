"""Pulsar as it is served: who is connected, their producers, subscriptions and consumers."""
