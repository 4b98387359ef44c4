"""Clients of a simulated cluster: producers, consumers, groups, transactions, an operator and a hostile peer.

They behave as real clients do, and record what they were answered (`oracle.history`); the oracle checks it.
"""
