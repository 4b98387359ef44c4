"""Metrics that clients push to a broker (KIP-714): which are wanted from whom, what they say, and the last of each.

Only a node with `metrics.listeners`, in a cluster with a subscription, imports this package. No clock, no I/O.
"""
