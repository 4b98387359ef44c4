"""Children that take SIGINT, whoever started the tests.

A shell that is not interactive ignores SIGINT in its background jobs, and their children inherit that.
"""

from __future__ import annotations

import signal


def take_sigint() -> None:
    """For `preexec_fn`: Python installs its own handler only where SIGINT has its default action."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
