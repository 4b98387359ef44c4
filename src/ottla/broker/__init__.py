"""The node: ordinary asyncio around the pure cores of `log`, `replica`, `raft`, `controller` and `coordinators`.

`node` owns everything and connects it. `server` takes requests, `apis` answers them, `replication`, `cluster` and
`coordination` drive the cores. What decides is never here.
"""
