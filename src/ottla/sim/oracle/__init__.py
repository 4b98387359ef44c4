"""What must hold, and what is known to hold it against: the ledger, the checkers, the coverage of rare states.

It watches the cluster from outside and never changes what a node does.
"""
