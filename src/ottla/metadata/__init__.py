"""The cluster's metadata: its records, the features they depend on, and the immutable image built from them.

`raft` replicates these records. `controller` decides which ones to write.
"""
