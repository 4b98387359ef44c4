"""The simulated machine: an event loop with virtual time, network, disks and processes, all decided by a seed.

It knows nothing of Kafka.
"""
