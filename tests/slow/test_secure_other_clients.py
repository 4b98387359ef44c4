"""The files of `ottla up --secure` for clients that are not Python: Java, Go (franz-go and sarama), kafkajs, Spark's connector.

They come from Maven Central, the Go proxy and npm, with the machine's own tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.cluster import Cluster
from support.kafka_jars import run_tool
from support.other_languages import command, go_programme, install_kafkajs
from support.spark_sources import SparkConnector

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 50
WITH_FRANZ_GO = """package main

import (
	"context"
	"fmt"
	"time"

	"example/franzgo"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	options, err := franzgo.Options()
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(append(options, kgo.ConsumeTopics("%(topic)s"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	background, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := 0; i < %(count)d; i++ {
		record := &kgo.Record{Topic: "%(topic)s", Value: []byte(fmt.Sprint(i))}
		if err := client.ProduceSync(background, record).FirstErr(); err != nil {
			panic(err)
		}
	}
	read := 0
	for read < %(count)d {
		fetched := client.PollFetches(background)
		if err := fetched.Err(); err != nil {
			panic(err)
		}
		read += fetched.NumRecords()
	}
	fmt.Println("read", read)
}
"""
WITH_SARAMA = """package main

import (
	"fmt"
	"time"

	"example/saramaconfig"

	"github.com/IBM/sarama"
)

func main() {
	config, brokers, err := saramaconfig.Config()
	if err != nil {
		panic(err)
	}
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		panic(err)
	}
	for i := 0; i < %(count)d; i++ {
		message := &sarama.ProducerMessage{Topic: "%(topic)s", Value: sarama.StringEncoder(fmt.Sprint(i))}
		if _, _, err := producer.SendMessage(message); err != nil {
			panic(err)
		}
	}
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		panic(err)
	}
	partition, err := consumer.ConsumePartition("%(topic)s", 0, sarama.OffsetOldest)
	if err != nil {
		panic(err)
	}
	for read := 0; read < %(count)d; read++ {
		select {
		case <-partition.Messages():
		case <-time.After(time.Minute):
			panic("no message")
		}
	}
	fmt.Println("read", %(count)d)
}
"""
WITH_KAFKAJS = """
const { Kafka, logLevel } = require("kafkajs");
const settings = JSON.parse(require("fs").readFileSync(process.argv[2], "utf8"));
async function main() {
  const kafka = new Kafka({ ...settings, logLevel: logLevel.ERROR });
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: %(count)d }, (_, i) => ({ value: String(i) }));
  await producer.send({ topic: "%(topic)s", messages });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "alice-js" });
  await consumer.connect();
  await consumer.subscribe({ topic: "%(topic)s", fromBeginning: true });
  let read = 0;
  await new Promise((done) =>
    consumer.run({ eachMessage: async () => { if (++read === %(count)d) done(); } }));
  await consumer.disconnect();
  console.log("read", read);
}
main().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def secure() -> Iterator[Cluster]:
    with Cluster(1, security="sasl_ssl") as made:
        made.add_user("alice", produce=["alice-*"], consume=["alice-*"], groups=["alice-*"])
        yield made


def count_in(cluster: Cluster, topic: str) -> int:
    consumer = Consumer(cluster.client_settings() | {"group.id": "count"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    finally:
        consumer.close()


def test_java(secure: Cluster) -> None:
    topic = secure.create_topic("alice-java")
    file = secure.client_directory("alice") / "java.properties"
    run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(COUNT), "--record-size", "10"),
        *("--throughput", "-1", "--producer.config", file),
    )
    assert count_in(secure, topic) == COUNT
    shown = run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--list", "--bootstrap-server", secure.get_bootstrap_server(), "--command-config", file),
    )
    assert shown.split() == [name for name in shown.split() if name.startswith("alice-")]
    assert topic in shown.split()


@pytest.mark.parametrize(
    ("package", "programme"), [("franzgo", WITH_FRANZ_GO), ("saramaconfig", WITH_SARAMA)]
)
def test_go(secure: Cluster, tmp_path: Path, package: str, programme: str) -> None:
    topic = secure.create_topic(f"alice-{package}")
    text = programme % {"topic": topic, "count": COUNT}
    built = go_programme(tmp_path, package, text, secure.client_directory("alice"))
    assert command(built, where=tmp_path) == f"read {COUNT}\n"
    assert count_in(secure, topic) == COUNT


def test_kafkajs(secure: Cluster, tmp_path: Path) -> None:
    topic = secure.create_topic("alice-js")
    install_kafkajs(tmp_path)
    (tmp_path / "main.js").write_text(WITH_KAFKAJS % {"topic": topic, "count": COUNT})
    settings = str(secure.client_directory("alice") / "kafkajs.json")
    assert command("node", "main.js", settings, where=tmp_path) == f"read {COUNT}\n"


def test_sparks_own_connector(secure: Cluster, tmp_path: Path) -> None:
    topic = secure.create_topic("alice-spark")
    file = secure.client_directory("alice") / "spark.json"
    options = json.loads(file.read_text())
    with SparkConnector(tmp_path) as connector:
        connector("write", bootstrap=secure.get_bootstrap_server(), topic=topic, start=0, end=COUNT, options=options)  # fmt: skip
        rows = connector("read", bootstrap=secure.get_bootstrap_server(), topic=topic, options=options)  # fmt: skip
    assert len(rows) == COUNT
