"""The data source and the pipeline, in a real Spark over real logs."""
