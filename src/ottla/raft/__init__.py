"""KRaft: a quorum of voters that agrees on the log of metadata records, and the observers that copy it.

Pure: no clock, socket or file is opened here. What the records mean is in `metadata`; `broker.cluster` drives this
with a clock and a network.
"""
