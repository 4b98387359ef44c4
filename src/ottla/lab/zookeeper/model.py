"""The words of ZooKeeper: operations, what they answer, and the events of watches."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

ANY_VERSION = -1
NO_SESSION = 0


class OpCode(IntEnum):
    """ZooKeeper's numbers, and one for the messages between leader and follower."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_CHILDREN = 8
    PING = 11
    CHECK = 13
    MULTI = 14
    SET_WATCHES = 101
    CONNECT = 200
    """ZooKeeper's own first message has no number."""
    FOLLOW = 201
    PROPOSE = 202
    CREATE_SESSION = -10
    CLOSE_SESSION = -11

    @property
    def label(self) -> str:
        return self.name.lower()


class CreateNode(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class DeleteNode(NamedTuple):
    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class CheckVersion(NamedTuple):
    """Part of a multi only: it fails if the znode has another version."""

    path: str
    version: int = ANY_VERSION


ChangeOperation: TypeAlias = CreateNode | DeleteNode | SetData | CheckVersion


class Multi(NamedTuple):
    """All of the operations or none."""

    operations: tuple[ChangeOperation, ...]


class CreateSession(NamedTuple):
    timeout_ms: int


class CloseSession(NamedTuple):
    """By the client, or by the leader if the session timed out."""


WriteOperation: TypeAlias = ChangeOperation | Multi | CreateSession | CloseSession


class GetData(NamedTuple):
    path: str
    watch: bool = False


class Exists(NamedTuple):
    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    path: str
    watch: bool = False


ReadOperation: TypeAlias = GetData | Exists | GetChildren


class Ping(NamedTuple):
    """Keeps a session alive that has nothing to say."""


class ConnectRequest(NamedTuple):
    """The first message of a connection. The answer is the id of the session."""

    session: int
    """NO_SESSION to get a new one."""
    timeout_ms: int


class SetWatches(NamedTuple):
    """The watches of a client that connected again. Those that it missed an event for fire at once."""

    zxid: int
    """The last one that the client saw."""
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]


ClientOperation: TypeAlias = (
    ChangeOperation | Multi | CloseSession | ReadOperation | Ping | ConnectRequest | SetWatches
)


class Txn(NamedTuple):
    """A write in the order that leader and follower agree on."""

    zxid: int
    session: int
    operation: WriteOperation


class Stat(NamedTuple):
    czxid: int
    """The zxid that created the znode."""
    mzxid: int
    """The zxid that set its data last."""
    pzxid: int
    """The zxid that changed its children last."""
    version: int
    cversion: int
    """How often its children changed."""
    ephemeral_owner: int
    """The session of an ephemeral znode, or 0."""
    data_length: int
    num_children: int


OperationResult: TypeAlias = str | Stat | None
"""Of one write: the path of a create, the stat of a set."""


class EventType(Enum):
    """With ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Not connected now. The session may be over, and the client cannot know."""
    EXPIRED = "expired"
    """The server said so."""
    CLOSED = "closed"
    """By the client."""
