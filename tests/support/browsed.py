"""A cluster, its console, and a browser that looks at it: for tests of the console's pages."""

from __future__ import annotations

from urllib.parse import urlsplit

from confluent_kafka import Consumer, Producer, TopicPartition

from support.chromium import Chromium
from support.cluster import ClusterNotReady, ProcessCluster
from support.console import ConsoleProcess

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PAGES = ("/", "/timeline", "/groups", "/groups/billing", "/messages", "/messages/orders", "/topics", "/topics/orders", "/topics/orders/0", "/brokers/1", "/moves", "/transactions", "/security", "/lab")  # fmt: skip


class Browsed:
    """A cluster, its console, and a browser that looks at it."""

    def __init__(self, cluster: ProcessCluster, console: ConsoleProcess, browser: Chromium) -> None:
        self.cluster = cluster
        self.console = console
        self.browser = browser

    def visit(
        self, path: str, width: int = 1300, height: int = 900, scheme: str = "light"
    ) -> Chromium:
        self.browser.resize(width, height, scheme)
        self.browser.visit(self.console.url + path)
        self.browser.wait_for("document.querySelector('h1')")
        return self.browser

    def produce(self, topic: str, values: list[str], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(topic, value, key="k", partition=partition, headers={"source": "test"})
        assert producer.flush(30) == 0

    def is_well(self) -> bool:
        """As the console sees it."""
        with self.console.page("plain") as page:
            page.wait(lambda p: p.events, 10, "an event")
            if problems := page.table("problems"):
                raise ClusterNotReady(str(problems))
            return True

    def fill(self) -> None:
        """A topic with records, and a group that has read it, so that every page has something to show."""
        self.cluster.create_topic("orders", 3)
        self.produce("orders", [f'{{"id": {n}, "customer": "c{n % 7}"}}' for n in range(50)])
        commit(self.cluster, "billing", 50)

    def assert_clean(self) -> None:
        """The browser complains about nothing, and asked nobody else."""
        complaints = self.browser.complaints()
        assert not complaints, complaints
        hosts = {urlsplit(each).netloc for each in self.browser.requested()}
        assert hosts <= {self.console.host, ""}, hosts


def commit(
    cluster: ProcessCluster, group: str, offset: int | None = None, topic: str = "orders"
) -> None:
    """Of partition 0; without an offset all of it."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    if offset is None:
        _, offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
