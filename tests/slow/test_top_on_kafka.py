"""`ottla top` on Apache Kafka: with what that tells."""

from __future__ import annotations

import confluent_kafka
import pytest

from support.cluster import OTTLA, ProcessCluster, wait_until
from support.kafka_server import kafka_instead
from support.terminal import TerminalProgram

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

ESC, ENTER = "\x1b", "\r"


def test_every_screen_works_and_a_broker_that_dies_is_missed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with ProcessCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        for node in list(cluster.nodes):
            cluster.stop(node)
        with kafka_instead(cluster):
            topic = cluster.create_topic("orders", 3)
            write(cluster, topic, 1000)
            wait_until(lambda: commit(cluster, topic), 60, "a commit", every=0.5)
            words = (OTTLA, "top", "-b", cluster.bootstrap)
            with TerminalProgram(*words, columns=120, rows=30) as program:
                program.wait_for("3 of 3 brokers", 30)
                program.wait_for("Nothing is wrong.", 30)
                program.press("4")
                program.wait(
                    lambda s: any("orders" in x and "1,000" in x for x in s.lines),
                    30,
                    "its records",
                )
                program.press("3")
                program.wait(
                    lambda s: any("billing" in x and "1,000" in x for x in s.lines), 30, "the lag"
                )
                program.press("5")
                program.wait_for("This cluster has no event log", 30)
                program.press("2")
                program.wait_for("orders-0")
                program.press("/orders-0" + ENTER + ENTER)
                program.wait(lambda s: sum("LEO" in x for x in s.lines) == 3, 30, "its replicas")
                leader = cluster.leader(topic, 0)
                cluster.kill(leader)
                program.wait(
                    lambda s: any(f"−{leader}" in x for x in s.lines), 60, "who is out of sync"
                )
                program.wait(
                    lambda s: f"leader {leader} " not in program.text, 60, "another leader"
                )
                program.wait_for("does not answer", 30)
                assert f"roker {leader}" in program.screen.lines[1], program.text
                program.press("e")
                program.wait_for("What to do:", 60)
                program.press("q")
                assert program.wait_end() == 0
                program.assert_terminal_as_before()


def write(cluster: ProcessCluster, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def commit(cluster: ProcessCluster, topic: str) -> bool:
    """A group that has read nothing."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "log_level": 0}
    )
    try:
        place = confluent_kafka.TopicPartition(topic, 0, 0)
        consumer.commit(offsets=[place], asynchronous=False)
        return True
    except confluent_kafka.KafkaException:
        return False  # the coordinator's topic is not there yet
    finally:
        consumer.close()
