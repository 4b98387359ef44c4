"""Reading: from the options of a query to offsets, ranges, fetched batches and Arrow columns."""
