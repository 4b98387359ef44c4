"""The simulated machine: an event loop with virtual time, network, disks and processes, all driven by a seed.

This package does not depend on Kafka.
"""
