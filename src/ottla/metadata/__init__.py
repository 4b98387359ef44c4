"""The cluster's metadata: records, the image they add up to, and the quorum that agrees on them.

Read `records` and `image` for what the metadata is, `raft` (with `roles` and `journal`) for how a majority of
controllers agrees on it, `snapshots` and `format` for the files.
"""
