"""The exactly-once sink with Apache Kafka as its target: the same steps, the same outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import Client
from ottla.client.transaction_admin import TransactionAdmin
from ottla.spark.write.decisions import CommitRefused, withdrawing
from ottla.wire.errors import KafkaError
from support.cluster import ProcessCluster, wait_until
from support.kafka_server import kafka_instead
from support.sink import Died, Sink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

STEPS = (
    "ListOpen",
    "Propose",
    "CheckOpen",
    "Confirm",
    "CommitTransactions",
    "RecordDecision",
    "Abort",
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory: Path = tmp_path_factory.mktemp("kafka")
    overrides = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with ProcessCluster(directory, 1, overrides) as cluster:
        cluster.stop(1)
        with kafka_instead(cluster):
            cluster.create_topic("first")
            wait_until(lambda: has_coordinators(cluster), 120, "transactions have coordinators")
            yield cluster


def has_coordinators(cluster: ProcessCluster) -> bool:
    """A new cluster makes the topic of its transactions when somebody first asks."""
    sink = Sink(cluster, "first")
    try:
        sink.commit("run", sink.write("run"))
    except KafkaError as error:
        if not error.retriable:
            raise
        return False
    return True


@pytest.fixture
def sink(kafka: ProcessCluster, request: pytest.FixtureRequest) -> Sink:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Sink(kafka, kafka.create_topic(name))


def test_batches_become_visible_with_epochs_of_their_own(sink: Sink) -> None:
    for batch in range(3):
        sink.commit("run", sink.write("run", batch), batch)
    sink.becomes_visible(sink.all_rows(0, 1, 2))
    (version,) = {each.identity.version for each in sink.write("run", 3)}
    assert version == 2


@pytest.mark.parametrize("step", STEPS)
def test_the_driver_dies_before_a_step(sink: Sink, step: str) -> None:
    with pytest.raises(Died):
        sink.commit("one", sink.write("one"), dies_before=step)
    sink.commit("two", sink.write("two"))
    sink.commit("two", sink.write("two", 1), 1)
    sink.becomes_visible(sink.all_rows(0, 1))


def test_a_decision_is_kept_after_the_transaction_timeout(sink: Sink) -> None:
    with pytest.raises(Died):
        sink.commit("one", sink.write("one", timeout_ms=15_000), dies_in=(1, 1))
    wait_until(lambda: not sink.is_open(), 60, "the timeout has aborted the others")
    with pytest.raises(CommitRefused, match="task 1"):
        sink.commit("other", sink.write("other", seed=" is different"))
    sink.commit("two", sink.write("two"))
    sink.becomes_visible(sink.all_rows(0))


def test_a_batch_that_is_given_up_after_its_decision_stays_decided(sink: Sink) -> None:
    with pytest.raises(Died):
        sink.commit("one", sink.write("one"), dies_in=(1, 2))
    sink.drive(withdrawing(sink.query, "one", 0))
    sink.commit("two", sink.write("two"))
    sink.becomes_visible(sink.all_rows(0))


def test_what_was_committed_stays_committed_when_its_id_is_used_again(sink: Sink) -> None:
    """Its coordinator knows only of the later one; the log knows."""
    with pytest.raises(Died):
        sink.commit("one", sink.write("one"), dies_in=(1, 1))

    async def use_again(client: Client) -> None:
        await TransactionAdmin(client).init(f"ottla-sink/{sink.query}/one/0/0", 60_000)

    sink.ask(use_again)
    sink.commit("two", sink.write("two"))
    sink.becomes_visible(sink.all_rows(0))
