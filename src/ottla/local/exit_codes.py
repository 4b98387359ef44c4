"""Exit codes of `ottla` and of every node process, for scripts to rely on.

| code | meaning |
|---|---|
| 0 | done |
| 1 | tried and failed |
| 2 | wrong usage or wrong settings; nothing was done |
| 3 | what was named does not exist |
| 4 | no broker answers at that address |
| 5 | conflict: it exists already, is in use, or belongs to another |
| 6 | `ottla doctor` found something serious |
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNREACHABLE: Final = 4
CONFLICT: Final = 5
SERIOUS: Final = 6
