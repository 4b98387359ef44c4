"""A node that leaves the quorum for good: whoever waits for it hears so, and what it had promised is not kept."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from quorum_world import QuorumNode, QuorumWorld

from ottla.broker.cluster.raft_driver import QuorumFailed, RaftDriver
from ottla.log.errors import FatalDirectory
from ottla.metadata import records as r
from ottla.raft.messages import RemoveVoter, VoterChangeAnswer
from ottla.raft.voters import ReplicaKey
from ottla.wire.errors import ErrorCode, KafkaError

METADATA = "/data/__cluster_metadata-0/"


def topic(name: str) -> r.MetadataRecord:
    return r.TopicRecord(name=name, topic_id=UUID(bytes=name.encode().rjust(16, b"\0")))


def begun(node: QuorumNode, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """It waits, and its failure is the test's to look at."""
    task = node.host.run(work)
    node.host.started.remove(task)
    node.cluster.world.run_for(0.05)
    return task


def call(node: QuorumNode, work: Callable[[RaftDriver], Any]) -> Any:
    async def called() -> Any:
        return work(node.running)

    return node.host.complete(called())


def error_of(node: QuorumNode, work: Callable[[RaftDriver], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(node, work)
    return refused.value.code


def fail_disk(cluster: QuorumWorld, node: QuorumNode) -> None:
    node.host.disk.fail("flush", METADATA, error=errno.EIO)
    call(node, lambda quorum: quorum.append([topic("unwritten")])[1].add_done_callback(_look))
    cluster.until(lambda: node.running.failed is not None)


def _look(done: asyncio.Future[int]) -> None:
    assert isinstance(done.exception(), KafkaError)


def test_whoever_waits_hears_that_the_node_has_failed() -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        waiting = [
            begun(node, node.running.wait_applied(node.running.image.offset + 100)),
            begun(node, node.running.until_failure()),
        ]
        fail_disk(cluster, node)
        cluster.until(lambda: all(task.done() for task in waiting))
        first, second = (task.exception() for task in waiting)
        assert isinstance(first, QuorumFailed) and "Input/output error" in str(first)
        assert second is node.running.failed and isinstance(second, FatalDirectory)
        late = begun(node, node.running.wait_applied(0))
        assert isinstance(late.exception(), QuorumFailed), "it takes no further part"
        again = begun(node, node.running.until_failure())
        assert again.exception() is node.running.failed


def test_whoever_waits_for_a_record_goes_on_once_it_is_in_the_image() -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        present = node.running.image.offset
        assert begun(node, node.running.wait_applied(present)).done()
        waiting = begun(node, node.running.wait_applied(present + 1))
        assert not waiting.done()
        offset = call(node, lambda quorum: quorum.append([topic("a")])[0])
        assert offset == present + 1
        cluster.until(waiting.done)
        assert waiting.exception() is None and "a" in node.running.image.topics


def test_a_node_that_stops_lets_nobody_wait() -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        waiting = begun(node, node.running.wait_applied(10_000))
        node.host.complete(node.running.stop())
        cluster.until(waiting.done)
        assert isinstance(waiting.exception(), QuorumFailed)
        assert error_of(node, lambda quorum: quorum.append([topic("a")])) is (
            ErrorCode.NOT_CONTROLLER
        )
        assert node.running.failed is None
        assert call(node, lambda quorum: quorum.step(lambda: 7)) is None


def test_a_contradiction_ends_the_node_and_is_told_once() -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        told: list[Exception] = []
        node.running.on_failure.append(told.append)

        def contradict() -> None:
            raise AssertionError("a mistake of ours")

        for _ in range(2):
            assert call(node, lambda quorum: quorum.step(contradict)) is None
        failed = node.running.failed
        assert isinstance(failed, QuorumFailed) and "a mistake of ours" in str(failed)
        assert isinstance(failed.__cause__, AssertionError)
        assert told == [failed] and node.leadership[-1][0] is False


def test_a_failure_in_the_midst_of_its_work_ends_the_node_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        cluster.world.run_for(1)

        def broken(_: RaftDriver) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(RaftDriver, "_handle_events", broken)
        call(node, lambda quorum: quorum.step(lambda: None))
        cluster.until(lambda: node.running.failed is not None)
        assert isinstance(node.running.failed, FatalDirectory)
        assert node.running.failed.directory == "/data"


def test_an_append_that_the_disk_refuses_ends_the_node() -> None:
    with QuorumWorld(1, 1) as cluster:
        node = cluster.elect()
        node.host.disk.fail("write", METADATA, error=errno.ENOSPC)
        assert error_of(node, lambda quorum: quorum.append([topic("a")])) is (
            ErrorCode.KAFKA_STORAGE_ERROR
        )
        failed = node.running.failed
        assert isinstance(failed, FatalDirectory) and "free some space" in str(failed)


def remove(node: int) -> RemoveVoter:
    return RemoveVoter(ReplicaKey(node, UUID(int=500 + node)))


def change(node: QuorumNode, asked: Any) -> asyncio.Task[VoterChangeAnswer]:
    return begun(node, node.running.change_voters(asked))


def test_a_change_of_voters_is_answered_when_it_is_decided() -> None:
    with QuorumWorld(2) as cluster:
        leader = cluster.elect()
        cluster.world.run_for(1)
        first, second = (number for number in cluster.nodes if number != leader.node)
        done = change(leader, remove(first))
        cluster.until(done.done)
        assert done.result().error is ErrorCode.NONE
        left = [voter.key.id for voter in leader.running.voters.voters]
        assert left == sorted([leader.node, second])


def test_a_change_of_voters_is_refused_once_it_can_be_decided_no_more() -> None:
    with QuorumWorld(2) as cluster:
        leader = cluster.elect()
        cluster.world.run_for(1)
        first, second = (cluster.nodes[n] for n in cluster.nodes if n != leader.node)
        second.kill()
        undecided = change(leader, remove(first.node))
        assert not undecided.done(), "of those that stay, one does not answer"
        fail_disk(cluster, leader)
        cluster.until(undecided.done)
        assert undecided.result().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert change(leader, remove(first.node)).result() == VoterChangeAnswer(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {leader.node} is not in the quorum"
        )


def test_static_voters_are_upgraded_by_their_leader_once() -> None:
    with QuorumWorld(3, is_dynamic=False) as cluster:
        leader = cluster.elect()
        cluster.world.run_for(2)
        with pytest.raises(KafkaError):
            call(leader, lambda quorum: quorum.check_kraft_version(2))
        call(leader, lambda quorum: quorum.check_kraft_version(1))
        assert leader.running.kraft_version == 0
        done = call(leader, lambda quorum: quorum.upgrade_kraft_version(1))
        cluster.until(done.done)
        offset = done.result()
        assert leader.running.kraft_version == 1 and leader.running.image.offset >= offset
        cluster.until(lambda: all(n.running.kraft_version == 1 for n in cluster.nodes.values()))
