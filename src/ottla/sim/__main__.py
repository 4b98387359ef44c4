"""`python -m ottla.sim` is `ottla sim`, where the package is there and its command is not on the path."""

from __future__ import annotations

import sys

from ottla.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "sim")
    main()
