"""Coordinators: groups, their offsets, and transactions, as pure state machines over internal topics.

A shard is the state that the records of one partition of an internal topic add up to. A command leads to records, which
are appended, and to replies, which are sent once the records are committed. `broker.coordination` does both.
"""
