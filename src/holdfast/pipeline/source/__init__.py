"""The log as a batch, and as a stream with exact restarts.

    options       what one `load()` asked for, as a value
    columns       the columns and their types
    batch, stream the two readers
    following     the same two by a cursor, which the broker keeps
    ranges        from options and an extent to what each task reads, and the reading of it
    offsets       the offset in checkpoints
    forms         the text of one option, read
    pushdown      what of a query's filters the broker obeys
    patience      waiting for a broker that is away
    log           the opened log, one per process

Never: touches a row; the kernel fills Arrow batches, and they go to Spark as they are.

Flow: options -> extent of the log -> ranges -> tasks -> `holdfast.reading` -> Arrow batches.
"""
