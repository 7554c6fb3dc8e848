"""Batches: messages that a writer stages in parts and that enter the log by one commit."""
