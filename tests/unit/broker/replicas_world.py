"""All replicas of one broker without its connections: real logs on a simulated disk, metadata that the test decides, and
virtual time. Broker 1 is the one under test; 0, 2 and 3 exist in the metadata only."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.config import Settings
from ottla.events import Events
from ottla.log.config import LogConfig
from ottla.log.manager import LogManager
from ottla.log.room import NO_WATERMARK, Watermark
from ottla.metadata import records as r
from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.records.record import Record, build
from ottla.replica.partition import Partition, ReplicationRules
from ottla.sim.engine.world import World
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.fetch_messages import FetchPartition
from ottla.wire.types import TopicPartition

T = TypeVar("T")

ME = 1
LISTENER = "PLAINTEXT"
ELSEWHERE = UUID(int=900)
"""A directory of some other broker."""


def broker_epoch(broker: int) -> int:
    return 100 + broker


def address_of(broker: int) -> str:
    return f"b{broker}"


class ReplicasWorld:
    def __init__(
        self,
        directories: Sequence[str] = ("/data",),
        watermark: Watermark = NO_WATERMARK,
        **settings: str,
    ) -> None:
        self.world = World(1)
        self.host = self.world.node(address_of(ME))
        self.settings = Settings.of(
            {
                "node.id": str(ME),
                "process.roles": "broker",
                "listeners": f"{LISTENER}://{address_of(ME)}:9092",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "9@c:9093",
                "log.dirs": ",".join(directories),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.directories = list(directories)
        self._watermark = watermark
        self._ids = count(1000)
        self._topic_ids = count(1)
        self.image, _ = MetadataImage().apply(
            [
                r.FeatureLevelRecord(name="metadata.version", feature_level=30),
                r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
                *(self.registered(broker) for broker in range(4)),
            ],
            5,
            1,
        )
        self.unclean: dict[tuple[UUID, int], int] = {}
        self.logs: LogManager
        self.replicas: ReplicaManager
        self.cluster: ClusterView
        self.open_logs()

    def __enter__(self) -> ReplicasWorld:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.world.problems() == []
        self.logs.close(clean=False)
        self.world.close()

    # -- the process

    def open_logs(self) -> None:
        self.logs = LogManager(
            self.host.disk,
            self.directories,
            LogConfig(),
            new_id=lambda: UUID(int=next(self._ids)),
            watermark=self._watermark,
        )
        self.logs.start("cluster", ME, 0)
        self.cluster = ClusterView(ME, 0)
        self.replicas = ReplicaManager(
            self.settings, self.host.clock, self.logs, Events(), ReplicationRules(), self.unclean
        )

    def start(self) -> None:
        """The first image is applied."""
        self.cluster.update(self.image, True)
        self.run(lambda: self.replicas.apply_all(self.image))

    def restart(
        self, *, clean: bool = True, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """`meanwhile`: what happens while the broker is down."""
        self.logs.close(clean=clean)
        meanwhile()
        self.open_logs()
        self.start()

    # -- time

    def run(self, work: Callable[[], T]) -> T:
        """A call from the event loop, and what follows from it at once."""

        async def called() -> T:
            return work()

        result = self.complete(called())
        self.wait(0.0001)
        return result

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        return self.host.complete(work)

    def wait(self, seconds: float) -> None:
        self.world.run_for(seconds)

    @property
    def now(self) -> float:
        return self.host.clock.monotonic()

    # -- the controller

    def registered(self, broker: int, **changes: Any) -> MetadataRecord:
        fields: dict[str, Any] = {
            "broker_id": broker,
            "incarnation_id": UUID(int=broker),
            "broker_epoch": broker_epoch(broker),
            "end_points": (r.Endpoint(name=LISTENER, host=address_of(broker), port=9092),),
            "features": (),
            "rack": None,
            "fenced": False,
            "log_dirs": (),
        }
        return r.RegisterBrokerRecord(**{**fields, **changes})

    def learn(self, *records: MetadataRecord) -> Delta:
        """The image grows; this broker's replicas do not know of it yet."""
        self.image, delta = self.image.apply(records, self.image.offset + len(records), 1)
        return delta

    def decide(self, *records: MetadataRecord) -> None:
        delta = self.learn(*records)
        self.run(lambda: self.publish(delta))

    def publish(self, delta: Delta) -> None:
        """To be called in the loop."""
        self.cluster.update(self.image, True)
        self.replicas.apply(self.image, delta)

    def topic_records(
        self, name: str, *partitions: Sequence[int], **changes: Any
    ) -> list[MetadataRecord]:
        """Of each partition its replicas; the first leads, and all are in sync."""
        id = UUID(int=next(self._topic_ids))
        return [
            r.TopicRecord(name=name, topic_id=id),
            *(
                r.PartitionRecord(
                    **{
                        "partition_id": number,
                        "topic_id": id,
                        "replicas": tuple(replicas),
                        "isr": tuple(replicas),
                        "leader": replicas[0],
                        "leader_epoch": 5,
                        "partition_epoch": 0,
                        "directories": tuple(self.home(broker) for broker in replicas),
                        **changes,
                    }
                )
                for number, replicas in enumerate(partitions)
            ),
        ]

    def home(self, broker: int) -> UUID:
        """The directory in which a new replica lies."""
        return self.logs.directory_ids[self.directories[0]] if broker == ME else ELSEWHERE

    def topic(self, name: str, *partitions: Sequence[int], **changes: Any) -> UUID:
        self.decide(*self.topic_records(name, *(partitions or [(ME,)]), **changes))
        return self.image.topics[name].id

    def changed(self, name: str, number: int = 0, **changes: Any) -> MetadataRecord:
        return r.PartitionChangeRecord(
            partition_id=number, topic_id=self.image.topics[name].id, **changes
        )

    def change(self, name: str, number: int = 0, **changes: Any) -> None:
        self.decide(self.changed(name, number, **changes))

    def delete(self, name: str) -> None:
        self.decide(r.RemoveTopicRecord(topic_id=self.image.topics[name].id))

    def configure(self, resource: int, name: str, setting: str, value: str | None) -> None:
        self.decide(
            r.ConfigRecord(resource_type=resource, resource_name=name, name=setting, value=value)
        )

    # -- producers and followers

    def __getitem__(self, key: tuple[str, int]) -> Partition:
        return self.replicas.partitions[TopicPartition(*key)]

    def decision(self, name: str, number: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[number]

    def produce(self, name: str, number: int = 0, *, records: int = 1, at_ms: int = 1000) -> None:
        batch = build([Record(n, at_ms + n, None, b"value") for n in range(records)])
        partition = self[name, number]
        self.run(
            lambda: partition.leading().append(memoryview(batch), -1, self.now, at_ms + records)
        )

    def replicate(self, name: str, number: int = 0, *, by: int = 2) -> None:
        """A follower fetches up to the end, so that it has everything below."""
        partition = self[name, number]
        fetch = FetchPartition(
            topic=name,
            topic_id=partition.topic_id,
            partition=number,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=partition.log.log_end,
            last_fetched_epoch=-1,
            log_start_offset=0,
            max_bytes=1 << 20,
        )
        self.run(
            lambda: partition.leading().serve_follower(
                fetch, by, broker_epoch(by), 1 << 20, True, self.now
            )
        )


class Asked:
    """A request as a handler sees it, which keeps the answer as a client reads it."""

    def __init__(self, key: ApiKey, version: int, fields: dict[str, Any]) -> None:
        self._key, self.version = key, version
        self._frame = memoryview(messages.write_request(key, version, fields))
        self.rights: Any = None
        self.connection = SimpleNamespace(closed=False)
        self.answers: list[Any] = []

    def message(self) -> Any:
        return messages.read_request(self._key, self.version, self._frame, 0)

    def respond(self, fields: Any) -> None:
        body = messages.write_response(self._key, self.version, fields)
        self.answers.append(messages.read_response(self._key, self.version, memoryview(body), 0))
