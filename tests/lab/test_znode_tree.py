"""The pure tree of the simulated ZooKeeper, and its messages, under any sequence of operations."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.lab.zookeeper.errors import SessionExpired, error_of
from ottla.lab.zookeeper.model import (
    CheckVersion,
    CloseSession,
    ConnectRequest,
    CreateNode,
    CreateSession,
    DeleteNode,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Ping,
    SetData,
    SetWatches,
    Stat,
    Txn,
    WatchEvent,
)
from ottla.lab.zookeeper.tree import ROOT, Applied, ZnodeTree, split
from ottla.lab.zookeeper.watches import WatchKind, WatchTable
from ottla.lab.zookeeper.wire import (
    decode_event,
    decode_request,
    decode_response,
    decode_txn,
    encode_error,
    encode_event,
    encode_request,
    encode_response,
    encode_txn,
)

everywhere = settings(deadline=None, derandomize=True, max_examples=100)

paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda n: "/" + "/".join(n))
versions = st.sampled_from([-1, -1, 0, 1])
changes: st.SearchStrategy[Any] = st.one_of(
    st.builds(CreateNode, paths, st.binary(max_size=3), st.booleans(), st.booleans()),
    st.builds(DeleteNode, paths, versions),
    st.builds(SetData, paths, st.binary(max_size=3), versions),
)
multis = st.builds(
    Multi,
    st.lists(st.one_of(changes, st.builds(CheckVersion, paths, versions)), max_size=4).map(tuple),
)
writes = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.one_of(changes, changes, multis, st.just(CreateSession(6000)), st.just(CloseSession())),
    ),
    max_size=40,
)
"""(session, operation). The first transactions make sessions 1 and 2."""
requests: st.SearchStrategy[Any] = st.one_of(
    changes,
    multis,
    st.builds(GetData, paths, st.booleans()),
    st.builds(Exists, paths, st.booleans()),
    st.builds(GetChildren, paths, st.booleans()),
    st.just(Ping()),
    st.just(CloseSession()),
    st.builds(ConnectRequest, st.integers(0, 2**40), st.integers(1, 60_000)),
    st.builds(SetWatches, st.integers(0, 2**40), *[st.lists(paths).map(tuple)] * 3),
)


def txns_of(operations: list[tuple[int, Any]]) -> list[Txn]:
    first = [(0, CreateSession(6000)), (0, CreateSession(6000))]
    return [Txn(number, *each) for number, each in enumerate([*first, *operations], 1)]


def state_of(tree: ZnodeTree) -> Any:
    """All of it but the zxid."""
    nodes = {
        path: (node.data, node.stat, frozenset(node.children), node.creates)
        for path, node in tree.nodes.items()
    }
    ephemerals = {session: set(owned) for session, owned in tree.ephemerals.items()}
    return nodes, dict(tree.sessions), ephemerals


def check(tree: ZnodeTree) -> None:
    for path, node in tree.nodes.items():
        if path != ROOT:
            above, name = split(path)
            assert name in tree.nodes[above].children
        for name in node.children:
            assert f"{path.rstrip('/')}/{name}" in tree.nodes
        if node.owner:
            assert not node.children, "an ephemeral znode has no children"
            assert path in tree.ephemerals[node.owner], "an ephemeral znode has a living session"
        assert node.czxid <= min(node.mzxid, node.pzxid) <= max(node.mzxid, node.pzxid) <= tree.zxid
    owned = {path for each in tree.ephemerals.values() for path in each}
    assert owned == {path for path, node in tree.nodes.items() if node.owner}
    assert tree.ephemerals.keys() == tree.sessions.keys()


@everywhere
@given(writes)
def test_P50_a_tree_stays_whole_and_a_failed_write_changes_nothing(
    operations: list[tuple[int, Any]],
) -> None:
    tree = ZnodeTree()
    for txn in txns_of(operations):
        before = deepcopy(state_of(tree))
        is_known = txn.session in tree.sessions or isinstance(txn.operation, CreateSession)
        applied = tree.apply(txn)
        check(tree)
        if applied.error is not None:
            assert state_of(tree) == before
            assert applied.changes == []
        assert isinstance(applied.error, SessionExpired) == (not is_known)


@everywhere
@given(writes)
def test_P50_what_changed_is_what_the_changes_say(operations: list[tuple[int, Any]]) -> None:
    tree = ZnodeTree()
    for txn in txns_of(operations):
        before = deepcopy(tree.nodes)
        applied = tree.apply(txn)
        said = {(each.type, each.path) for each in applied.changes}
        for path in before.keys() | tree.nodes.keys():
            old, new = before.get(path), tree.nodes.get(path)
            if old is None:
                assert (EventType.CREATED, path) in said
            elif new is None:
                assert (EventType.DELETED, path) in said
            elif old.czxid == new.czxid:
                assert (new.version > old.version) == ((EventType.DATA_CHANGED, path) in said)
                assert (new.pzxid > old.pzxid) == ((EventType.CHILDREN_CHANGED, path) in said)


@everywhere
@given(writes)
def test_P50_the_same_writes_in_the_same_order_make_the_same_tree(
    operations: list[tuple[int, Any]],
) -> None:
    """Also when they come from a log."""
    one, other = ZnodeTree(), ZnodeTree()
    answers: list[Applied] = [one.apply(txn) for txn in txns_of(operations)]
    again = [other.apply(decode_txn(encode_txn(txn))) for txn in txns_of(operations)]
    assert state_of(one) == state_of(other)
    assert [(each.result, each.changes) for each in answers] == [
        (each.result, each.changes) for each in again
    ]


@everywhere
@given(writes)
def test_P50_the_numbers_of_sequential_znodes_only_rise(operations: list[tuple[int, Any]]) -> None:
    tree = ZnodeTree()
    last: dict[tuple[int, str], int] = {}
    for txn in txns_of(operations):
        applied = tree.apply(txn)
        create = txn.operation
        if isinstance(create, CreateNode) and create.sequential and applied.error is None:
            assert isinstance(applied.result, str)
            above, name = split(applied.result)
            key, number = (tree.nodes[above].czxid, above), int(name[-10:])
            assert number > last.get(key, -1)
            last[key] = number


@everywhere
@given(st.lists(changes, max_size=8))
def test_P50_a_multi_is_its_operations_one_after_another_or_nothing(operations: list[Any]) -> None:
    one, other = ZnodeTree(), ZnodeTree()
    (first, *_) = txns_of([])
    one.apply(first)
    other.apply(first)
    answers = [other.apply(Txn(2 + n, 1, each)) for n, each in enumerate(operations)]
    together = one.apply(Txn(2, 1, Multi(tuple(operations))))
    failed = next((each.error for each in answers if each.error is not None), None)
    assert type(together.error) is type(failed)
    if failed is None:
        assert together.changes == [change for each in answers for change in each.changes]
        assert {path: node.data for path, node in one.nodes.items()} == {
            path: node.data for path, node in other.nodes.items()
        }
    else:
        assert one.nodes.keys() == {ROOT}


@everywhere
@given(
    writes,
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(WatchKind), paths), max_size=8),
)
def test_P50_every_watch_fires_at_the_first_change_of_what_it_watches(
    operations: list[tuple[int, Any]], watches: list[tuple[int, WatchKind, str]]
) -> None:
    tree, table = ZnodeTree(), WatchTable()
    for session, kind, path in watches:
        table.add(kind, path, session)
    waiting = set(watches)
    assert len(table) == len(waiting)
    for txn in txns_of(operations):
        for event in tree.apply(txn).changes:
            is_data = event.type is not EventType.CHILDREN_CHANGED
            is_child = event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED)
            hit = {
                (session, kind, path)
                for session, kind, path in waiting
                if path == event.path and (is_data if kind is WatchKind.DATA else is_child)
            }
            fired = list(table.fire(event))
            assert sorted(fired) == sorted({session for session, _, _ in hit}), "each once"
            waiting -= hit
    assert len(table) == len(waiting)
    for session in (1, 2, 3):
        table.drop(session)
    assert len(table) == 0


@everywhere
@given(writes, st.integers(2, 20), paths, st.sampled_from(WatchKind))
def test_P50_a_client_that_comes_back_is_told_exactly_if_it_missed_something(
    operations: list[tuple[int, Any]], left_at: int, path: str, kind: WatchKind
) -> None:
    """Of what it watched since `left_at`; only a znode that went and came again may be told as changed."""
    tree, table = ZnodeTree(), WatchTable()
    txns = txns_of(operations)
    for txn in txns[:left_at]:
        tree.apply(txn)
    is_there, seen = path in tree.nodes, tree.zxid
    if kind is WatchKind.CHILD and not is_there:
        return
    table.add(kind, path, 9)
    missed = [
        event
        for txn in txns[left_at:]
        for event in tree.apply(txn).changes
        if list(table.fire(event))
    ]
    lists: tuple[tuple[str, ...], ...]
    if kind is WatchKind.CHILD:
        lists = ((), (), (path,))
    else:
        lists = ((path,), (), ()) if is_there else ((), (path,), ())
    back = WatchTable()
    told = back.restore(tree, 9, SetWatches(seen, *lists))
    went_again = not is_there and path not in tree.nodes
    assert bool(told) == (bool(missed) and not went_again)
    assert len(back) == (0 if told else 1)


@everywhere
@given(st.integers(-(2**31), 2**31 - 1), requests)
def test_P50_a_request_survives_the_wire(xid: int, request: Any) -> None:
    assert decode_request(encode_request(xid, request)) == (xid, request)


stats = st.builds(Stat, *[st.integers(0, 2**31 - 1)] * 8)


@everywhere
@given(st.data())
def test_P50_a_response_survives_the_wire(data: st.DataObject) -> None:
    answers: dict[type[Any], st.SearchStrategy[Any]] = {
        CreateNode: paths,
        SetData: stats,
        GetData: st.tuples(st.binary(), stats),
        Exists: st.none() | stats,
        GetChildren: st.lists(st.text(max_size=5)),
        ConnectRequest: st.integers(0, 2**40),
        Multi: st.nothing(),
    }
    request = data.draw(requests)
    if isinstance(request, Multi):
        each = [answers.get(type(one), st.none()) for one in request.operations]
        result = [data.draw(one) for one in each]
    else:
        result = data.draw(answers.get(type(request), st.none()))
    response = decode_response(encode_response(5, 2**40, request, result))
    assert (response.xid, response.zxid, response.error) == (5, 2**40, None)
    assert response.result(request) == result


def test_P50_errors_and_events_survive_the_wire() -> None:
    for code in (-4, -101, -103, -108, -110, -111, -112):
        error = error_of(code, "/path")
        response = decode_response(encode_error(1, 2, error))
        assert type(response.error) is type(error) and str(response.error) == "/path"
    for kind in EventType:
        event = WatchEvent(kind, "/päth")
        assert decode_event(encode_event(event)) == event
    assert decode_event(encode_response(1, 2, Ping(), None)) is None
