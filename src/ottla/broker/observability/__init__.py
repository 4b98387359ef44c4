"""What can be seen of a node from outside: its metrics, its health, and the HTTP endpoint that shows both.

A node that has no `metrics.listeners` does not import the metrics.
"""
