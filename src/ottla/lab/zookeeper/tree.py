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
        writing = _Writing(self, txn)
        try:
            return Applied(writing.result(), None, writing.changes)
        except ZooKeeperError as error:
            writing.undo()
            return Applied(None, error, [])


class _Writing:
    """One transaction while it is applied: what it changed, and how to undo that."""

    def __init__(self, tree: ZnodeTree, txn: Txn) -> None:
        self._tree = tree
        self._txn = txn
        self.changes: list[WatchEvent] = []
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        for each in reversed(self._undo):
            each()

    def result(self) -> WriteResult:
        tree, session, operation = self._tree, self._txn.session, self._txn.operation
        if isinstance(operation, CreateSession):
            tree.sessions[self._txn.zxid] = operation.timeout_ms
            tree.ephemerals[self._txn.zxid] = {}
            return self._txn.zxid
        if session not in tree.sessions:
            raise SessionExpired(f"session {session:#x}")
        if isinstance(operation, CloseSession):
            for path in list(tree.ephemerals[session]):
                self._delete(DeleteNode(path))
            del tree.sessions[session], tree.ephemerals[session]
            return None
        if isinstance(operation, Multi):
            return [self._change(each) for each in operation.operations]
        return self._change(operation)

    def _change(self, operation: ChangeOperation) -> OperationResult:
        match operation:
            case CreateNode():
                return self._create(operation)
            case DeleteNode():
                self._delete(operation)
                return None
            case SetData():
                return self._set(operation)
            case CheckVersion(path, version):
                _check_version(path, self._tree.node(path), version)
                return None

    def _create(self, create: CreateNode) -> str:
        tree, zxid, session = self._tree, self._txn.zxid, self._txn.session
        above, name = split(create.path)
        parent = tree.node(above)
        if parent.owner != NO_SESSION:
            raise NoChildrenForEphemerals(above)
        if create.sequential:
            name += f"{parent.creates:010d}"
        path = f"{above.rstrip('/')}/{name}"
        if path in tree.nodes:
            raise NodeExists(path)
        before_pzxid = parent.pzxid
        tree.nodes[path] = Znode(create.data, zxid, session if create.ephemeral else NO_SESSION)
        parent.children.add(name)
        parent.creates += 1
        parent.pzxid = zxid
        if create.ephemeral:
            tree.ephemerals[session][path] = None

        def undone() -> None:
            del tree.nodes[path]
            parent.children.remove(name)
            parent.creates -= 1
            parent.pzxid = before_pzxid
            if create.ephemeral:
                del tree.ephemerals[session][path]

        self._undo.append(undone)
        self._changed(EventType.CREATED, path)
        self._changed(EventType.CHILDREN_CHANGED, above)
        return path

    def _delete(self, delete: DeleteNode) -> None:
        tree, path = self._tree, delete.path
        assert path != ROOT
        node = tree.node(path)
        _check_version(path, node, delete.version)
        if node.children:
            raise NotEmpty(path)
        above, name = split(path)
        parent = tree.nodes[above]
        before_pzxid = parent.pzxid
        del tree.nodes[path]
        parent.children.remove(name)
        parent.pzxid = self._txn.zxid
        if node.owner != NO_SESSION:
            del tree.ephemerals[node.owner][path]

        def undone() -> None:
            tree.nodes[path] = node
            parent.children.add(name)
            parent.pzxid = before_pzxid
            if node.owner != NO_SESSION:
                tree.ephemerals[node.owner][path] = None

        self._undo.append(undone)
        self._changed(EventType.DELETED, path)
        self._changed(EventType.CHILDREN_CHANGED, above)

    def _set(self, change: SetData) -> Stat:
        node = self._tree.node(change.path)
        _check_version(change.path, node, change.version)
        before = node.data, node.version, node.mzxid
        node.data, node.version, node.mzxid = change.data, node.version + 1, self._txn.zxid

        def undone() -> None:
            node.data, node.version, node.mzxid = before

        self._undo.append(undone)
        self._changed(EventType.DATA_CHANGED, change.path)
        return node.stat

    def _changed(self, type: EventType, path: str) -> None:
        self.changes.append(WatchEvent(type, path))


def split(path: str) -> tuple[str, str]:
    """The path of the parent, and the name."""
    above, _, name = path.rpartition("/")
    return above or ROOT, name


def _check_version(path: str, node: Znode, version: int) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(f"{path} has version {node.version}, not {version}")
