"""Groups of both protocols and their committed offsets: one shard for each partition of `__consumer_offsets`."""
