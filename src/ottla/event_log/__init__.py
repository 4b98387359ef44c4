"""The event log: what happened in a cluster, as records of the topic `__ottla_events` that anybody can read.

Pure. `entry` is the format of a record, `mapping` turns the typed events of a node into entries, `kinds` says what each
kind means, `words` tells an entry as a sentence. Each node writes its own entries (`broker.observability.event_log`).
"""
