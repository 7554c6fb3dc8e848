"""Spark in several processes: a standalone master with a worker, local clusters, Spark Connect."""
