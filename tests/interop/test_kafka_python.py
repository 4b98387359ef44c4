"""kafka-python: every acknowledgement and codec it has, large batches, idempotence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.clients import KafkaPython, rows
from support.cluster import ProcessCluster

CLIENT = KafkaPython()
NewTopic = Callable[..., str]


@pytest.mark.parametrize("codec", CLIENT.codecs)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_P17_rows_come_back_as_they_were_sent(
    cluster: ProcessCluster, new_topic: NewTopic, acks: str, codec: str
) -> None:
    topic, sent = new_topic(), rows(500)
    offsets = CLIENT.produce(cluster.bootstrap, topic, sent, acks=acks, codec=codec)
    assert offsets in (None, list(range(500)))
    assert CLIENT.consume(cluster.bootstrap, topic, 500) == sent


@pytest.mark.parametrize("codec", CLIENT.codecs)
def test_large_records_pass(cluster: ProcessCluster, new_topic: NewTopic, codec: str) -> None:
    topic, sent = new_topic(), rows(10, 900_000)
    CLIENT.produce(cluster.bootstrap, topic, sent, codec=codec)
    assert CLIENT.consume(cluster.bootstrap, topic, 10) == sent


def test_P21_an_idempotent_producer_keeps_the_order_of_many_batches(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, sent = new_topic(), rows(3_000)
    offsets = CLIENT.produce(cluster.bootstrap, topic, sent, idempotent=True)
    assert offsets == list(range(3_000))
    assert CLIENT.consume(cluster.bootstrap, topic, 3_000) == sent
