"""Read stored messages as Arrow record batches: from a data directory, or from a running broker
over HTTP.

    LogDirectory (kernel, files) --+
                                   +--> extent, split, read --> RecordBatch
    RemoteLog (HTTP, Arrow stream) +

The broker's read interface, the Spark source and the command line stand on this package, so that
all of them return the same rows. It never writes, never returns what is not durable, and never
hides what retention has taken.
"""
