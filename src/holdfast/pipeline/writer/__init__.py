"""Writing into the log: parts are staged by tasks, and the driver commits the batch they are of."""
