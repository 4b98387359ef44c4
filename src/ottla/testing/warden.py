"""A process that outlives a test process for a moment, to remove what it left behind.

A test process that is killed cleans up nothing. Its nodes die with it (`ottla.local.launcher`); its warden notices that
it has another parent, makes sure of the nodes (each known by pid and start time, so that nobody else is hit) and
removes their directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from ottla.local.cluster import LocalCluster
from ottla.local.errors import LocalClusterError

LOOK_EVERY_S = 0.2


def main(parent: int, directory: Path) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    with suppress(LocalClusterError):  # it never came to be
        LocalCluster.load(directory).kill()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
