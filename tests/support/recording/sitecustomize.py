"""Notes which client sends which version of which request, in the nodes of a recorded test run.

Python imports a module of this name when it starts, wherever it finds one: with this directory in PYTHONPATH
and `OTTLA_RECORD` naming another, every node writes there what its clients sent, each thing once. So the
product needs no code for it. `tests/test_compatibility.py` explains how to record.
"""

import os

if directory := os.environ.get("OTTLA_RECORD"):
    from recorder import record_requests

    record_requests(directory)
