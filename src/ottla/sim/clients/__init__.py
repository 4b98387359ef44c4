"""Clients of a simulated cluster: producers, consumers, groups, transactions, an operator and a hostile peer.

They act as real clients do and write down what they were told (`oracle.history`); they judge nothing.
"""
