"""One partition's log on disk, in Kafka's files: segments with their indexes, append, read, roll, truncate,
recover; the leader-epoch cache, producer state, checkpoints, and the manager of all logs of a broker.

Nothing here knows a clock, a thread or a socket: time comes in as an argument, the disk as a seam.
"""
