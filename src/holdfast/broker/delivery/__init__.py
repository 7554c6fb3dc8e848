"""Queues, whoever takes from them: who shares one, what is cut off, what is lost and why."""
