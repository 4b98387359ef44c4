"""A partition's replica: the state machine of leader and follower, and the fetch conversation between them.

Pure: time is passed in, the log does its own I/O through the disk seam, nothing here knows of sockets.
"""
