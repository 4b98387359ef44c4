"""Transactions: one shard for each partition of `__transaction_state`."""
