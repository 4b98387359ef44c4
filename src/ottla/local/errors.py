"""Why a local cluster could not do what was asked. Each message is one line: what, where, what to do.

This package knows no command line. A message speaks of ports, settings and seconds; `parameter` says which of the
caller's arguments to change, and `cli.errors` puts the name of the option in front.
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """It was tried, and failed."""

    def __init__(self, message: str, *, parameter: str = "") -> None:
        super().__init__(message)
        self.parameter = parameter
        """`port`, `settings` or `timeout_s`; empty if no argument was wrong."""


class InvalidUse(LocalClusterError):
    """What was asked for is not possible; nothing was done."""


class NotFound(LocalClusterError):
    """There is no such cluster or node."""


class NoCluster(NotFound):
    """The directory holds no cluster."""


class DamagedCluster(LocalClusterError):
    """The file that describes the cluster cannot be read."""


class Conflict(LocalClusterError):
    """It exists already, is in use, or belongs to another."""
