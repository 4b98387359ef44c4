"""Somebody else's asyncio program inside the simulation: aiokafka's producer, unmodified.

The broker is a stand-in with one partition that answers three requests and is killed now and then. What is
shown is that the program runs on the simulated transports, sees the faults, and repeats with the seed.
"""

from __future__ import annotations

from ottla.runtime import Connection, Runtime
from ottla.sim import World, borrowed_time
from ottla.wire import messages, produce
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_request_header, response_chunks, response_header

PORT = 9092


class StandIn:
    """Appends what is produced to a file, flushes, acknowledges."""

    def __init__(self, runtime: Runtime, connection: Connection) -> None:
        self.connection = connection
        self.file = runtime.disk.open("/log", create=True)
        runtime.disk.flush_dir("/")

    def frame_received(self, frame: memoryview) -> None:
        header = read_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        if key is ApiKey.API_VERSIONS:
            ranges = {ApiKey.API_VERSIONS: (0, 0), ApiKey.METADATA: (0, 5), ApiKey.PRODUCE: (0, 7)}
            keys = [
                {"api_key": int(api), "min_version": low, "max_version": high}
                for api, (low, high) in ranges.items()
            ]
            body = messages.write_response(key, version, {"error_code": 0, "api_keys": keys})
        elif key is ApiKey.METADATA:
            body = messages.write_response(key, version, self.metadata())
        else:
            assert key is ApiKey.PRODUCE
            body = self.produced(version, frame, header.body)
        answer = response_header(key, version, header.correlation_id)
        self.connection.send(response_chunks(answer, [body]))

    def metadata(self) -> dict[str, object]:
        partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        return {
            "brokers": [{"node_id": 1, "host": "broker", "port": PORT, "rack": "r"}],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [{"name": "t", "is_internal": False, "partitions": [partition]}],
        }

    def produced(self, version: int, frame: memoryview, offset: int) -> bytes:
        request = produce.read_request(version, frame, offset)
        results = []
        for data in request.partitions:
            assert data.records is not None
            self.file.append(bytes(data.records))
            results.append(
                produce.PartitionResult(
                    data.topic, data.topic_id, data.partition, 0, self.file.size
                )
            )
        self.file.flush()
        return produce.write_response(version, results)

    def connection_lost(self, reason: str) -> None:
        self.file.close()


def run(seed: int) -> tuple[str, int]:
    """(hash of the trace, connections that were made) of 300 records through a killed broker."""
    with World(seed, keep_trace=True) as world, borrowed_time(world):
        from aiokafka import AIOKafkaProducer

        world.network.conditions.cut_rate = 0.5
        world.network.conditions.spike_rate = 0.1
        broker, client = world.node("broker"), world.node("client")

        def start() -> None:
            broker.complete(
                broker.runtime.network.listen(
                    "", PORT, lambda c: StandIn(broker.runtime, c), frame_bytes_max=1 << 20
                )
            )

        started: list[bool] = []

        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=f"broker:{PORT}", client_id="c", acks="all", linger_ms=1
            )
            await producer.start()
            started.append(True)
            for number in range(300):
                await producer.send_and_wait(
                    "t", b"record %d" % number, partition=0, timestamp_ms=1_000 + number
                )
            await producer.stop()

        start()
        task = client.run(work())
        assert world.run_until(lambda: bool(started), 30)
        for _ in range(5):
            world.run_until(task.done, 0.3)
            broker.kill(power_loss=False)
            start()
        assert world.run_until(task.done, 120)
        task.result()
        broker.kill(power_loss=True)
        content = broker.disk.read("/log")
        assert all(b"record %d" % number in content for number in range(300))
        assert world.loop.unhandled == []
        connections = [line for line in world.loop.trace.lines or () if " connect " in line]
        return world.digest(), len(connections)


def test_aiokafka_produces_through_kills_and_repeats_with_the_seed() -> None:
    digest, connections = run(1)
    assert connections > 3
    assert run(1)[0] == digest
    assert run(2)[0] != digest
