"""A process that outlives a test process for a moment, to end the nodes that it left behind.

A test process that is killed cleans up nothing. Its warden notices that it has another parent, kills the nodes (each
known by pid and start time, so that nobody else is hit) and removes their directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from ottla.cli.cluster import LocalCluster
from ottla.cli.errors import Failure

LOOK_EVERY_S = 0.2


def main(parent: int, directory: Path, is_ours: bool) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    with suppress(Failure):  # it never came to be, or is gone already
        LocalCluster.load(directory).kill()
    if is_ours:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "remove")
