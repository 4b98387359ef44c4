"""The znodes and sessions of a ZooKeeper: a state that is a function of the writes in their order.

No I/O and no clock. The leader applies each write when it is committed, and applies all of them again when it starts.
Every write gets a zxid, also one that fails, as in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ottla.lab.zookeeper.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZooKeeperError,
)
from ottla.lab.zookeeper.model import (
    ANY_VERSION,
    NO_SESSION,
    ChangeOperation,
    CheckVersion,
    CloseSession,
    CreateNode,
    CreateSession,
    DeleteNode,
    EventType,
    Multi,
    OperationResult,
    SetData,
    Stat,
    Txn,
    WatchEvent,
)

ROOT = "/"


class Znode:
    __slots__ = ("children", "creates", "czxid", "data", "mzxid", "owner", "pzxid", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.version = 0
        self.owner = owner
        self.children: set[str] = set()
        self.creates = 0
        """Children that were ever created. The next sequential child gets this number."""

    @property
    def stat(self) -> Stat:
        # Each child was created, and each that is gone was deleted.
        changes = 2 * self.creates - len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.version,
            changes,
            self.owner,
            len(self.data),
            len(self.children),
        )


WriteResult: TypeAlias = OperationResult | list[OperationResult] | int
"""Of a multi: one for each operation. Of a new session: its id."""


class Applied(NamedTuple):
    result: WriteResult
    error: ZooKeeperError | None
    changes: list[WatchEvent]
    """What happened to which znode, in order. Those who watch it get the event."""


class ZnodeTree:
    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {ROOT: Znode(b"", 0, NO_SESSION)}
        self.sessions: dict[int, int] = {}
        """Session → timeout in milliseconds."""
        self.ephemerals: dict[int, dict[str, None]] = {}
        """Session → its znodes, in the order of their creation."""
        self.zxid = 0
        """The last one that was applied."""

    # Reads

    def node(self, path: str) -> Znode:
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(path)
        return found

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self.node(path)
        return node.data, node.stat

    def exists(self, path: str) -> Stat | None:
        node = self.nodes.get(path)
        return node.stat if node is not None else None

    def children(self, path: str) -> list[str]:
        return sorted(self.node(path).children)

    # Writes

    def apply(self, txn: Txn) -> Applied:
        assert txn.zxid == self.zxid + 1, f"{txn} after {self.zxid}"
        self.zxid = txn.zxid
        changes: list[WatchEvent] = []
        undo: list[Callable[[], None]] = []
        try:
            return Applied(self._result(txn, changes, undo), None, changes)
        except ZooKeeperError as error:
            for each in reversed(undo):
                each()
            return Applied(None, error, [])

    def _result(
        self, txn: Txn, changes: list[WatchEvent], undo: list[Callable[[], None]]
    ) -> WriteResult:
        operation = txn.operation
        if isinstance(operation, CreateSession):
            self.sessions[txn.zxid] = operation.timeout_ms
            self.ephemerals[txn.zxid] = {}
            return txn.zxid
        if txn.session not in self.sessions:
            raise SessionExpired(f"session {txn.session:#x}")
        if isinstance(operation, CloseSession):
            for path in list(self.ephemerals[txn.session]):
                self._delete(DeleteNode(path), txn.zxid, changes, undo)
            del self.sessions[txn.session], self.ephemerals[txn.session]
            return None
        if isinstance(operation, Multi):
            return [
                self._change(each, txn.session, txn.zxid, changes, undo)
                for each in operation.operations
            ]
        return self._change(operation, txn.session, txn.zxid, changes, undo)

    def _change(
        self,
        operation: ChangeOperation,
        session: int,
        zxid: int,
        changes: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> OperationResult:
        match operation:
            case CreateNode():
                return self._create(operation, session, zxid, changes, undo)
            case DeleteNode():
                self._delete(operation, zxid, changes, undo)
                return None
            case SetData():
                return self._set(operation, zxid, changes, undo)
            case CheckVersion(path, version):
                _check_version(path, self.node(path), version)
                return None

    def _create(
        self,
        create: CreateNode,
        session: int,
        zxid: int,
        changes: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> str:
        above, _, name = create.path.rpartition("/")
        above = above or ROOT
        parent = self.node(above)
        if parent.owner != NO_SESSION:
            raise NoChildrenForEphemerals(above)
        if create.sequential:
            name += f"{parent.creates:010d}"
        path = f"{above.rstrip('/')}/{name}"
        if path in self.nodes:
            raise NodeExists(path)
        before_pzxid = parent.pzxid
        self.nodes[path] = Znode(create.data, zxid, session if create.ephemeral else NO_SESSION)
        parent.children.add(name)
        parent.creates += 1
        parent.pzxid = zxid
        if create.ephemeral:
            self.ephemerals[session][path] = None
        changes += [
            WatchEvent(EventType.CREATED, path),
            WatchEvent(EventType.CHILDREN_CHANGED, above),
        ]

        def undone() -> None:
            del self.nodes[path]
            parent.children.remove(name)
            parent.creates -= 1
            parent.pzxid = before_pzxid
            if create.ephemeral:
                del self.ephemerals[session][path]

        undo.append(undone)
        return path

    def _delete(
        self,
        delete: DeleteNode,
        zxid: int,
        changes: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> None:
        path = delete.path
        node = self.node(path)
        _check_version(path, node, delete.version)
        if node.children:
            raise NotEmpty(path)
        above, _, name = path.rpartition("/")
        above = above or ROOT
        parent = self.nodes[above]
        before_pzxid = parent.pzxid
        del self.nodes[path]
        parent.children.remove(name)
        parent.pzxid = zxid
        if node.owner != NO_SESSION:
            del self.ephemerals[node.owner][path]
        changes += [
            WatchEvent(EventType.DELETED, path),
            WatchEvent(EventType.CHILDREN_CHANGED, above),
        ]

        def undone() -> None:
            self.nodes[path] = node
            parent.children.add(name)
            parent.pzxid = before_pzxid
            if node.owner != NO_SESSION:
                self.ephemerals[node.owner][path] = None

        undo.append(undone)

    def _set(
        self,
        change: SetData,
        zxid: int,
        changes: list[WatchEvent],
        undo: list[Callable[[], None]],
    ) -> Stat:
        node = self.node(change.path)
        _check_version(change.path, node, change.version)
        before = node.data, node.version, node.mzxid
        node.data, node.version, node.mzxid = change.data, node.version + 1, zxid
        changes.append(WatchEvent(EventType.DATA_CHANGED, change.path))

        def undone() -> None:
            node.data, node.version, node.mzxid = before

        undo.append(undone)
        return node.stat


def _check_version(path: str, node: Znode, version: int) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(f"{path} has version {node.version}, not {version}")
