"""The image: replay rules read off Kafka's log, deltas, sharing, snapshots and the M8/M9 assertions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.metadata import records as r
from ottla.metadata.image import Delta, InconsistentMetadata, MetadataImage
from ottla.metadata.records import MetadataRecord

TOPIC = UUID(int=77)
DIRECTORY = UUID(int=100)
FEATURES: list[MetadataRecord] = [
    r.FeatureLevelRecord(name="metadata.version", feature_level=30),
    r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
]


def applied(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataImage, Delta]:
    return image.apply(records, image.offset + len(records), max(image.epoch, 1))


def broker(number: int, *, epoch: int = 5, fenced: bool = False) -> MetadataRecord:
    return r.RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=UUID(int=number),
        broker_epoch=epoch,
        end_points=(r.Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9092),),
        features=(),
        rack=None,
        fenced=fenced,
        log_dirs=(DIRECTORY,),
    )


def partition(number: int, replicas: Sequence[int] = (1, 2), **changes: object) -> MetadataRecord:
    fields: dict[str, object] = {
        "partition_id": number,
        "topic_id": TOPIC,
        "replicas": tuple(replicas),
        "isr": tuple(replicas),
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": (DIRECTORY,) * len(replicas),
    }
    return r.PartitionRecord(**(fields | changes))  # type: ignore[arg-type]


def change(number: int = 0, **changes: object) -> MetadataRecord:
    return r.PartitionChangeRecord(partition_id=number, topic_id=TOPIC, **changes)  # type: ignore[arg-type]


@pytest.fixture
def cluster() -> MetadataImage:
    image, _ = applied(
        MetadataImage(),
        *FEATURES,
        broker(1),
        broker(2),
        broker(3),
        r.TopicRecord(name="demo", topic_id=TOPIC),
        partition(0),
        partition(1, (2, 3)),
    )
    return image


def test_a_change_raises_the_partition_epoch_and_only_a_leader_raises_the_leader_epoch(
    cluster: MetadataImage,
) -> None:
    image, delta = applied(cluster, change(isr=(1,)))
    part = image.topics["demo"].partitions[0]
    assert (part.leader_epoch, part.partition_epoch, part.isr) == (0, 1, (1,))
    assert delta.changed_partitions == [(TOPIC, 0)]
    image, _ = applied(image, change(isr=(1, 2)), change(leader=2))
    part = image.topics["demo"].partitions[0]
    assert (part.leader, part.leader_epoch, part.partition_epoch) == (2, 1, 3)
    same_leader, _ = applied(image, change(leader=2))
    assert same_leader.topics["demo"].partitions[0].leader_epoch == 2


def test_the_image_before_stays_as_it_was_and_shares_what_did_not_change(
    cluster: MetadataImage,
) -> None:
    image, _ = applied(cluster, change(0, isr=(1,)))
    assert cluster.topics["demo"].partitions[0].isr == (1, 2)
    assert image.topics["demo"].partitions[1] is cluster.topics["demo"].partitions[1]
    assert image.brokers is cluster.brokers
    idle, delta = applied(image, r.NoOpRecord())
    assert idle.topics is image.topics and idle.offset == image.offset + 1
    assert not delta


def test_a_removed_topic_takes_its_settings_with_it(cluster: MetadataImage) -> None:
    setting = r.ConfigRecord(
        resource_type=2, resource_name="demo", name="retention.ms", value="1000"
    )
    image, delta = applied(cluster, setting)
    assert image.config(2, "demo") == {"retention.ms": "1000"}
    assert delta.changed_configs == [(2, "demo")]
    image, delta = applied(image, r.RemoveTopicRecord(topic_id=TOPIC))
    assert not image.topics and not image.topics_by_id and not image.configs
    assert [topic.name for topic in delta.deleted_topics] == ["demo"]
    assert not delta.changed_partitions


def test_a_topic_may_be_deleted_and_made_anew_in_one_batch(cluster: MetadataImage) -> None:
    again = UUID(int=78)
    image, delta = applied(
        cluster,
        r.RemoveTopicRecord(topic_id=TOPIC),
        r.TopicRecord(name="demo", topic_id=again),
        partition(0, topic_id=again),
    )
    assert image.topics["demo"].id == again and list(image.topics_by_id) == [again]
    assert delta.created_topics == [again] and len(delta.deleted_topics) == 1


def test_brokers_are_fenced_unfenced_and_replaced(cluster: MetadataImage) -> None:
    image, delta = applied(
        cluster,
        change(0, isr=(2,), leader=2),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1),
    )
    assert image.brokers[1].fenced and not image.is_alive(1) and delta.changed_brokers == [1]
    image, _ = applied(
        image, broker(1, epoch=20, fenced=True), change(1, isr=(2,)), change(1, isr=(2, 3))
    )
    assert image.brokers[1].epoch == 20
    image, _ = applied(
        image, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=20, fenced=-1)
    )
    assert image.is_alive(1)
    image, _ = applied(
        image,
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=20, in_controlled_shutdown=1),
    )
    assert not image.is_alive(1) and not image.brokers[1].fenced


def test_a_change_for_a_stale_broker_epoch_contradicts_the_image(cluster: MetadataImage) -> None:
    with pytest.raises(InconsistentMetadata, match="epoch 4"):
        applied(cluster, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1))
    with pytest.raises(InconsistentMetadata, match="epoch 4 after 5"):
        applied(cluster, broker(1, epoch=4))


def test_M8_a_leader_outside_the_isr_is_caught(cluster: MetadataImage) -> None:
    with pytest.raises(AssertionError, match="leader outside ISR"):
        applied(cluster, change(leader=3))
    with pytest.raises(AssertionError, match="outside the replicas"):
        applied(cluster, change(isr=(1, 3)))
    with pytest.raises(AssertionError, match="overlap"):
        applied(cluster, change(isr=(1,), eligible_leader_replicas=(1,)))
    with pytest.raises(AssertionError, match="beside a full ISR"):
        applied(cluster, change(isr=(1,), eligible_leader_replicas=(2,)))


def test_M9_a_fenced_broker_in_an_isr_is_caught_from_either_side(cluster: MetadataImage) -> None:
    fence = r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=1)
    with pytest.raises(AssertionError, match="M9"):
        applied(cluster, fence)
    image, _ = applied(cluster, change(0, isr=(1,)), change(1, isr=(3,), leader=3), fence)
    with pytest.raises(AssertionError, match="M9"):
        applied(image, change(0, isr=(1, 2)))


def test_clearing_the_elr_moves_no_epoch(cluster: MetadataImage) -> None:
    minimum = r.ConfigRecord(
        resource_type=4, resource_name="", name="min.insync.replicas", value="2"
    )
    image, _ = applied(
        cluster, minimum, change(0, isr=(1,), eligible_leader_replicas=(2,), last_known_elr=(2,))
    )
    before = image.topics["demo"].partitions[0]
    assert before.elr == (2,)
    cleared, delta = applied(image, r.ClearElrRecord(topic_name="demo"))
    after = cleared.topics["demo"].partitions[0]
    assert after.elr == after.last_known_elr == ()
    assert after.partition_epoch == before.partition_epoch
    assert delta.changed_partitions == [(TOPIC, 0)]
    assert applied(image, r.ClearElrRecord(topic_name=""))[0].digest() == cleared.digest()


def test_records_of_a_transaction_count_at_its_end_and_never_when_aborted(
    cluster: MetadataImage,
) -> None:
    image, delta = applied(cluster, r.BeginTransactionRecord(name="t"), change(isr=(1,)))
    assert image.topics["demo"].partitions[0].isr == (1, 2) and not delta
    aborted, _ = applied(image, r.AbortTransactionRecord())
    assert aborted.digest() == cluster.digest() != image.digest()
    ended, delta = applied(image, r.EndTransactionRecord())
    assert ended.topics["demo"].partitions[0].isr == (1,) and ended.pending is None
    assert delta.changed_partitions == [(TOPIC, 0)]


def test_M5_M6_the_records_of_an_image_make_the_same_image(cluster: MetadataImage) -> None:
    image, _ = applied(
        cluster,
        r.ConfigRecord(resource_type=2, resource_name="demo", name="a", value="b"),
        r.ClientQuotaRecord(
            entity=(r.QuotaEntity(entity_type="user", entity_name="alice"),),
            key="producer_byte_rate",
            value=1e6,
            remove=False,
        ),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        r.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        r.RegisterControllerRecord(
            controller_id=9, incarnation_id=UUID(int=4), end_points=(), features=()
        ),
    )
    rebuilt, _ = MetadataImage().apply(
        [r.decode(r.encode(record)) for record in image.records()], image.offset, image.epoch
    )
    assert rebuilt == image
    assert rebuilt.digest() == image.digest() != cluster.digest()


def test_removed_settings_and_quotas_leave_nothing_behind(cluster: MetadataImage) -> None:
    entity = (r.QuotaEntity(entity_type="user", entity_name=None),)
    image, _ = applied(
        cluster,
        r.ConfigRecord(resource_type=2, resource_name="demo", name="a", value="b"),
        r.ConfigRecord(resource_type=2, resource_name="demo", name="a", value=None),
        r.ClientQuotaRecord(entity=entity, key="k", value=1.0, remove=False),
        r.ClientQuotaRecord(entity=entity, key="k", value=0.0, remove=True),
    )
    assert image.digest() == cluster.digest() and not image.configs


def test_producer_id_blocks_are_never_given_twice(cluster: MetadataImage) -> None:
    block = r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000)
    image, _ = applied(cluster, block)
    with pytest.raises(InconsistentMetadata):
        applied(image, r.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=999))


def test_fence_and_unfence_records_do_what_they_say(cluster: MetadataImage) -> None:
    image, _ = applied(cluster, change(0, isr=(2,), leader=2), r.FenceBrokerRecord(id=1, epoch=5))
    assert image.brokers[1].fenced and not image.brokers[2].fenced
    image, delta = applied(image, r.UnfenceBrokerRecord(id=1, epoch=5))
    assert image.is_alive(1) and delta.changed_brokers == [1]
    for stale in (r.FenceBrokerRecord(id=1, epoch=4), r.UnfenceBrokerRecord(id=1, epoch=4)):
        with pytest.raises(InconsistentMetadata, match="epoch 4"):
            applied(image, stale)


def test_a_topic_that_comes_and_goes_in_one_batch_was_never_there(cluster: MetadataImage) -> None:
    short = UUID(int=79)
    image, delta = applied(
        cluster,
        r.TopicRecord(name="short", topic_id=short),
        partition(0, topic_id=short),
        r.RemoveTopicRecord(topic_id=short),
    )
    assert image.digest() == cluster.digest() and not delta


def test_topics_without_an_elr_are_not_touched_when_all_are_cleared(cluster: MetadataImage) -> None:
    image, delta = applied(cluster, r.ClearElrRecord(topic_name=""))
    assert image.topics["demo"] is cluster.topics["demo"] and not delta


def test_a_checkpoint_differs_from_what_was_known_by_what_has_changed_since(
    cluster: MetadataImage,
) -> None:
    """A node that loads one tells its parts the difference."""
    new, gone = UUID(int=80), UUID(int=81)
    old, _ = applied(
        cluster,
        r.TopicRecord(name="gone", topic_id=gone),
        partition(0, topic_id=gone),
        r.ConfigRecord(resource_type=2, resource_name="gone", name="a", value="b"),
    )
    image, _ = applied(
        old,
        r.RemoveTopicRecord(topic_id=gone),
        r.TopicRecord(name="new", topic_id=new),
        partition(0, topic_id=new),
        partition(1, topic_id=new),
        change(1, isr=(3,), leader=3),
        partition(2, (1, 2)),
        broker(2, epoch=9),
        broker(4),
    )
    delta = image.delta_from(old)
    assert delta.created_topics == [new]
    assert [topic.name for topic in delta.deleted_topics] == ["gone"]
    assert sorted(delta.changed_partitions) == [(TOPIC, 1), (TOPIC, 2), (new, 0), (new, 1)]
    assert sorted(delta.changed_brokers) == [2, 4]
    assert delta.changed_configs == [(2, "gone")]
    assert not image.delta_from(image)
    assert sorted(image.delta_from(MetadataImage()).changed_partitions) == [
        *((TOPIC, number) for number in range(3)),
        *((new, number) for number in range(2)),
    ]
