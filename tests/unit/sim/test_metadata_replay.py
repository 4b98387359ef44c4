"""The oracle's own reading of the metadata."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.metadata import records as r
from ottla.metadata.image import ELR_FEATURE, MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.sim.oracle.metadata_replay import MetadataReplay

TOPIC = UUID(int=1)


def registered(id: int, *, fenced: bool = False) -> MetadataRecord:
    return r.RegisterBrokerRecord(
        broker_id=id,
        incarnation_id=UUID(int=id),
        broker_epoch=10 + id,
        end_points=(),
        features=(),
        rack=None,
        fenced=fenced,
    )


CLUSTER: list[MetadataRecord] = [
    r.FeatureLevelRecord(name=ELR_FEATURE, feature_level=1),
    *(registered(id) for id in (1, 2, 3)),
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.ConfigRecord(
        resource_type=r.TOPIC_RESOURCE, resource_name="t", name="min.insync.replicas", value="5"
    ),
    r.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2, 3),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=(3,),
    ),
]
CHANGE = r.PartitionChangeRecord(
    partition_id=0, topic_id=TOPIC, isr=(1,), eligible_leader_replicas=(2, 3)
)


def test_M6_an_image_that_reads_its_records_as_they_are_does_not_differ() -> None:
    replay, image = MetadataReplay(), MetadataImage()
    fenced = r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, fenced=1)
    gone = r.RemoveTopicRecord(topic_id=TOPIC)
    batches: list[list[MetadataRecord]] = [CLUSTER, [CHANGE, fenced], [gone]]
    for offset, batch in enumerate(batches):
        touched = replay.apply(batch)
        image, delta = image.apply(batch, offset, 0)
        assert not list(replay.differences(image, delta, touched))
        replay.check(touched)


def test_M6_an_image_that_leaves_something_out_differs() -> None:
    replay = MetadataReplay()
    replay.apply(CLUSTER)
    image, _ = MetadataImage().apply(CLUSTER, 0, 0)
    touched = replay.apply([CHANGE])
    misread, delta = image.apply([replace(CHANGE, eligible_leader_replicas=(3,))], 1, 0)
    assert "elr=(2, 3)" in next(replay.differences(misread, delta, touched))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (replace(CHANGE, leader=3), "not in the ISR"),
        (replace(CHANGE, isr=(1, 4)), "no replica"),
        (replace(CHANGE, isr=(1, 2)), "name a replica twice"),
        (replace(CHANGE, isr=(1, 2, 3), eligible_leader_replicas=()), ""),
        (r.UnregisterBrokerRecord(broker_id=2, broker_epoch=12), "fenced or gone"),
        (
            r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=1),
            "fenced or gone",
        ),
    ],
)
def test_M8_M9_what_does_not_fit_together_is_said(change: MetadataRecord, wrong: str) -> None:
    replay = MetadataReplay()
    replay.check(replay.apply(CLUSTER))
    touched = replay.apply([change])
    if wrong:
        with pytest.raises(AssertionError, match=wrong):
            replay.check(touched)
    else:
        replay.check(touched)


def test_no_partition_waits_for_more_replicas_than_it_has() -> None:
    replay = MetadataReplay()
    replay.apply(CLUSTER)
    assert replay.enough_in_sync("t", 3) == 3
    assert replay.enough_in_sync("another", 3) == 1
