"""What ZooKeeper promises its clients, as checks that run on the simulated server and on the real one.

A check gets a `ZooKeeperUnderTest` whose only znode of interest is an empty `/t`. Reads show whether an event was sent: a
server sends the events of a client before its answers to later reads, so what has not come by then never comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from ottla.lab.zookeeper.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from ottla.lab.zookeeper.model import (
    ANY_VERSION,
    ChangeOperation,
    CheckVersion,
    CreateNode,
    DeleteNode,
    EventType,
    Exists,
    GetChildren,
    GetData,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)

Watch = Callable[[WatchEvent], None]
Operation = CreateNode | DeleteNode | SetData | GetData | Exists | GetChildren


class ClientUnderTest(Protocol):
    states: list[SessionState]
    """Every change of its state since it connected."""

    @property
    def session(self) -> int: ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str: ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]: ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Sorted."""

    def multi(self, operations: Sequence[ChangeOperation]) -> list[Any]: ...

    def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        """Send all of them before the first answer. The answers: results, or errors."""

    def drop_connection(self) -> None: ...

    def cut_off(self) -> None:
        """The network between the client and the server carries nothing, and says nothing."""

    def heal(self) -> None: ...

    def close(self) -> None: ...


class ZooKeeperUnderTest(Protocol):
    session_timeout_s: float

    def client(self) -> ClientUnderTest: ...

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """For some session timeouts at most."""

    def wait(self, seconds: float) -> None: ...


def created(path: str) -> WatchEvent:
    return WatchEvent(EventType.CREATED, path)


def deleted(path: str) -> WatchEvent:
    return WatchEvent(EventType.DELETED, path)


def data_changed(path: str) -> WatchEvent:
    return WatchEvent(EventType.DATA_CHANGED, path)


def children_changed(path: str) -> WatchEvent:
    return WatchEvent(EventType.CHILDREN_CHANGED, path)


# Znodes and versions


def a_new_znode_has_its_data_and_version_0(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    assert client.create("/t/a", b"one") == "/t/a"
    data, stat = client.get("/t/a")
    assert data == b"one"
    assert stat.czxid == stat.mzxid == stat.pzxid
    assert stat[3:] == (0, 0, 0, 3, 0)
    assert client.exists("/t/a") == stat


def a_znode_needs_a_parent_and_a_name_of_its_own(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a", b"first")
    with pytest.raises(NodeExists):
        client.create("/t/a", b"second")
    with pytest.raises(NoNode):
        client.create("/t/b/c")
    assert client.get("/t/a")[0] == b"first"
    assert client.children("/t") == ["a"]


def what_is_not_there_cannot_be_read_or_changed(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    assert client.exists("/t/a") is None
    for operation in (client.get, client.children, client.delete):
        with pytest.raises(NoNode):
            operation("/t/a")
    with pytest.raises(NoNode):
        client.set("/t/a", b"")


def every_set_raises_the_version_and_returns_the_stat(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")
    first = client.exists("/t/a")
    assert first is not None
    one, two = client.set("/t/a", b"x"), client.set("/t/a", b"xyz")
    assert (one.version, two.version) == (1, 2)
    assert first.mzxid < one.mzxid < two.mzxid
    assert first.czxid == two.czxid and first.pzxid == two.pzxid
    assert client.get("/t/a") == (b"xyz", two)


def compare_and_set_refuses_another_version(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")
    client.set("/t/a", b"one", 0)
    for version in (0, 2):
        with pytest.raises(BadVersion):
            client.set("/t/a", b"two", version)
        with pytest.raises(BadVersion):
            client.delete("/t/a", version)
    assert client.get("/t/a")[0] == b"one"
    client.delete("/t/a", 1)
    assert client.exists("/t/a") is None


def of_two_clients_that_compare_and_set_one_succeeds(zookeeper: ZooKeeperUnderTest) -> None:
    one, other = zookeeper.client(), zookeeper.client()
    one.create("/t/a")
    assert one.get("/t/a")[1].version == other.get("/t/a")[1].version == 0
    one.set("/t/a", b"one", 0)
    with pytest.raises(BadVersion):
        other.set("/t/a", b"other", 0)


def a_new_znode_of_an_old_name_begins_again(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")
    before = client.set("/t/a", b"x")
    client.delete("/t/a")
    client.create("/t/a")
    _, stat = client.get("/t/a")
    assert stat.version == 0
    assert stat.czxid > before.mzxid


def a_znode_with_children_cannot_be_deleted(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")
    client.create("/t/a/b")
    with pytest.raises(NotEmpty):
        client.delete("/t/a")
    client.delete("/t/a/b")
    client.delete("/t/a")
    assert client.children("/t") == []


def cversion_counts_each_child_that_comes_or_goes(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")

    def stat() -> Stat:
        return client.get("/t/a")[1]

    empty = stat()
    client.create("/t/a/one")
    client.create("/t/a/two")
    both = stat()
    assert (both.cversion, both.num_children) == (2, 2)
    client.delete("/t/a/one")
    one = stat()
    assert (one.cversion, one.num_children) == (3, 1)
    assert empty.pzxid < both.pzxid < one.pzxid
    client.set("/t/a/two", b"x")
    client.create("/t/a/two/below")
    assert stat() == one, "only its own children count"
    assert (one.version, one.mzxid) == (0, empty.mzxid)


# Sequential znodes


def sequential_names_have_ten_digits_that_count_up(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    names = [each.create("/t/n-", sequential=True) for each in (client, other, client)]
    assert names == ["/t/n-0000000000", "/t/n-0000000001", "/t/n-0000000002"]
    assert client.create("/t/", sequential=True) == "/t/0000000003"


def sequential_numbers_count_all_children_ever_and_never_go_back(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client = zookeeper.client()
    client.create("/t/plain")
    assert client.create("/t/n-", sequential=True) == "/t/n-0000000001"
    client.delete("/t/n-0000000001")
    client.delete("/t/plain")
    assert client.create("/t/n-", sequential=True) == "/t/n-0000000002"
    assert client.create("/t/other-", sequential=True) == "/t/other-0000000003"
    with pytest.raises(NodeExists):
        client.create("/t/n-0000000002")
    assert client.create("/t/n-", sequential=True) == "/t/n-0000000004"


# Ephemeral znodes and sessions


def an_ephemeral_znode_belongs_to_a_session_and_has_no_children(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/e", ephemeral=True)
    stat = other.exists("/t/e")
    assert stat is not None and stat.ephemeral_owner == client.session != other.session
    for each in (client, other):
        with pytest.raises(NoChildrenForEphemerals):
            each.create("/t/e/below")
    other.set("/t/e", b"anybody may")
    other.delete("/t/e")
    assert client.exists("/t/e") is None


def closing_a_session_deletes_its_ephemeral_znodes_at_once(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/stays")
    client.create("/t/e", ephemeral=True)
    client.create("/t/e-", ephemeral=True, sequential=True)
    other.create("/t/mine", ephemeral=True)
    seen: list[WatchEvent] = []
    other.exists("/t/e", seen.append)
    other.children("/t", seen.append)
    client.close()
    assert other.children("/t") == ["mine", "stays"]
    assert sorted(seen, key=str) == [children_changed("/t"), deleted("/t/e")]


def an_idle_client_keeps_its_session(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/e", ephemeral=True)
    zookeeper.wait(3 * zookeeper.session_timeout_s)
    assert other.exists("/t/e") is not None
    assert client.states == []


def a_session_outlives_its_connection(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/e", ephemeral=True)
    session = client.session
    client.drop_connection()
    assert zookeeper.wait_until(lambda: len(client.states) >= 2)
    assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert client.session == session
    stat = other.exists("/t/e")
    assert stat is not None and stat.ephemeral_owner == session
    client.delete("/t/e")


def a_client_that_is_cut_off_loses_its_session_and_learns_it_when_it_is_back(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/e", ephemeral=True)
    seen: list[WatchEvent] = []
    other.exists("/t/e", seen.append)
    client.cut_off()
    assert zookeeper.wait_until(lambda: seen == [deleted("/t/e")])
    assert other.exists("/t/e") is None
    assert SessionState.EXPIRED not in client.states, "nobody could tell it"
    client.heal()
    assert zookeeper.wait_until(lambda: SessionState.EXPIRED in client.states)
    assert client.states[:2] == [SessionState.SUSPENDED, SessionState.EXPIRED]


# Multi


def a_multi_does_all_of_its_operations_in_order(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a")
    results = client.multi(
        [
            CreateNode("/t/b", b"parent"),
            CreateNode("/t/b/c-", b"child", ephemeral=True, sequential=True),
            SetData("/t/a", b"x", 0),
            CheckVersion("/t/a", 1),
            DeleteNode("/t/a", 1),
        ]
    )
    assert results[:2] == ["/t/b", "/t/b/c-0000000000"]
    assert results[2].version == 1
    assert client.children("/t") == ["b"]
    data, child = client.get("/t/b/c-0000000000")
    assert (data, child.ephemeral_owner) == (b"child", client.session)
    _, parent = client.get("/t/b")
    assert parent.czxid == parent.pzxid == child.czxid, "one transaction, one zxid"


def a_multi_with_one_failure_does_nothing(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    client.create("/t/a", b"before")
    before, stat = client.get("/t/a"), client.exists("/t")
    seen: list[WatchEvent] = []
    client.get("/t/a", seen.append)
    client.children("/t", seen.append)
    client.exists("/t/b", seen.append)
    changes: list[ChangeOperation] = [
        CreateNode("/t/b"),
        CreateNode("/t/n-", sequential=True),
        SetData("/t/a", b"after"),
    ]
    failures: list[tuple[ChangeOperation, type[Exception]]] = [
        (CheckVersion("/t/a", 7), BadVersion),
        (DeleteNode("/t/none"), NoNode),
        (DeleteNode("/t"), NotEmpty),
        (CreateNode("/t/b"), NodeExists),
    ]
    for failing, error in failures:
        with pytest.raises(error):
            client.multi([*changes, failing, DeleteNode("/t/a")])
        assert client.get("/t/a") == before
        assert client.exists("/t") == stat
        assert client.children("/t") == ["a"]
    assert seen == []
    assert client.create("/t/n-", sequential=True) == "/t/n-0000000001", "no number is used up"


# Watches


def a_watch_of_data_fires_once(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/a")
    seen: list[WatchEvent] = []
    client.get("/t/a", seen.append)
    client.create("/t/a/below")
    client.get("/t/a")
    assert seen == [], "children are not data"
    other.set("/t/a", b"one")
    other.set("/t/a", b"two")
    client.get("/t/a")
    assert seen == [data_changed("/t/a")]


def a_watch_of_existence_fires_when_the_znode_comes_changes_or_goes(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    seen: list[WatchEvent] = []
    assert client.exists("/t/a", seen.append) is None
    other.create("/t/a")
    assert client.exists("/t/a", seen.append) is not None
    other.set("/t/a", b"x")
    client.exists("/t/a", seen.append)
    other.delete("/t/a")
    other.create("/t/a")
    client.exists("/t/a")
    assert seen == [created("/t/a"), data_changed("/t/a"), deleted("/t/a")]


def a_watch_of_children_fires_when_one_comes_or_goes_and_not_for_data(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    seen: list[WatchEvent] = []
    client.children("/t", seen.append)
    other.set("/t", b"data")
    client.children("/t")
    assert seen == []
    other.create("/t/a")
    client.children("/t", seen.append)
    other.set("/t/a", b"data")
    other.create("/t/a/below")
    client.children("/t")
    assert seen == [children_changed("/t")]
    other.delete("/t/a/below")
    other.delete("/t/a")
    client.children("/t")
    assert seen == [children_changed("/t")] * 2


def a_deleted_znode_fires_the_watches_of_its_data_and_of_its_children(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/a")
    data: list[WatchEvent] = []
    children: list[WatchEvent] = []
    client.get("/t/a", data.append)
    client.children("/t/a", children.append)
    other.delete("/t/a")
    client.exists("/t/a")
    assert data == children == [deleted("/t/a")]


def a_read_that_fails_leaves_no_watch(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    seen: list[WatchEvent] = []
    with pytest.raises(NoNode):
        client.get("/t/a", seen.append)
    with pytest.raises(NoNode):
        client.children("/t/a", seen.append)
    other.create("/t/a")
    other.create("/t/a/below")
    client.get("/t/a")
    assert seen == []


def a_write_that_fails_fires_no_watch(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/a")
    seen: list[WatchEvent] = []
    client.get("/t/a", seen.append)
    client.children("/t", seen.append)
    for failing in (
        lambda: other.set("/t/a", b"x", 5),
        lambda: other.delete("/t/a", 5),
        lambda: other.create("/t/a"),
    ):
        with pytest.raises((BadVersion, NodeExists)):
            failing()
    client.get("/t/a")
    assert seen == []


def one_callback_that_watches_twice_is_called_once(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/a")
    seen: list[WatchEvent] = []
    watch = seen.append
    client.get("/t/a", watch)
    client.exists("/t/a", watch)
    other.set("/t/a", b"x")
    client.get("/t/a")
    assert seen == [data_changed("/t/a")]


def every_client_that_watches_gets_the_event(zookeeper: ZooKeeperUnderTest) -> None:
    clients = [zookeeper.client() for _ in range(4)]
    seen: list[list[WatchEvent]] = [[] for _ in clients]
    for client, events in zip(clients, seen, strict=True):
        client.exists("/t/a", events.append)
    clients[0].create("/t/a")
    for client in clients:
        client.exists("/t/a")
    assert seen == [[created("/t/a")]] * 4


def events_come_in_the_order_of_the_changes(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    names = [f"/t/{letter}" for letter in "dbeac"]
    seen: list[WatchEvent] = []
    for name in sorted(names):
        client.exists(name, seen.append)
    client.children("/t", seen.append)
    for name in names:
        other.create(name)
    client.exists("/t")
    assert seen == [
        created(names[0]),
        children_changed("/t"),
        *(created(name) for name in names[1:]),
    ]


def a_client_gets_the_event_before_it_sees_the_change(zookeeper: ZooKeeperUnderTest) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    client.create("/t/a", b"0")
    client.create("/t/b", b"0")
    for number in range(1, 20):
        new = str(number).encode()
        seen: list[WatchEvent] = []
        client.get("/t/a", seen.append)
        other.pipeline([SetData("/t/a", new), SetData("/t/b", new)])
        while client.get("/t/b")[0] != new:
            pass
        assert seen == [data_changed("/t/a")]


def a_client_that_comes_back_still_has_its_watches_and_gets_what_it_missed(
    zookeeper: ZooKeeperUnderTest,
) -> None:
    client, other = zookeeper.client(), zookeeper.client()
    for name in ("quiet", "changed", "gone", "parent"):
        client.create(f"/t/{name}")
    seen: list[WatchEvent] = []
    for name in ("quiet", "changed", "gone"):
        client.get(f"/t/{name}", seen.append)
    client.exists("/t/new", seen.append)
    client.exists("/t/never", seen.append)
    client.children("/t/parent", seen.append)
    client.children("/t/quiet", seen.append)
    client.cut_off()
    other.set("/t/changed", b"x")
    other.delete("/t/gone")
    other.create("/t/new")
    other.create("/t/parent/child")
    client.drop_connection()
    client.heal()
    assert zookeeper.wait_until(lambda: client.states[-1:] == [SessionState.CONNECTED])
    assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    client.exists("/t")
    missed = {
        data_changed("/t/changed"),
        deleted("/t/gone"),
        created("/t/new"),
        children_changed("/t/parent"),
    }
    assert set(seen) == missed and len(seen) == len(missed)
    other.create("/t/never")
    other.set("/t/quiet", b"x")
    other.create("/t/quiet/child")
    client.exists("/t")
    assert seen[len(missed) :] == [
        created("/t/never"),
        data_changed("/t/quiet"),
        children_changed("/t/quiet"),
    ]


# Order


def the_operations_of_a_client_are_done_in_its_order(zookeeper: ZooKeeperUnderTest) -> None:
    client = zookeeper.client()
    answers = client.pipeline(
        [
            Exists("/t/a"),
            CreateNode("/t/a", b"0"),
            GetData("/t/a"),
            SetData("/t/a", b"1"),
            GetData("/t/a"),
            CreateNode("/t/a"),
            CreateNode("/t/a/n-", sequential=True),
            GetChildren("/t/a"),
            DeleteNode("/t/a/n-0000000000"),
            DeleteNode("/t/a"),
            Exists("/t/a"),
        ]
    )
    absent, path, first, stat, second, again, child, names, _, _, gone = answers
    assert absent is None and gone is None
    assert (path, first[0], stat.version, second[0]) == ("/t/a", b"0", 1, b"1")
    assert isinstance(again, NodeExists)
    assert child == "/t/a/n-0000000000" and names == ["n-0000000000"]


def zxids_are_the_order_of_the_writes_of_all_clients(zookeeper: ZooKeeperUnderTest) -> None:
    clients = [zookeeper.client() for _ in range(3)]
    paths = [clients[number % 3].create("/t/n-", sequential=True) for number in range(9)]
    zxids = [clients[0].get(path)[1].czxid for path in paths]
    assert zxids == sorted(set(zxids))


SEMANTICS = [
    function
    for name, function in list(globals().items())
    if re.match("[a-z]", name)
    and getattr(function, "__module__", "") == __name__
    and "zookeeper" in getattr(function, "__annotations__", ())
]
"""Every check of this module."""
