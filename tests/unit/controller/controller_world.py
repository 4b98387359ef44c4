"""A controller with a few registered brokers, driven by hand: what the controller tests talk to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from ottla.controller.brokers import Heartbeat, Registration
from ottla.controller.controller import Controller
from ottla.controller.draft import ControllerConfig, ControllerResult, IsrProposal
from ottla.controller.topics import NewTopic
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import Endpoint, FeatureRange
from ottla.raft.format import feature_records
from ottla.wire.errors import ErrorCode, KafkaError

CLUSTER = "a-cluster-of-tests-000"
FEATURES = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
RANGES = (
    FeatureRange(name="metadata.version", min_supported_version=7, max_supported_version=30),
    FeatureRange(
        name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1
    ),
    FeatureRange(name="kraft.version", min_supported_version=0, max_supported_version=1),
)


def refuse_unknown_names(configs: Mapping[str, str]) -> None:
    for name in configs:
        if name.startswith("no.such"):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")


def directory(broker: int, number: int = 0) -> UUID:
    return UUID(int=(broker << 64) | (1 << 32) | number)


class Quorum:
    """As the quorum answers for its own feature."""

    def __init__(self) -> None:
        self.kraft_version = 0
        self.refusal: KafkaError | None = None

    def check_kraft_version(self, version: int) -> None:
        if self.refusal is not None:
            raise self.refusal


class World:
    """Time moves only by `at`. Brokers apply metadata at once unless told otherwise."""

    def __init__(self, *brokers: int, racks: Mapping[int, str] | None = None, **settings: Any):
        config = ControllerConfig(
            cluster_id=CLUSTER,
            validate_topic_config=refuse_unknown_names,
            validate_broker_config=refuse_unknown_names,
            validate_group_config=refuse_unknown_names,
            validate_client_metrics_config=refuse_unknown_names,
            topic_defaults={"cleanup.policy": "delete", "retention.ms": "604800000"},
            **settings,
        )
        self.quorum = Quorum()
        self.controller = Controller(config, Random(1), lambda: self.next_offset, self.quorum)
        self.now = 100.0
        self.incarnations = 0
        self.racks = racks or {}
        self.controller.activate(MetadataImage(), 1, self.now)
        self.controller.bootstrap(feature_records(FEATURES))
        for broker in brokers:
            self.start(broker)

    @property
    def next_offset(self) -> int:
        """Every decision is appended at once, and nothing else is."""
        return self.image.offset + 1

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def register(self, broker: int, *, previous: int = -1, **changes: Any) -> ControllerResult:
        self.incarnations += 1
        fields: dict[str, Any] = {
            "broker_id": broker,
            "cluster_id": CLUSTER,
            "incarnation": UUID(int=self.incarnations),
            "endpoints": (Endpoint(name="PLAINTEXT", host="h", port=9000 + broker),),
            "features": RANGES,
            "rack": self.racks.get(broker),
            "log_dirs": (directory(broker),),
            "previous_broker_epoch": previous,
        }
        return self.controller.register_broker(Registration(**{**fields, **changes}), self.now)

    def beat(self, broker: int, **changes: Any) -> ControllerResult:
        image = self.image.brokers[broker]
        fields: dict[str, Any] = {
            "broker_id": broker,
            "broker_epoch": image.epoch,
            "metadata_offset": self.image.offset,
        }
        return self.controller.heartbeat(Heartbeat(**{**fields, **changes}), self.now)

    def start(self, broker: int, *, previous: int = -1, **changes: Any) -> None:
        """Register, catch up, be unfenced."""
        self.register(broker, previous=previous, **changes)
        self.beat(broker)
        assert self.image.is_alive(broker)

    def kill(self, *brokers: int) -> None:
        """Their processes are gone and nobody listens at their addresses."""
        for broker in brokers:
            epoch = self.image.brokers[broker].epoch
            self.controller.broker_disconnected(broker, epoch, self.now)
            self.controller.broker_unreachable(broker, epoch)

    def at(self, seconds: float, *, beating: tuple[int, ...] = ()) -> list[ControllerResult]:
        """Let time pass in steps as a live controller would, those brokers sending heartbeats."""
        end = self.now + seconds
        decisions = []
        while self.now < end:
            self.now = min(end, max(self.now, self.controller.next_deadline()))
            for broker in beating:
                self.beat(broker)
            decisions.append(self.controller.tick(self.now))
        return [decision for decision in decisions if decision.records]

    def topic(self, name: str = "t", *, min_isr: int | None = None, **fields: Any) -> UUID:
        configs = () if min_isr is None else (("min.insync.replicas", str(min_isr)),)
        fields = {"partitions": 1, "factor": len(self.image.brokers), "configs": configs, **fields}
        (row,) = self.controller.create_topics([NewTopic(name, **fields)]).response["topics"]
        assert row["error_code"] == 0, row
        return self.image.topics[name].id

    def partition(self, name: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def propose(
        self, wished: list[int], name: str = "t", partition: int = 0, **changes: Any
    ) -> Any:
        """The leader's wish for an ISR, as it would word it now. Returns its row of the answer."""
        present = self.partition(name, partition)
        members = tuple((member, self.image.brokers[member].epoch) for member in wished)
        fields: dict[str, Any] = {
            "topic_id": self.image.topics[name].id,
            "index": partition,
            "leader_epoch": present.leader_epoch,
            "partition_epoch": present.partition_epoch,
            "isr": members,
        }
        leader = changes.pop("broker", present.leader)
        epoch = self.image.brokers[leader].epoch
        proposal = IsrProposal(**{**fields, **changes})
        decision = self.controller.alter_partitions(leader, epoch, [proposal])
        return decision.response["topics"][0]["partitions"][0]
