"""A simulated ZooKeeper: znodes, versions, sessions, ephemeral and sequential nodes, one-shot watches.

It runs as a server on a host of the simulator, and its clients talk to it over the simulated network. The same tests
pass on the real ZooKeeper server.
"""
