"""A simulated ZooKeeper: znodes, versions, sessions, ephemeral and sequential nodes, one-shot watches.

It runs on hosts of the simulator, and its clients talk to it over the simulated network. The same checks pass on it and on
the real server (`tests/support/zookeeper_semantics.py`).

- `model`, `errors`: ZooKeeper's words; `tree`, `watches`: the state and its changes, pure
- `wire`: the messages; `counts`: how many of each
- `txn_log`, `leader`, `follower`, `follower_link`: the two servers; `ensemble`: their hosts
- `client`: a session; `locks`: what the lock recipes share

What is left out, because no design asks for it: ACLs, times, quotas, containers, other servers to read from, and the
election of a leader. Session timeouts are taken as they are asked for, and are not rounded to ticks.
"""
