"""The decisions of the active controller: broker liveness, placement, elections, topics, settings.

This package is pure: commands in, metadata records out. Start reading at `controller`. The rules of leadership
are in `elections`, the state machines in `states`.
"""
