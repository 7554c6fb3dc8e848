"""How fast Spark reads, streams and writes here, each beside Spark's own way in the same run."""
