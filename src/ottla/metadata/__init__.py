"""The cluster's metadata: its records, the features they depend on, and the immutable image that they add up to.

How the nodes agree on these records is `raft`; what a controller decides to write is `controller`.
"""
