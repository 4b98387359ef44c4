"""Which sessions watch which znodes, at the server. A watch fires once.

Data watches are set by get and exists, child watches by children. They belong to a connection: the client sets them again
when it connects again. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from ottla.lab.zookeeper.model import EventType, SetWatches, WatchEvent
from ottla.lab.zookeeper.tree import ZnodeTree


class WatchKind(Enum):
    DATA = "data"
    CHILD = "child"


FIRED_BY = {
    EventType.CREATED: (WatchKind.DATA,),
    EventType.DELETED: (WatchKind.DATA, WatchKind.CHILD),
    EventType.DATA_CHANGED: (WatchKind.DATA,),
    EventType.CHILDREN_CHANGED: (WatchKind.CHILD,),
}


class WatchTable:
    def __init__(self) -> None:
        self._watchers: dict[tuple[WatchKind, str], dict[int, None]] = {}
        """Sessions in the order in which they began to watch."""
        self._watched: dict[int, dict[tuple[WatchKind, str], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, kind: WatchKind, path: str, session: int) -> None:
        self._watchers.setdefault((kind, path), {})[session] = None
        self._watched.setdefault(session, {})[kind, path] = None

    def drop(self, session: int) -> None:
        """All watches of the session."""
        for key in self._watched.pop(session, {}):
            watchers = self._watchers[key]
            del watchers[session]
            if not watchers:
                del self._watchers[key]

    def fire(self, event: WatchEvent) -> Iterator[int]:
        """The sessions that get the event. One that watches both data and children of a deleted znode gets it once."""
        fired: dict[int, None] = {}
        for kind in FIRED_BY[event.type]:
            key = (kind, event.path)
            for session in self._watchers.pop(key, {}):
                watched = self._watched[session]
                del watched[key]
                if not watched:
                    del self._watched[session]
                fired[session] = None
        return iter(fired)

    def restore(self, tree: ZnodeTree, session: int, watches: SetWatches) -> list[WatchEvent]:
        """Set the watches of a client that connected again. Returns the events that it missed."""
        missed = []
        for path in watches.data:
            node = tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.DELETED, path))
            elif node.mzxid > watches.zxid:
                missed.append(WatchEvent(EventType.DATA_CHANGED, path))
            else:
                self.add(WatchKind.DATA, path, session)
        for path in watches.exist:
            if path in tree.nodes:
                missed.append(WatchEvent(EventType.CREATED, path))
            else:
                self.add(WatchKind.DATA, path, session)
        for path in watches.child:
            node = tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.DELETED, path))
            elif node.pzxid > watches.zxid:
                missed.append(WatchEvent(EventType.CHILDREN_CHANGED, path))
            else:
                self.add(WatchKind.CHILD, path, session)
        return missed
