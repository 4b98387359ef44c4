"""A cluster of node processes on this machine: start it, find it again, signal it, remove it.

A library: it raises `local.errors`, prints nothing and knows no command line. `cli` and `testing` are built on it.
"""
