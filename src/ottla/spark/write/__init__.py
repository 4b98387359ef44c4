"""Writing: rows to batches, tasks with their transactions, and the exactly-once commit of the driver."""
