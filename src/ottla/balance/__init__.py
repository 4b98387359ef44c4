"""Which replicas and leaders go where, so that every broker carries its share, and how fast: rules without I/O."""
