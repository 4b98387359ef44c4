"""A cluster as a display sees it: rows that remember when they changed.

Observations come in as plain calls, with the time at which they were made; nothing here asks, waits or looks at a clock.

- `tables`: rows by key and rings of points, which tell what is new since a version
- `rows`: what the rows are
- `cluster_model`: all tables of a cluster, and the observations that it takes
- `structure`, `flow`, `consumers`, `happenings`: these observations, by theme
- `problems`: what is wrong, in words
- `rewind`: leaders, ISRs and brokers as they were, from the event log
- `replica_logs`, `trace`: logs of replicas as they are drawn; those of a simulated run
"""
