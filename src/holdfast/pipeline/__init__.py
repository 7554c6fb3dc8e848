"""From the log to tables, in PySpark.

    log --source--> raw --transform--> parsed + rejected --load--> tables

`source` is the data source `holdfast`; `transform/` holds functions from DataFrame to DataFrame;
`load/` writes a table so that writing again changes nothing; `jobs/` joins them. The pipeline reads
what the broker publishes (the read interface) and knows nothing of its insides.
"""
