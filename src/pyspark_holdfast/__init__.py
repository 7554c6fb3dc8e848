"""Make `spark.read.format("holdfast")` work: Spark looks for `DefaultSource` in modules named
`pyspark_*`."""

from holdfast.pipeline.data_source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
