"""A simulated cluster whose nodes have two disks for logs, and a client that notes what was acknowledged."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from ottla.client.client import Client
from ottla.client.producer import Producer
from ottla.config import Settings
from ottla.metadata.image import PartitionImage
from ottla.raft.format import format_directory
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.records.record import Record
from ottla.sim.cluster.nodes import CLUSTER_ID, CONTROLLER_PORT, SimCluster, SimNode
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

T = TypeVar("T")

FIRST, SECOND = "/a", "/b"
METADATA = "/metadata"
TOPIC = "t"
SETTINGS = {
    "log.dirs": f"{FIRST},{SECOND}",
    "metadata.log.dir": METADATA,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.scheduler.interval.ms": "500",
    "min.insync.replicas": "1",
}


class DiskCluster:
    def __init__(
        self, world: World, nodes: int = 3, *, dynamic: bool = False, **settings: str
    ) -> None:
        """`dynamic`: the voters are in the metadata (kraft.version 1), not in the settings. Settings are
        given with `_` for `.`."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.world = world
        self.cluster = SimCluster(world, nodes, {**SETTINGS, **given})
        self.failures: dict[int, BaseException | None] = {}
        """Processes that left by themselves, and with what."""
        self.cluster.on_end.append(lambda node, failure: self.failures.update({node.id: failure}))
        self.host = world.node("client")
        self.client = Client(self.host.runtime.network, self.cluster.bootstrap, timeout_s=4)
        self.producer = Producer(self.client)
        self.acknowledged: dict[int, list[bytes]] = {}
        if dynamic:
            self._format_dynamic()
        self.cluster.start()
        assert self.cluster.wait_ready(30)

    def _format_dynamic(self) -> None:
        """As an operator does, once, before the first start."""
        nodes = self.cluster.nodes.values()
        voters = VoterSet.of(
            Voter(
                node.id,
                UUID(int=1000 + node.id),
                (QuorumEndpoint("CONTROLLER", node.host.name, CONTROLLER_PORT),),
            )
            for node in nodes
        )
        servers = ",".join(f"{node.host.name}:{CONTROLLER_PORT}" for node in nodes)
        for node in nodes:
            given = {**node.settings.given}
            del given["controller.quorum.voters"]
            given["controller.quorum.bootstrap.servers"] = servers
            node.settings = Settings.of(given)
            format_directory(
                node.host.disk,
                METADATA,
                cluster_id=CLUSTER_ID,
                node_id=node.id,
                directory_id=UUID(int=1000 + node.id),
                voters=voters,
            )

    # -- doing

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.host.complete(work, 120)
        except TimeoutError as error:
            error.add_note(self.describe())
            raise

    def create(self, *assignment: Sequence[int], wait: bool = True, **configs: str) -> None:
        """The topic's partitions on these brokers, leader first. On each broker they go to the two disks
        in turn."""
        given = {name.replace("_", "."): value for name, value in configs.items()}
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": number, "broker_ids": list(brokers)}
                for number, brokers in enumerate(assignment)
            ],
            "configs": [{"name": name, "value": value} for name, value in given.items()],
        }
        fields = {"topics": [topic], "timeout": 3000, "validate_only": False}
        answer = self.do(self.client.connections.ask(ApiKey.CREATE_TOPICS, fields))
        assert int(answer.topics[0].error_code) == ErrorCode.NONE, answer
        if wait:
            self.wait(lambda: all(self.is_whole(p) for p in range(len(assignment))))

    def produce(self, partition: int, count: int = 10) -> None:
        """One batch each; returns when all are acknowledged, by whoever leads then."""

        async def send() -> None:
            kept = self.acknowledged.setdefault(partition, [])
            for _ in range(count):
                value = b"%d:%d" % (partition, len(kept))
                while True:
                    try:
                        # Under the same sequence as before, so that a batch is never there twice.
                        await self.producer.send(TOPIC, partition, [Record(0, 0, None, value)])
                    except (OSError, TimeoutError, KafkaError):
                        continue
                    break
                kept.append(value)

        self.do(send())

    def read(self, partition: int) -> list[bytes]:
        async def fetch() -> list[bytes]:
            values: list[bytes] = []
            offset = 0
            while True:
                found = await self.client.fetch(TOPIC, partition, offset)
                if not found.records:
                    return values
                values += [record.value or b"" for record in found.records]
                offset = found.next_offset

        return self.do(fetch())

    def nothing_is_lost(self) -> bool:
        return all(self.read(p) == values for p, values in self.acknowledged.items())

    def wait(self, condition: Any, timeout_s: float = 60) -> None:
        assert self.world.run_until(condition, timeout_s), self.describe()

    def restart(self, node_id: int, *, wait: bool = True) -> None:
        node = self.node(node_id)
        if node.is_up:
            node.kill()
        node.start()
        if wait:
            self.wait(lambda: node.is_ready)

    def stop(self, node_id: int) -> None:
        node = self.node(node_id)
        node.stop()
        self.wait(lambda: not node.is_up)

    # -- looking

    def node(self, node_id: int) -> SimNode:
        return self.cluster.nodes[node_id]

    def replicas(self, node_id: int) -> Any:
        node = self.node(node_id).node
        assert node is not None and node.broker is not None
        return node.broker.replicas

    def decided(self, partition: int = 0, topic: str = TOPIC) -> PartitionImage:
        """As the metadata has it, on whichever live node knows most."""
        quorums = [node.node.quorum for node in self.cluster.up if node.node is not None]
        images = [quorum.image for quorum in quorums if quorum is not None]
        newest = max(images, key=lambda image: image.offset)
        return newest.topics[topic].partitions[partition]

    def is_alive(self, node_id: int) -> bool:
        quorums = [node.node.quorum for node in self.cluster.up if node.node is not None]
        images = [quorum.image for quorum in quorums if quorum is not None]
        return max(images, key=lambda image: image.offset).is_alive(node_id)

    def is_whole(self, partition: int = 0, topic: str = TOPIC) -> bool:
        decided = self.decided(partition, topic)
        return decided.leader >= 0 and set(decided.isr) == set(decided.replicas)

    def active_controller(self) -> int:
        def leading() -> list[int]:
            quorums = {id: node.node.quorum for id, node in self.cluster.nodes.items() if node.node}
            return [id for id, quorum in quorums.items() if quorum and quorum.raft.is_leader]

        self.wait(lambda: bool(leading()))
        return leading()[-1]

    def directory_id(self, node_id: int, directory: str) -> Any:
        return self.replicas(node_id).logs.directory_ids[directory]

    def log_bytes(self, node_id: int, directory: str, partition: int = 0) -> bytes:
        disk = self.node(node_id).host.disk
        path = f"{directory}/{TOPIC}-{partition}"
        names = [name for name in disk.list_dir(path) if name.endswith(".log")]
        return b"".join(disk.read(f"{path}/{name}") for name in names)

    def error_of(self, node_id: int, partition: int) -> Any:
        """What whoever asks this broker for the partition is told."""
        found = self.replicas(node_id).find(TOPIC, None, partition)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def log_dirs(self, node_id: int) -> dict[str, ErrorCode]:
        """DescribeLogDirs of one broker: directory -> error."""

        async def ask() -> Any:
            channel = await self.client.connections.to(node_id)
            return await channel.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, timeout_s=5)

        answer = self.do(ask())
        return {row.log_dir: ErrorCode(int(row.error_code)) for row in answer.results}

    def describe(self) -> str:
        lines = [repr(node) for node in self.cluster.nodes.values()]
        for node in self.cluster.up:
            if node.node is not None and node.node.broker is not None:
                replicas = node.node.broker.replicas
                lines += [f"  {partition!r}" for partition in replicas.partitions.values()]
                lines += [
                    f"  failed {key}: {why}" for key, why in replicas.placement.offline.items()
                ]
                lines += [f"  lost {key}: {why}" for key, why in replicas.placement.lost.items()]
                lines += [f"  rebuilding {key}" for key in replicas.placement.rebuilding]
        topics = max(
            (n.node.quorum.image for n in self.cluster.up if n.node and n.node.quorum),
            key=lambda image: image.offset,
        ).topics
        lines += [f"{t.name}-{i}: {p}" for t in topics.values() for i, p in enumerate(t.partitions)]
        lines += [f"left: {id}: {failure!r}" for id, failure in self.failures.items()]
        return "\n".join(lines)


def key(partition: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, partition)
