"""ZooKeeper's errors, with its names and codes."""

from __future__ import annotations

from typing import ClassVar


class ZooKeeperError(Exception):
    code: ClassVar[int] = 0


class ConnectionLoss(ZooKeeperError):
    """The connection was lost before the answer came. Nobody knows whether the operation was done."""

    code = -4


class NoNode(ZooKeeperError):
    code = -101


class BadVersion(ZooKeeperError):
    """The znode has another version than the one that was asked for."""

    code = -103


class NoChildrenForEphemerals(ZooKeeperError):
    code = -108


class NodeExists(ZooKeeperError):
    code = -110


class NotEmpty(ZooKeeperError):
    """A znode with children cannot be deleted."""

    code = -111


class SessionExpired(ZooKeeperError):
    """The session is over. It does not come back: its client needs a new one."""

    code = -112


_BY_CODE = {each.code: each for each in ZooKeeperError.__subclasses__()}


def error_of(code: int, message: str) -> ZooKeeperError:
    return _BY_CODE[code](message)
