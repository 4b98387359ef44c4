"""What can be seen of a node from outside: its event log, its metrics, its health, and the HTTP endpoint of the last two.

Nothing that serves a client waits for anything here. A node that has no `metrics.listeners` does not import the metrics.
"""
