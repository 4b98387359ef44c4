"""Brokers of the product whose decisions come through ZooKeeper, in the three ways that Kafka's replication went.

The broker is the product's: logs, replicas, fetchers, servers. Only its membership in the cluster is another one
(`ottla.broker.cluster.membership`).

- `watchers`: v1, each replica watches the znode of its partition's leader;
- `elected_controller`: one broker decides; `state_queue` (v2) and `leader_and_isr` (v3) carry its decisions.
"""
