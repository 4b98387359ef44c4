"""Creating, deleting and enlarging topics; settings at run time."""

from __future__ import annotations

from uuid import UUID

import pytest
from controller_world import World, directory

from ottla.controller.configs import ConfigChange, ConfigChanges
from ottla.controller.quotas import QuotaChange, QuotaChanges
from ottla.controller.reassignments import ReassignedPartition
from ottla.controller.topics import MorePartitions, NewTopic
from ottla.metadata.records import (
    BROKER_RESOURCE,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError
from support.counting import counted


def create(world: World, *topics: NewTopic, **options: bool) -> list[dict[str, object]]:
    response = world.controller.create_topics(topics, **options).response
    rows = response["topics"]
    assert isinstance(rows, list)
    return rows


def codes(rows: list[dict[str, object]]) -> list[object]:
    return [row["error_code"] for row in rows]


def test_P36_a_topic_is_spread_over_the_sorted_brokers_and_led_by_its_preferred_replicas() -> None:
    world = World(3, 1, 2)
    world.topic(partitions=4, factor=2)
    partitions = world.image.topics["t"].partitions
    assert [p.replicas for p in partitions] == [(1, 2), (2, 3), (3, 1), (1, 2)]
    assert all(p.leader == p.replicas[0] and p.isr == p.replicas for p in partitions)
    assert all((p.leader_epoch, p.partition_epoch) == (0, 0) for p in partitions)


def test_P37_topics_of_one_partition_are_led_by_different_brokers() -> None:
    world = World(1, 2, 3)
    for name in ("a", "b", "c"):
        world.topic(name)
    assert [world.partition(name).leader for name in ("a", "b", "c")] == [1, 2, 3]


def test_a_topic_is_one_batch_of_topic_configs_and_partitions() -> None:
    world = World(1)
    topic = NewTopic("t", 2, 1, configs=(("retention.ms", "5"),))
    records = world.controller.create_topics([topic]).records
    kinds = [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    assert [type(record) for record in records] == kinds
    assert world.image.config(TOPIC_RESOURCE, "t") == {"retention.ms": "5"}


def test_the_answer_names_partitions_factor_and_effective_settings() -> None:
    world = World(1, num_partitions=3, topic_defaults_given=("retention.ms",))
    (row,) = create(world, NewTopic("t", configs=(("cleanup.policy", "compact"),)))
    assert (row["num_partitions"], row["replication_factor"]) == (3, 1)
    sources = {c["name"]: (c["value"], c["config_source"]) for c in row["configs"]}  # type: ignore[attr-defined]
    assert sources["cleanup.policy"] == ("compact", 1)
    assert sources["retention.ms"] == ("604800000", 4)
    assert sources["segment.ms"] == ("604800000", 5)
    assert "internal.segment.bytes" not in sources


def test_what_is_set_for_the_whole_cluster_comes_before_what_the_file_says() -> None:
    world = World(1, topic_defaults_given=("retention.ms",))
    changes = (ConfigChange("log.retention.ms", 0, "5"),)
    world.controller.incremental_alter_configs([ConfigChanges(BROKER_RESOURCE, "", changes)])
    (row,) = create(world, NewTopic("t"))
    found = {c["name"]: (c["value"], c["config_source"]) for c in row["configs"]}  # type: ignore[attr-defined]
    assert found["retention.ms"] == ("5", 3)


def test_a_broker_with_one_disk_is_told_where_a_new_replica_lies_others_choose() -> None:
    world = World(1)
    world.start(2, log_dirs=(directory(2, 0), directory(2, 1)))
    world.topic()
    assert world.partition().directories == (directory(1), DIRECTORY_UNASSIGNED)


def test_a_cordoned_broker_gets_no_new_replicas() -> None:
    world = World(1, 2)
    world.beat(2, cordoned_log_dirs=(directory(2),))
    world.topic(partitions=4, factor=1)
    assert {p.replicas for p in world.image.topics["t"].partitions} == {(1,)}


def test_a_request_for_more_than_ten_thousand_partitions_creates_none() -> None:
    world = World(1)
    with pytest.raises(KafkaError) as refused:
        create(world, NewTopic("a", 5_001), NewTopic("b", 5_000))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert not world.image.topics


def test_a_request_for_more_than_ten_thousand_records_is_refused_before_any_work() -> None:
    world = World(1)
    asked: list[int] = []
    new = [NewTopic(f"t{number}", 1, 1) for number in range(5_001)]
    more = [MorePartitions(f"t{number}", 2) for number in range(10_001)]
    for command in (
        lambda: world.controller.create_topics(new, validate_only=True, permit=asked.append),
        lambda: world.controller.delete_topics(
            [each.name for each in more], [], permit=asked.append
        ),
        lambda: world.controller.create_partitions(more, permit=asked.append),
    ):
        with pytest.raises(KafkaError) as refused:
            command()
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert not asked
    assert len(world.controller.create_topics(new[:5_000], validate_only=True).response["topics"]) == 5_000  # fmt: skip


def test_a_topic_costs_the_same_however_many_others_are_in_the_request() -> None:
    def calls(count: int) -> list[float]:
        world = World(1, 2, 3)
        new = [NewTopic(f"t{number}", 1, 1) for number in range(count)]
        more = [MorePartitions(each.name, 2) for each in new]
        set_all = (
            ConfigChange("min.insync.replicas", 0, "1"),
            ConfigChange("retention.ms", 0, "5"),
        )
        configs = [ConfigChanges(TOPIC_RESOURCE, each.name, set_all) for each in new]
        rate = (QuotaChange("producer_byte_rate", 5.0),)
        quotas = [QuotaChanges((("user", each.name),), rate) for each in new]
        each = []
        for command in (
            lambda: world.controller.create_topics(new),
            lambda: world.controller.create_partitions(more),
            lambda: world.controller.incremental_alter_configs(configs),
            lambda: world.controller.alter_client_quotas(quotas),
            lambda: world.controller.delete_topics([topic.name for topic in new], []),
        ):
            with counted() as done:
                assert command().records
            assert done.named("MetadataImage.apply") == 1, "which copies the names of all topics"
            each.append(done.of(None) / count)
        return each

    few, many = calls(50), calls(500)
    assert all(after <= before * 1.1 for before, after in zip(few, many, strict=True)), (few, many)


def test_a_topic_that_is_named_and_whose_id_is_given_is_deleted_once() -> None:
    world = World(1)
    world.topic("t")
    topic_id = world.image.topics["t"].id
    result = world.controller.delete_topics(["t"], [topic_id])
    assert codes(result.response["responses"]) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert len(result.records) == 1


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("../x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("here.now"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic("here_now"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, -1, ((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs=(("no.such.name", "1"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=(("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_created_is_refused_with_kafkas_code(
    topic: NewTopic, code: ErrorCode
) -> None:
    world = World(1, 2)
    world.topic("here_now")
    before = world.image
    (row,) = create(world, topic)
    assert row["error_code"] == code and row["error_message"]
    assert world.image.topics == before.topics


def test_each_topic_of_a_request_succeeds_or_fails_by_itself() -> None:
    world = World(1)
    rows = create(world, NewTopic("a.b"), NewTopic("a_b"), NewTopic("c", 1, 9), NewTopic("d"))
    bad_name, bad_factor = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR
    assert codes(rows) == [0, bad_name, bad_factor, 0]
    assert sorted(world.image.topics) == ["a.b", "d"]


def test_a_name_twice_in_one_request_is_refused() -> None:
    world = World(1)
    assert codes(create(world, NewTopic("a"), NewTopic("a"))) == [ErrorCode.INVALID_REQUEST]


def test_validate_only_leaves_no_trace() -> None:
    world = World(1)
    offset = world.next_offset
    assert codes(create(world, NewTopic("a"), validate_only=True)) == [0]
    assert world.image.topics == {} and world.next_offset == offset


def test_P33_topics_are_deleted_by_name_and_by_id_with_their_settings() -> None:
    world = World(1)
    world.topic("a", configs=(("retention.ms", "5"),))
    b = world.topic("b")
    nobody = UUID(int=5)
    rows = world.controller.delete_topics(["a", "x"], [b, nobody]).response["responses"]
    assert [(row["name"], row["error_code"]) for row in rows] == [
        ("a", 0),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert world.image.topics == {} and world.image.config(TOPIC_RESOURCE, "a") == {}


def test_M9_a_topic_created_again_has_another_id() -> None:
    world = World(1)
    first = world.topic()
    world.controller.delete_topics(["t"], [])
    assert world.topic() != first


def test_deletion_can_be_switched_off() -> None:
    world = World(1, delete_topics=False)
    world.topic()
    (row,) = world.controller.delete_topics(["t"], []).response["responses"]
    assert row["error_code"] == ErrorCode.TOPIC_DELETION_DISABLED


def test_more_partitions_continue_the_round_of_the_topic() -> None:
    world = World(1, 2, 3)
    world.topic("other")
    world.topic(partitions=2, factor=2)
    world.controller.create_partitions([MorePartitions("t", 4)])
    replicas = [p.replicas for p in world.image.topics["t"].partitions]
    assert replicas == [(2, 3), (3, 1), (1, 2), (2, 3)]


def test_more_partitions_get_as_many_replicas_as_the_first_will_have() -> None:
    """While it moves it has the old ones and the new ones."""
    world = World(1, 2, 3, 4)
    world.topic(assignments=((0, (1, 2)),), partitions=-1, factor=-1)
    world.controller.alter_reassignments([ReassignedPartition("t", 0, (3, 4))])
    assert len(world.partition().replicas) == 4
    world.controller.create_partitions([MorePartitions("t", 3)])
    assert [len(each.replicas) for each in world.image.topics["t"].partitions] == [4, 2, 2]


def test_more_partitions_are_refused_where_they_make_no_sense() -> None:
    world = World(1)
    world.topic(partitions=2)
    requests = {
        MorePartitions("t", 2): ErrorCode.INVALID_PARTITIONS,
        MorePartitions("t", 1): ErrorCode.INVALID_PARTITIONS,
        MorePartitions("x", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        MorePartitions("t", 4, ((1,),)): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        MorePartitions("t", 3, ((9,),)): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        MorePartitions("t", 3, ((1,),)): ErrorCode.NONE,
    }
    for request, code in requests.items():
        (row,) = world.controller.create_partitions([request]).response["results"]
        assert row["error_code"] == code, request


def alter(world: World, name: str, *changes: ConfigChange, kind: int = TOPIC_RESOURCE) -> object:
    wish = ConfigChanges(kind, name, changes)
    (row,) = world.controller.incremental_alter_configs([wish]).response["responses"]
    return row["error_code"]


def test_what_is_appended_to_a_nodes_list_is_added_to_its_default() -> None:
    world = World(1)
    name, node = "log.cleanup.policy", "1"
    alter(world, node, ConfigChange(name, 2, "compact"), kind=BROKER_RESOURCE)
    assert world.image.config(BROKER_RESOURCE, node) == {name: "delete,compact"}
    alter(world, node, ConfigChange(name, 3, "compact"), kind=BROKER_RESOURCE)
    assert world.image.config(BROKER_RESOURCE, node) == {name: "delete"}


def test_settings_are_set_deleted_appended_to_and_subtracted_from() -> None:
    world = World(1)
    world.topic()
    alter(world, "t", ConfigChange("cleanup.policy", 2, "compact"))
    assert world.image.config(TOPIC_RESOURCE, "t")["cleanup.policy"] == "delete,compact"
    alter(world, "t", ConfigChange("cleanup.policy", 3, "delete"))
    assert world.image.config(TOPIC_RESOURCE, "t")["cleanup.policy"] == "compact"
    alter(world, "t", ConfigChange("retention.ms", 0, "7"), ConfigChange("cleanup.policy", 1, None))
    assert world.image.config(TOPIC_RESOURCE, "t") == {"retention.ms": "7"}
    wish = ConfigChanges(TOPIC_RESOURCE, "t", (ConfigChange("segment.ms", 0, "9"),))
    world.controller.alter_configs([wish])
    assert world.image.config(TOPIC_RESOURCE, "t") == {"segment.ms": "9"}, (
        "the old way replaces all"
    )


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC_RESOURCE, "x", ("retention.ms", 0, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_RESOURCE, "t", ("no.such", 0, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", ("retention.ms", 0, None), ErrorCode.INVALID_REQUEST),
        (TOPIC_RESOURCE, "t", ("retention.ms", 2, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "7", ("a", 0, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER_RESOURCE, "x", ("a", 0, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "1", ("min.insync.replicas", 0, "2"), ErrorCode.INVALID_CONFIG),
        (BROKER_RESOURCE, "", ("min.insync.replicas", 1, None), ErrorCode.INVALID_CONFIG),
        (8, "1", ("a", 0, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_setting_is_refused_with_kafkas_code(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    world = World(1)
    world.topic()
    before = world.image.configs
    assert alter(world, name, ConfigChange(*change), kind=kind) == code
    assert world.image.configs == before


def test_M8_a_lower_minimum_makes_the_eligible_replicas_obsolete_in_the_same_batch() -> None:
    world = World(1, 2)
    world.topic(min_isr=2)
    world.kill(2)
    assert world.partition().elr == (2,)
    alter(world, "t", ConfigChange("min.insync.replicas", 0, "1"))
    assert world.partition().elr == ()


def test_M8_the_clusters_minimum_holds_for_topics_that_have_none() -> None:
    world = World(1, 2, min_insync_replicas=2)
    world.topic()
    world.kill(2)
    assert world.partition().elr == (2,)
    alter(world, "", ConfigChange("min.insync.replicas", 0, "1"), kind=BROKER_RESOURCE)
    assert world.partition().elr == ()


def test_a_changed_minimum_does_not_strand_a_partition_that_is_offline() -> None:
    world = World(1, 2)
    world.topic(min_isr=2)
    world.kill(1, 2)
    alter(world, "t", ConfigChange("min.insync.replicas", 0, "1"))
    assert world.partition().leader == NO_LEADER and world.partition().elr == (1, 2)


def test_P30_allowing_unclean_election_elects_at_once_where_nobody_leads() -> None:
    world = World(1, 2)
    world.topic()
    world.propose([1])
    world.kill(1)
    assert world.partition().leader == NO_LEADER
    alter(world, "t", ConfigChange("unclean.leader.election.enable", 0, "true"))
    assert world.partition().leader == 2
