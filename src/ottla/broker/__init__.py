"""The node: listeners, one handler per API, parked requests, replication, quorum and controller shells.

Ordinary asyncio around the pure cores of `log`, `replica`, `metadata` and `controller`.
"""
