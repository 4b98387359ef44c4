"""Coordinators: groups, their offsets, and transactions, as pure state machines over internal topics.

A shard is the state that the records of one partition of an internal topic add up to. Commands yield
records to append and replies to give once these are committed; `broker.coordination` does the appending.
"""
