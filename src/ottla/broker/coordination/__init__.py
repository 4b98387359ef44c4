"""Coordinators on this broker: which shards it hosts, and the transaction markers and checks between brokers.

The state machines of groups and transactions are in `coordinators`; their requests are read in `broker.apis`.
"""
