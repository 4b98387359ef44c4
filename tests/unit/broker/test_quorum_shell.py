"""The quorum shell on simulated hosts: Kafka's frames, connections that close, fsync in threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any
from uuid import UUID

import pytest
from quorum_world import CLUSTER, PORT, QuorumNode, QuorumWorld

from ottla.metadata import records as r
from ottla.wire import fetch as fetch_codec
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC as TOPIC
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC_ID as TOPIC_ID


def topic(name: str) -> r.MetadataRecord:
    return r.TopicRecord(name=name, topic_id=UUID(bytes=name.encode().rjust(16, b"\0")))


def append(node: QuorumNode, *records: r.MetadataRecord) -> int:
    """Append on a node and wait for the commit."""

    async def work() -> int:
        first, done = node.running.append(records)
        assert await done == first
        return first

    return node.host.complete(work())


async def try_append(node: QuorumNode, record: r.MetadataRecord) -> None:
    """It may be lost with its leader."""
    with contextlib.suppress(KafkaError):
        await node.running.append([record])[1]


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_P34_a_decision_is_committed_then_seen_by_every_node_in_the_same_image(
    is_dynamic: bool,
) -> None:
    with QuorumWorld(1, 3, 2, is_dynamic=is_dynamic) as cluster:
        leader = cluster.elect()
        assert leader.leadership == [(True, leader.running.epoch)]
        offset = append(leader, topic("demo"))
        assert offset == (3 if is_dynamic else 1)
        cluster.until(lambda: cluster.all_at(offset), 1)
        digests = {node.running.image.digest() for node in cluster.nodes.values()}
        assert len(digests) == 1
        assert {n.running.leader_id for n in cluster.nodes.values()} == {leader.node}
        endpoints = {n.running.leader_endpoint() for n in cluster.nodes.values()}
        assert endpoints == {(leader.node, leader.host.address, PORT)}
        assert leader.running.kraft_version == (1 if is_dynamic else 0)


@pytest.mark.parametrize("seed", range(5))
def test_P35_when_the_controller_is_killed_another_takes_over_with_every_decision(
    seed: int,
) -> None:
    with QuorumWorld(seed) as cluster:
        old = cluster.elect()
        append(old, topic("before"))
        began = cluster.world.loop.time()
        old.kill()
        new = cluster.elect()
        assert cluster.world.loop.time() - began < 0.2
        assert "before" in new.running.image.topics
        offset = append(new, topic("after"))
        old.start()
        cluster.until(lambda: old.quorum is not None and cluster.all_at(offset), 5)
        assert old.running.image.digest() == new.running.image.digest()
        assert cluster.world.problems() == []


def test_a_controller_that_stops_says_farewell_and_hands_over() -> None:
    with QuorumWorld(3) as cluster:
        old = cluster.elect()
        append(old, topic("demo"))
        cluster.world.run_for(1)
        began = cluster.world.loop.time()
        old.host.complete(old.running.stop())
        assert old.leadership[-1][0] is False
        old.kill()
        cluster.elect()
        assert cluster.world.loop.time() - began < 0.3


def test_what_is_appended_in_one_turn_is_flushed_once_and_committed_in_order() -> None:
    with QuorumWorld(1, 1) as cluster:
        leader = cluster.elect()
        flushes = []

        async def work() -> list[int]:
            journal = leader.running._journal
            plan_of = journal.flush_plan

            def counted() -> Any:
                flushes.append(journal.log_end)
                return plan_of()

            journal.flush_plan = counted
            appended = [leader.running.append([topic(f"t{i}")]) for i in range(20)]
            return [await done for _, done in appended]

        offsets = leader.host.complete(work())
        assert offsets == list(range(offsets[0], offsets[0] + 20))
        assert len(flushes) == 1


def test_an_append_fails_when_leadership_is_lost_before_the_commit() -> None:
    with QuorumWorld(2) as cluster:
        leader = cluster.elect()
        cluster.world.network.isolate(leader.host.name)

        async def work() -> ErrorCode:
            _, done = leader.running.append([topic("lost")])
            with pytest.raises(KafkaError) as lost:
                await done
            return lost.value.code

        assert leader.host.complete(work()) is ErrorCode.NOT_CONTROLLER
        assert leader.leadership[-1][0] is False
        cluster.until(lambda: cluster.active() not in (None, leader))
        cluster.world.network.heal()
        offset = append(cluster.elect(), topic("kept"))
        cluster.until(lambda: cluster.all_at(offset))
        assert all("lost" not in n.running.image.topics for n in cluster.nodes.values())


def test_who_does_not_lead_cannot_append() -> None:
    with QuorumWorld(2) as cluster:
        leader = cluster.elect()
        other = next(n for n in cluster.nodes.values() if n is not leader)
        with pytest.raises(KafkaError) as refused:
            other.running.append([topic("x")])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_a_node_whose_metadata_directory_fails_leaves_the_quorum_and_says_so() -> None:
    with QuorumWorld(4) as cluster:
        old = cluster.elect()
        told: list[Exception] = []
        old.running.on_failure.append(told.append)
        old.host.disk.fail("flush", "/data/__cluster_metadata-0/", error=errno.EIO)

        async def work() -> ErrorCode:
            _, done = old.running.append([topic("unwritten")])
            with pytest.raises(KafkaError) as lost:
                await done
            return lost.value.code

        assert old.host.complete(work()) is ErrorCode.KAFKA_STORAGE_ERROR
        assert told == [old.running.failed] and old.leadership[-1][0] is False
        cluster.until(lambda: cluster.active() not in (None, old))
        append(cluster.elect(), topic("elsewhere"))


def test_checkpoints_are_written_the_log_is_trimmed_and_late_nodes_start_from_them() -> None:
    options = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "4000",
    }
    with QuorumWorld(5, 3, 1, options=options) as cluster:
        leader = cluster.elect()
        late = cluster.nodes[4]
        late.kill()
        for i in range(100):
            append(leader, topic(f"topic{i}"))
        cluster.world.run_for(2)
        journal = leader.running._journal
        assert journal.snapshots.latest is not None and journal.snapshots.latest.end_offset > 50
        assert journal.log_start > 0
        late.start()
        end = leader.running.image.offset
        cluster.until(lambda: late.quorum is not None and late.running.image.offset >= end, 5)
        assert late.running._journal.log_start > 0, "it began from a checkpoint"
        assert late.running.image.digest() == leader.running.image.digest()
        leader.kill(power_loss=True)
        leader.start()
        cluster.until(lambda: leader.quorum is not None and leader.running.image.offset >= end, 20)
        assert len(leader.running.image.topics) == 100
        assert cluster.world.problems() == []


def test_every_node_hears_what_a_checkpoint_changed() -> None:
    options = {"metadata.log.max.record.bytes.between.snapshots": "500"}
    with QuorumWorld(6, 3, 1, options=options) as cluster:
        leader = cluster.elect()
        observer = cluster.nodes[4]
        append(leader, topic("old"))
        cluster.until(lambda: "old" in observer.running.image.topics)
        names: list[str] = []

        def heard(image: Any, delta: Any) -> None:
            names.extend(image.topics_by_id[i].name for i in delta.created_topics)
            names.extend(f"no {t.name}" for t in delta.deleted_topics)

        observer.running.on_image.append(heard)
        cluster.world.network.isolate(observer.host.name)
        old = leader.running.image.topics["old"].id
        append(leader, r.RemoveTopicRecord(topic_id=old), topic("new"))
        for _ in range(20):
            append(leader, r.NoOpRecord())
        cluster.world.run_for(1)
        leader.running._journal.clean(0, -1, 0)
        cluster.world.network.heal()
        cluster.until(lambda: "new" in observer.running.image.topics)
        assert names == ["new", "no old"]


# On the wire


def ask(node: QuorumNode, key: ApiKey, fields: dict[str, Any], version: int | None = None) -> Any:
    """One request from outside the cluster."""
    client = node.cluster.world.node("client")

    async def work() -> Any:
        channel = await Channel.open(client.runtime.network, node.host.address, PORT, "test")
        await channel.negotiate()
        return await channel.request(key, fields, version=version, timeout_s=5)

    return client.complete(work())


def fetch(node: QuorumNode, version: int = 18, **changes: Any) -> FetchResponse:
    client = node.cluster.world.node("client")
    partition = {
        "topic": TOPIC,
        "topic_id": TOPIC_ID,
        "partition": 0,
        "current_leader_epoch": node.running.epoch,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "log_start_offset": -1,
        "max_bytes": 0,
    }
    outer: dict[str, Any] = {"replica_id": 77, "max_bytes": 1 << 20, "cluster_id": CLUSTER}
    for name, value in changes.items():
        (partition if name in partition else outer)[name] = value
    body = fetch_codec.write_request(
        version, FetchRequest(partitions=[FetchPartition(**partition)], **outer)
    )

    async def work() -> FetchResponse:
        channel = await Channel.open(client.runtime.network, node.host.address, PORT, "test")
        done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

        def on_response(frame: memoryview, offset: int) -> None:
            kept = memoryview(bytearray(frame))
            done.set_result(fetch_codec.read_response(version, kept, offset))

        channel.call(ApiKey.FETCH, version, body, on_response)
        return await done

    return client.complete(work())


def test_fetches_are_answered_as_a_kafka_controller_answers_them() -> None:
    with QuorumWorld(7) as cluster:
        leader = cluster.elect()
        append(leader, topic("demo"))
        cluster.world.run_for(0.5)

        def error(**changes: Any) -> tuple[int, int]:
            answer = fetch(leader, **changes)
            return answer.error, answer.partitions[0].error if answer.partitions else 0

        assert error(cluster_id="another") == (ErrorCode.INCONSISTENT_CLUSTER_ID, 0)
        assert error(cluster_id=None) == (0, 0)
        assert error(version=12) == (ErrorCode.INVALID_REQUEST, 0)
        assert error(topic_id=UUID(int=5)) == (ErrorCode.INVALID_REQUEST, 0)
        assert error(current_leader_epoch=0) == (0, ErrorCode.FENCED_LEADER_EPOCH)
        assert error(current_leader_epoch=9) == (0, ErrorCode.UNKNOWN_LEADER_EPOCH)
        assert error(current_leader_epoch=-1) == (0, ErrorCode.INVALID_REQUEST)
        for version in range(13, 19):
            served = fetch(leader, version=version).partitions[0]
            assert served.records and served.high_watermark == leader.running.next_offset
        told = fetch(leader, current_leader_epoch=0)
        assert told.partitions[0].current_leader == (leader.node, leader.running.epoch)
        assert [node[:3] for node in told.node_endpoints] == [
            (leader.node, leader.host.address, PORT)
        ]
        diverging = fetch(leader, fetch_offset=99, last_fetched_epoch=leader.running.epoch)
        assert diverging.partitions[0].diverging == (
            leader.running.epoch,
            leader.running.next_offset,
        )


def test_a_metadata_fetch_waits_for_news_and_no_longer_than_it_said() -> None:
    with QuorumWorld(8) as cluster:
        leader = cluster.elect()
        cluster.world.run_for(1)
        end = leader.running.next_offset
        began = cluster.world.loop.time()
        waited = {
            "fetch_offset": end,
            "last_fetched_epoch": leader.running.epoch,
            "max_wait_ms": 500,
        }
        assert fetch(leader, **waited).partitions[0].error == 0
        assert 0.5 <= cluster.world.loop.time() - began < 0.6


def test_votes_of_another_cluster_or_topic_are_refused_as_a_whole() -> None:
    with QuorumWorld(9) as cluster:
        leader = cluster.elect()
        partition = {
            "partition_index": 0,
            "replica_epoch": 50,
            "replica_id": 2,
            "last_offset_epoch": 1,
            "last_offset": 1,
        }
        topics = [{"topic_name": TOPIC, "partitions": [partition]}]
        answer = ask(leader, ApiKey.VOTE, {"cluster_id": "another", "topics": topics})
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        elsewhere = [{"topic_name": "demo", "partitions": [partition]}]
        answer = ask(leader, ApiKey.VOTE, {"cluster_id": CLUSTER, "topics": elsewhere})
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        answer = ask(leader, ApiKey.VOTE, {"cluster_id": CLUSTER, "topics": topics})
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
        assert leader.running.is_leader


def test_a_node_whose_requests_are_refused_says_so_once_and_knows_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = QuorumWorld(9, observers=1)
    stranger = cluster.nodes[4]
    stranger.cluster_id = "another"
    with cluster:
        cluster.elect()
        cluster.until(lambda: stranger.running.refusal is not None)
        cluster.world.run_for(30)
        lines = [each for each in caplog.messages if each.startswith("quorum request refused")]
        assert len(lines) <= 3, "one for each voter"
        why = stranger.running.refusal
        assert why is not None and f"with error {ErrorCode.INCONSISTENT_CLUSTER_ID:d}" in why
        assert all(cluster.nodes[node].running.refusal is None for node in cluster.voter_ids)


def test_the_quorum_describes_itself() -> None:
    with QuorumWorld(10, 3, 1) as cluster:
        leader = cluster.elect()
        cluster.world.run_for(2)
        asked = {"topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0}]}]}
        for version in (0, 1, 2):
            answer = ask(leader, ApiKey.DESCRIBE_QUORUM, asked, version)
            partition = answer.topics[0].partitions[0]
            assert partition.leader_id == leader.node and partition.error_code == 0
            assert [v.replica_id for v in partition.current_voters] == [1, 2, 3]
            assert {v.log_end_offset for v in partition.current_voters} == {
                leader.running.next_offset
            }
            assert [o.replica_id for o in partition.observers] == [4]
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        other = next(n for n in cluster.nodes.values() if n is not leader)
        partition = ask(other, ApiKey.DESCRIBE_QUORUM, asked).topics[0].partitions[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("seed", range(20, 28))
def test_M6_the_same_offset_has_the_same_image_everywhere_through_crashes(seed: int) -> None:
    options = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with QuorumWorld(seed, 3, 1, options=options) as cluster:
        digests: dict[int, str] = {}

        def remember(image: Any, delta: Any) -> None:
            digest = image.digest()
            assert digests.setdefault(image.offset, digest) == digest

        chance = cluster.world.loop.random_for("this test")
        for step in range(12):
            node = chance.choice(list(cluster.nodes.values()))
            if not node.host.running:
                node.start()
            elif sum(n.host.running for n in cluster.nodes.values()) > 2:
                node.kill(power_loss=chance.random() < 0.5)
            cluster.world.run_for(chance.choice([0.05, 0.5, 3]))
            for each in cluster.nodes.values():
                if each.quorum is not None and remember not in each.running.on_image:
                    each.running.on_image.append(remember)
            active = cluster.active()
            if active is not None:
                active.host.run(try_append(active, topic(f"topic{step}")))
        for node in cluster.nodes.values():
            if not node.host.running:
                node.start()
        cluster.world.run_for(5)  # a leader without followers may have been about to resign
        offset = append(cluster.elect(), topic("last"))
        cluster.until(
            lambda: (
                all(n.quorum is not None for n in cluster.nodes.values()) and cluster.all_at(offset)
            ),
            30,
        )
        assert len({n.running.image.digest() for n in cluster.nodes.values()}) == 1
        assert cluster.world.problems() == []
