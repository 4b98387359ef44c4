"""A process that cleans up after a test process that was killed.

A killed test process cannot clean up. Its nodes die with it (`ottla.local.launcher`). The warden notices that its parent
process has changed. Then it kills the nodes that remain and removes their directory. Nodes are known by pid and start
time, so that no other process is killed.
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
    with suppress(LocalClusterError):  # the cluster was never created
        LocalCluster.load(directory).kill()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
