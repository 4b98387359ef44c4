"""Why a local cluster could not do what was asked. Each message is one line: what, where, what to do."""

from __future__ import annotations


class LocalClusterError(Exception):
    """It was tried, and failed."""


class InvalidUse(LocalClusterError):
    """What was asked for cannot be; nothing was done."""


class NotFound(LocalClusterError):
    """There is no such cluster or node."""


class Conflict(LocalClusterError):
    """It exists already, is in use, or belongs to another."""
