"""A transactional producer of transaction.version 2, byte by byte: each request when and where the test says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ottla.records.record import Record, build
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import NodeProcess, ProcessCluster, wait_until

PRODUCE_VERSION = 12
TRY_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@dataclass
class Producer:
    cluster: ProcessCluster
    transactional_id: str
    timeout_ms: int = 60_000
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    @property
    def coordinator(self) -> NodeProcess:
        def found() -> NodeProcess | None:
            answer = self.cluster.ask(
                self.cluster.up[0],
                ApiKey.FIND_COORDINATOR,
                4,
                {"key_type": 1, "coordinator_keys": [self.transactional_id]},
            )
            (one,) = answer.coordinators
            return self.cluster.nodes[one.node_id] if one.error_code == 0 else None

        found_node = wait_until(found, 20, "a coordinator")
        assert found_node is not None
        return found_node

    def init(self) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self.timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self._until_decided(ApiKey.INIT_PRODUCER_ID, 5, fields)
        assert answer.error_code == 0, answer
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def end_fields(self, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }

    def end(self, commit: bool, fields: dict[str, Any] | None = None) -> ErrorCode:
        answer = self._until_decided(ApiKey.END_TXN, 5, fields or self.end_fields(commit))
        if answer.error_code == 0 and fields is None:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(int(answer.error_code))

    def _until_decided(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        def answered() -> Any:
            answer = self.cluster.ask(self.coordinator, key, version, fields)
            return None if int(answer.error_code) in TRY_AGAIN else answer

        return wait_until(answered, 20, f"an answer to {key.name}")

    def send(self, topic: str, value: str) -> ErrorCode:
        """Without telling the coordinator first: the leader does."""

        def answered() -> tuple[ErrorCode] | None:
            code = self.send_once(topic, value)
            return None if code in TRY_AGAIN else (code,)

        found = wait_until(answered, 20, "an answer to Produce")
        assert found is not None
        (error,) = found
        if error is ErrorCode.NONE:
            self.sequence += 1
        return error

    def send_once(self, topic: str, value: str) -> ErrorCode:
        batch = build(
            [Record(0, int(time.time() * 1000), None, value.encode())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        data = produce.PartitionData(topic, None, 0, memoryview(batch))
        request = produce.ProduceRequest(self.transactional_id, -1, 10_000, [data])
        leader = self.cluster.nodes[self.cluster.leader(topic)]
        body = produce.write_request(PRODUCE_VERSION, request)
        frame, position = self.cluster.exchange(leader, ApiKey.PRODUCE, PRODUCE_VERSION, body)
        (result,) = produce.read_response(PRODUCE_VERSION, frame, position).results
        return ErrorCode(result.error)
