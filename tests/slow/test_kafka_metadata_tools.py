"""Kafka's own tools read our metadata log, checkpoints and formatted directories, and we read Kafka's."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata import records as r
from ottla.metadata.features import (
    DEFAULT_LEVELS,
    METADATA_VERSION,
    UNSERVED,
    supported_ranges,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.raft import control_records
from ottla.raft.format import (
    feature_records,
    format_directory,
    load_bootstrap_records,
    load_properties,
)
from ottla.raft.journal import Journal, metadata_log_config
from ottla.raft.messages import SnapshotId
from ottla.raft.snapshots import BOOTSTRAP, SnapshotStore, build_snapshot, voter_controls
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.runtime.files import RealDisk
from ottla.wire.record_codec import Message
from ottla.wire.types import uuid_to_text
from support.kafka_dump import DumpedBatch, DumpedRecord, dump, dump_batches
from support.kafka_jars import STORAGE, metadata_tree, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

NOW_MS = 1_700_000_000_000
CLUSTER_ID = uuid_to_text(UUID(int=99))
DIRECTORIES = {n: UUID(int=n + 50) for n in (1, 2, 3, 4)}
VOTERS = VoterSet.of(
    Voter(n, DIRECTORIES[n], (QuorumEndpoint("CONTROLLER", "127.0.0.1", 9090 + n),))
    for n in (1, 2, 3)
)
ORDERS, GONE, BARE = UUID(int=1001), UUID(int=1002), UUID(int=1003)


def registration(n: int) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=n,
        incarnation_id=UUID(int=n + 500),
        broker_epoch=20 + n,
        end_points=(r.Endpoint(name="PLAINTEXT", host=f"host-{n}", port=9000 + n),),
        features=supported_ranges(),
        rack=None if n == 3 else f"rack-{n}",
        log_dirs=(DIRECTORIES[n],),
        cordoned_log_dirs=(),
    )


def controller(n: int) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=n,
        incarnation_id=UUID(int=n + 600),
        end_points=(r.Endpoint(name="CONTROLLER", host="127.0.0.1", port=9090 + n),),
        features=supported_ranges(),
    )


def partition(topic: UUID, number: int, replicas: tuple[int, ...]) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(DIRECTORIES[n] for n in replicas),
    )


def config(kind: int, resource: str, name: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def quota(name: str | None, value: float, *, remove: bool = False) -> r.ClientQuotaRecord:
    return r.ClientQuotaRecord(
        entity=(r.QuotaEntity(entity_type="user", entity_name=name),),
        key="producer_byte_rate",
        value=value,
        remove=remove,
    )


def acl(n: int) -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(
        id=UUID(int=n),
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )


def token(name: str) -> r.DelegationTokenRecord:
    return r.DelegationTokenRecord(
        owner="User:alice",
        requester="User:bob",
        renewers=("User:carol", "User:dave"),
        issue_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 2000,
        expiration_timestamp=NOW_MS + 1000,
        token_id=name,
    )


def scram(name: str) -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(
        name=name,
        mechanism=1,
        salt=b"salt\x00\xff",
        stored_key=b"stored" * 5,
        server_key=b"server",
        iterations=4096,
    )


def change(number: int, topic: UUID = ORDERS, **fields: Any) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=number, topic_id=topic, **fields)


def broker_change(n: int, **fields: Any) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id=n, broker_epoch=20 + n, **fields)


CREDENTIALS: list[list[MetadataRecord]] = [
    [quota("alice", 1_000_000.5), quota(None, 7.0), quota("bob", 1.0)],
    [quota("bob", 0.0, remove=True)],
    [scram("alice"), scram("bob")],
    [r.RemoveUserScramCredentialRecord(name="bob", mechanism=1)],
    [acl(1), acl(2), r.RemoveAccessControlEntryRecord(id=UUID(int=2))],
    [token("one"), token("two"), r.RemoveDelegationTokenRecord(token_id="two")],
]

HISTORY: list[list[MetadataRecord]] = [
    [
        r.BeginTransactionRecord(name="Bootstrap records"),
        *feature_records(DEFAULT_LEVELS),
        config(r.BROKER_RESOURCE, "", "min.insync.replicas", "1"),
        r.EndTransactionRecord(),
    ],
    [controller(1), controller(2), controller(3)],
    [registration(1), registration(2), registration(3)],
    [broker_change(1, cordoned_log_dirs=()), *(broker_change(n, fenced=-1) for n in (1, 2, 3))],
    [r.NoOpRecord()],
    [
        r.TopicRecord(name="orders", topic_id=ORDERS),
        config(r.TOPIC_RESOURCE, "orders", "retention.ms", "60000"),
        config(r.TOPIC_RESOURCE, "orders", "cleanup.policy", "compact"),
        partition(ORDERS, 0, (1, 2, 3)),
        partition(ORDERS, 1, (2, 3, 1)),
        partition(ORDERS, 2, (3,)),
    ],
    [r.TopicRecord(name="gone", topic_id=GONE), partition(GONE, 0, (1,))],
    [r.TopicRecord(name="bare", topic_id=BARE), partition(BARE, 0, (2, 1))],
    [config(r.TOPIC_RESOURCE, "orders", "cleanup.policy", None)],
    [config(r.BROKER_RESOURCE, "2", "num.io.threads", "4")],
    [r.ProducerIdsRecord(broker_id=1, broker_epoch=21, next_producer_id=5000)],
    [change(0, isr=(2, 3), leader=2), change(1, isr=(2, 3))],
    [
        broker_change(3, in_controlled_shutdown=1),
        change(0, isr=(2,)),
        change(1, isr=(2,)),
        change(2, isr=(), leader=-1, eligible_leader_replicas=(3,), last_known_elr=(3,)),
    ],
    [broker_change(3, fenced=1)],
    [registration(3), broker_change(3, fenced=-1)],
    [change(2, isr=(3,), leader=3, leader_recovery_state=1, eligible_leader_replicas=())],
    [change(2, last_known_elr=(), leader_recovery_state=0)],
    [
        change(
            1,
            replicas=(1, 2, 3),
            directories=(r.DIRECTORY_UNASSIGNED, DIRECTORIES[2], DIRECTORIES[3]),
            adding_replicas=(1,),
            removing_replicas=(3,),
        )
    ],
    [r.BeginTransactionRecord(), r.TopicRecord(name="never", topic_id=UUID(int=1004))],
    [r.AbortTransactionRecord(reason="the controller changed")],
    [r.RemoveTopicRecord(topic_id=GONE)],
    [r.ClearElrRecord(topic_name="orders"), r.ClearElrRecord(topic_name="")],
    *CREDENTIALS,
    [registration(4), r.UnregisterBrokerRecord(broker_id=4, broker_epoch=24)],
]
"""What a cluster may go through, batch by batch."""

LEGACY: list[list[MetadataRecord]] = [
    [r.FenceBrokerRecord(id=1, epoch=21), r.UnfenceBrokerRecord(id=1, epoch=21)],
    [broker_change(2, log_dirs=(DIRECTORIES[2], UUID(int=90))), r.NoOpRecord()],
    [r.ZkMigrationStateRecord(zk_migration_state=4)],
]
"""Read, never written by us, but written here to see that the schemas agree."""

LEADER = control_records.LeaderChange(
    leader_id=2,
    voters=tuple(control_records.VoterId(voter_id=n) for n in (1, 2, 3)),
    granting_voters=(control_records.VoterId(voter_id=2), control_records.VoterId(voter_id=3)),
)


def write_log(
    directory: Path, history: list[list[MetadataRecord]], segment_bytes: int = 1500
) -> tuple[Journal, MetadataImage]:
    """The history in a metadata log, led in two epochs, and the image of it."""
    config = metadata_log_config(segment_bytes=segment_bytes)
    journal = Journal.open(RealDisk(), str(directory), config=config, now_ms=NOW_MS)
    controls = [
        (ControlType.LEADER_CHANGE, control_records.encode_control(LEADER)),
        *voter_controls(1, VOTERS),
    ]
    journal.append_as_leader(control_batch(controls, timestamp=NOW_MS), 1, NOW_MS)
    image = MetadataImage()
    for number, content in enumerate(history):
        epoch = 1 if number < len(history) // 2 else 4
        if number == len(history) // 2:
            again = control_batch(controls[:1], timestamp=NOW_MS + number)
            journal.append_as_leader(again, epoch, NOW_MS + number)
        batch = build(
            Record(i, NOW_MS + number, None, r.encode(record)) for i, record in enumerate(content)
        )
        journal.append_as_leader(batch, epoch, NOW_MS + number)
        image, _ = image.apply(content, journal.log_end - 1, epoch)
    journal.close()
    return journal, image


def write_checkpoint(journal: Journal, image: MetadataImage) -> Path:
    content = build_snapshot(
        image.records(), epoch=4, timestamp_ms=NOW_MS + 5, kraft_version=1, voters=VOTERS
    )
    id = SnapshotId(journal.log_end, 4)
    journal.snapshots.write(id, content)
    return Path(journal.snapshots.path(id))


def flat(batches: list[DumpedBatch]) -> list[DumpedRecord]:
    return [record for batch in batches for record in batch.records if not batch.is_control]


def plain(value: Any) -> Any:
    """A value as Kafka's JSON converters show it, with the names of fields squeezed to compare: ours are
    snake_case, Kafka's are camelCase with capitals of their own."""
    match value:
        case Message():
            return fields_of(value, 0)
        case UUID():
            return uuid_to_text(value)
        case bytes():
            return b64encode(value).decode()
        case tuple():
            return [plain(element) for element in value]
        case _:
            return value


def fields_of(message: Message, version: int) -> dict[str, Any]:
    """What that version carries; a tagged field with its default is not there."""
    found = {}
    for each in dataclasses.fields(message):
        spec, value = each.metadata["spec"], getattr(message, each.name)
        if spec.since <= version and (spec.tag is None or value != each.default):
            found[squeezed(each.name)] = plain(value)
    return found


def squeezed(name: str) -> str:
    name = name.replace("_", "").lower()
    return "securityprotocol" if name == "protocol" else name


def names_squeezed(value: Any) -> Any:
    if isinstance(value, dict):
        return {squeezed(name): names_squeezed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [names_squeezed(inner) for inner in value]
    return value


def check_decoded(dumped: list[DumpedRecord], written: list[MetadataRecord]) -> None:
    assert len(dumped) == len(written)
    for found, record in zip(dumped, written, strict=True):
        version = record.written_version()
        decoded = found.json
        assert squeezed(decoded["type"]) == squeezed(type(record).__name__)
        assert decoded["version"] == version
        assert names_squeezed(decoded["data"]) == fields_of(record, version)


def check_voters(content: Any) -> None:
    assert [voter["voterId"] for voter in content["voters"]] == [1, 2, 3]
    for voter in content["voters"]:
        n = voter["voterId"]
        assert voter["voterDirectoryId"] == uuid_to_text(DIRECTORIES[n])
        endpoint = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9090 + n}
        assert voter["endpoints"] == [endpoint]
        assert voter["kRaftVersionFeature"] == {
            "minSupportedVersion": 0,
            "maxSupportedVersion": 1,
        }


def test_kafka_decodes_every_kind_of_metadata_record(tmp_path: Path) -> None:
    history = HISTORY + LEGACY
    written = [record for content in history for record in content]
    assert {record.KEY for record in written} == set(r.RECORD_TYPES), "a kind is missing here"
    journal, _ = write_log(tmp_path, history)
    directory = Path(journal.log.path)
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    batches = dump_batches(*segments, metadata=True)
    check_decoded(flat(batches), written)
    controls = [record for batch in batches if batch.is_control for record in batch.records]
    assert [record.control for record in controls] == [
        "LeaderChange",
        "KRaftVersion",
        "KRaftVoters",
        "LeaderChange",
    ]
    assert names_squeezed(controls[0].content) == fields_of(LEADER, 0)
    assert controls[1].content["kRaftVersion"] == 1
    check_voters(controls[2].content)
    epochs = [batch["partitionLeaderEpoch"] for batch in batches]
    assert epochs == sorted(epochs) and set(epochs) == {1, 4}
    assert batches[-1].records[-1].offset == journal.log_end - 1
    indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    dump(*indexes, options=("--index-sanity-check",))
    dump(*indexes, options=("--verify-index-only",))
    dump(*directory.glob("*.snapshot"))


def test_kafka_decodes_a_checkpoint_of_the_whole_image(tmp_path: Path) -> None:
    journal, image = write_log(tmp_path, HISTORY)
    batches = dump_batches(write_checkpoint(journal, image), metadata=True)
    header, *_, footer = batches
    assert [record.control for record in header.records] == [
        "SnapshotHeader",
        "KRaftVersion",
        "KRaftVoters",
    ]
    assert header.records[0].content["lastContainedLogTimestamp"] == NOW_MS + 5
    check_voters(header.records[2].content)
    assert [record.control for record in footer.records] == ["SnapshotFooter"]
    check_decoded(flat(batches), image.records())


def shown(image: MetadataImage) -> set[str]:
    """Lines that the metadata shell should print about the image."""
    lines = set()
    for topic in image.topics.values():
        at = f"/image/topics/byName/{topic.name}"
        lines.add(f"{at}/id: {uuid_to_text(topic.id)}")
        for number, part in enumerate(topic.partitions):
            directories = ", ".join(map(uuid_to_text, part.directories))
            state = "RECOVERING" if part.leader_recovery_state else "RECOVERED"
            lines.add(
                f"{at}/{number}: PartitionRegistration(replicas={list(part.replicas)}, "
                f"directories=[{directories}], isr={list(part.isr)}, "
                f"removingReplicas={list(part.removing)}, addingReplicas={list(part.adding)}, "
                f"elr={list(part.elr)}, lastKnownElr={list(part.last_known_elr)}, "
                f"leader={part.leader}, leaderRecoveryState={state}, "
                f"leaderEpoch={part.leader_epoch}, partitionEpoch={part.partition_epoch})"
            )
    for (kind, resource), settings in image.configs.items():
        of = {r.TOPIC_RESOURCE: "TOPIC", r.BROKER_RESOURCE: "BROKER"}[kind]
        at = f"/image/configs/{of}" + (f":{resource}" if resource else "")
        lines |= {f"{at}/{name}: {value}" for name, value in settings.items()}
    for name, level in image.features.items():
        if name != "metadata.version":
            lines.add(f"/image/features/finalized_{name}: {level}")
    lines.add("/image/features/metadataVersion: Optional[4.3-IV0]")
    lines.add(f"/image/producerIds/nextProducerId: {image.next_producer_id}")
    return lines


def test_kafka_replays_our_log_and_our_checkpoint_to_the_same_image_as_we_do(
    tmp_path: Path,
) -> None:
    journal, image = write_log(tmp_path, HISTORY, segment_bytes=1 << 20)
    (segment,) = Path(journal.log.path).glob("*.log")
    from_log = metadata_tree(segment)
    from_checkpoint = metadata_tree(write_checkpoint(journal, image))
    assert from_log == from_checkpoint
    assert shown(image) <= set(from_log)
    brokers = [line for line in from_log if line.startswith("/image/cluster/brokers/")]
    assert len(brokers) == len(image.brokers) == 3
    for n, line in zip((1, 2, 3), brokers, strict=True):
        assert f"id={n}, epoch={20 + n}, incarnationId={uuid_to_text(UUID(int=n + 500))}" in line
        assert "fenced=false, inControlledShutdown=false" in line
        assert f"directories=[{uuid_to_text(DIRECTORIES[n])}]" in line
    assert sum(line.startswith("/image/cluster/controllers/") for line in from_log) == 3
    assert sum(line.startswith("/image/acls/byId/") for line in from_log) == 1
    assert sum(line.startswith("/image/scram/SCRAM-SHA-256/alice") for line in from_log) == 1
    assert sum(line.startswith("/image/delegationToken/one") for line in from_log) == 1
    assert "/image/clientQuotas/user(alice)/producer_byte_rate: 1000000.5" in from_log


def server_properties(path: Path, directory: Path) -> Path:
    path.write_text(
        "node.id=1\n"
        "process.roles=broker,controller\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9091\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9091\n"
        f"log.dirs={directory}\n"
    )
    return path


def test_kafka_takes_our_formatted_directory_for_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    format_directory(
        RealDisk(),
        str(directory),
        cluster_id=CLUSTER_ID,
        node_id=1,
        directory_id=DIRECTORIES[1],
        voters=VOTERS,
    )
    properties = server_properties(tmp_path / "server.properties", directory)
    info = run_tool(STORAGE, "info", "--config", properties)
    assert f"Found log directory:\n  {directory}\n" in info
    identity = f"directory.id={uuid_to_text(DIRECTORIES[1])}, node.id=1, version=1"
    assert f"Found metadata: {{cluster.id={CLUSTER_ID}, {identity}}}" in info
    assert "problem" not in info
    bootstrap = dump_batches(directory / "bootstrap.checkpoint", metadata=True)
    check_decoded(flat(bootstrap), feature_records(DEFAULT_LEVELS))
    store = SnapshotStore(RealDisk(), f"{directory}/__cluster_metadata-0")
    (first,) = dump_batches(Path(store.path(BOOTSTRAP)), metadata=True)[:1]
    check_voters(first.records[2].content)


def kafkas_levels() -> dict[str, int]:
    """Ours, and those that we do not serve; metadata.version first, the others by name."""
    levels = {**DEFAULT_LEVELS, **{name: range.max for name, range in UNSERVED.items()}}
    return {METADATA_VERSION: levels.pop(METADATA_VERSION), **dict(sorted(levels.items()))}


def test_we_take_a_directory_formatted_by_kafka_for_our_own(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    properties = server_properties(tmp_path / "server.properties", directory)
    run_tool(STORAGE, "format", "--config", properties, "--cluster-id", CLUSTER_ID, "--standalone")
    found = load_properties(RealDisk(), str(directory))
    assert (found.cluster_id, found.node_id) == (CLUSTER_ID, 1)
    assert found.directory_id is not None and found.directory_id.version == 4
    assert load_bootstrap_records(RealDisk(), str(directory)) == feature_records(kafkas_levels())
    content = SnapshotStore(RealDisk(), f"{directory}/__cluster_metadata-0").load(BOOTSTRAP)
    assert content.kraft_version == 1
    endpoint = QuorumEndpoint("CONTROLLER", "127.0.0.1", 9091)
    assert content.voters == VoterSet.of([Voter(1, found.directory_id, (endpoint,))])
    assert content.records == []


def test_formatting_writes_the_files_that_kafkas_formatting_writes(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    properties = server_properties(tmp_path / "server.properties", theirs)
    run_tool(STORAGE, "format", "--config", properties, "--cluster-id", CLUSTER_ID, "--standalone")
    voters = SnapshotStore(RealDisk(), f"{theirs}/__cluster_metadata-0").load(BOOTSTRAP).voters
    directory_id = load_properties(RealDisk(), str(theirs)).directory_id
    assert directory_id is not None
    format_directory(
        RealDisk(),
        str(ours),
        cluster_id=CLUSTER_ID,
        node_id=1,
        directory_id=directory_id,
        voters=voters,
        features=kafkas_levels(),
    )

    def content(directory: Path) -> dict[str, list[Any]]:
        """Beside the moment of formatting, which Kafka writes into batches, comments and a header."""
        files: dict[str, list[Any]] = {}
        for path in directory.rglob("*"):
            name = str(path.relative_to(directory))
            if path.suffix == ".checkpoint":
                files[name] = [
                    (record.offset, record.control, timeless(record.content), record.payload)
                    for batch in dump_batches(path, metadata=True)
                    for record in batch.records
                ]
            elif path.is_file():
                files[name] = sorted(set(path.read_text().splitlines()) - comments(path))
        return files

    assert content(ours) == content(theirs)


def timeless(content: Any) -> Any:
    return {n: v for n, v in (content or {}).items() if n != "lastContainedLogTimestamp"}


def comments(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line.startswith("#")}
