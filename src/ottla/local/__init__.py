"""A cluster of node processes on this machine: started, found again, signalled and removed.

A library: it raises `local.errors`, prints nothing and knows no command line. `cli` and `testing` are built on it.
"""
