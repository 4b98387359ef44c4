"""Logs, decisions and messages as text, for the output of the golden scripts.

A log is written `[m0@0/0 m1@1/2]`: value, offset, and the leader epoch of the batch. Brackets are batches. Of a long
batch only the first and last record are written, `[r0@0/1 .. r9@9/1]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.records.batch import Batch, batches
from ottla.records.record import ControlType, Record, control_type
from ottla.records.record import records as records_of
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.scripts.held_messages import InterceptedMessage
from ottla.wire import fetch, messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition
from ottla.wire.headers import read_response_header

SHORT_BATCH_MAX = 4


def log_text(data: bytes | bytearray | memoryview) -> str:
    """The batches in `data`."""
    texts = []
    for batch in batches(data, allow_partial=True):
        each = [
            f"{_record_text(record, batch)}@{record.offset}/{batch.leader_epoch}"
            for record in records_of(data, batch)
        ]
        if len(each) > SHORT_BATCH_MAX:
            each = [each[0], "..", each[-1]]
        texts.append(f"[{' '.join(each)}]")
    return " ".join(texts) or "[]"


def _record_text(record: Record, batch: Batch) -> str:
    if batch.is_control:
        return ControlType(control_type(record)).name
    return (record.value or b"").decode()


def ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "none"


def decision_text(decided: PartitionImage) -> str:
    text = f"leader {'none' if decided.leader == NO_LEADER else decided.leader}"
    text += f", epoch {decided.leader_epoch}, ISR {ids(decided.isr)}"
    if decided.elr:
        text += f", ELR {ids(decided.elr)}"
    if decided.last_known_elr:
        text += f", last known leader {ids(decided.last_known_elr)}"
    if decided.leader_recovery_state == RECOVERING:
        text += ", RECOVERING: records may be lost"
    return text


def message_text(message: InterceptedMessage, names: Sequence[str]) -> str:
    """`1->2 fetch …`, or the response in the other direction. `names`: the hosts, the last one the controller."""
    client, server = message.connection.client, message.connection.server
    if message.request is None:
        return f"{_name(client, names)}->{_name(server, names)} {_request_text(message)}"
    return f"{_name(server, names)}->{_name(client, names)} {_answer_text(message)}"


def _name(host: str, names: Sequence[str]) -> str:
    return "controller" if host == names[-1] else host.removeprefix("n")


def is_replication(message: InterceptedMessage) -> bool:
    return message.kind.api is ApiKey.FETCH and message.kind.port == BROKER_PORT


def _request_text(message: InterceptedMessage) -> str:
    frame, header = memoryview(message.frame), message.header
    if is_replication(message):
        request = fetch.read_request(header.api_version, frame, header.body)
        return "fetch: " + (", ".join(map(_asked_text, request.partitions)) or "as before")
    if message.kind.api is ApiKey.ALTER_PARTITION:
        asked = messages.read_request(message.kind.api, header.api_version, frame, header.body)
        wishes = [wish for topic in asked.topics for wish in topic.partitions]
        return "alter partition: " + ", ".join(
            f"ISR {ids(member.broker_id for member in wish.new_isr_with_epochs)} in epoch "
            f"{wish.leader_epoch}"
            for wish in wishes
        )
    if message.kind.api is ApiKey.END_TXN:
        asked = messages.read_request(message.kind.api, header.api_version, frame, header.body)
        return f"end txn: {'commit' if asked.committed else 'abort'}, epoch {asked.producer_epoch}"
    return message.kind.api.name.lower().replace("_", " ")


def _asked_text(asked: FetchPartition) -> str:
    last = "none" if asked.last_fetched_epoch < 0 else asked.last_fetched_epoch
    return f"offset {asked.fetch_offset}, last epoch {last} (in epoch {asked.current_leader_epoch})"


def _answer_text(message: InterceptedMessage) -> str:
    version, frame = message.header.api_version, memoryview(bytearray(message.frame))
    _, body = read_response_header(message.kind.api, version, frame)
    if is_replication(message):
        response = fetch.read_response(version, frame, body)
        if response.error:
            return f"answer: {ErrorCode(response.error).name}"
        return "answer: " + (", ".join(map(fetched_text, response.partitions)) or "nothing new")
    if message.kind.api is ApiKey.ALTER_PARTITION:
        answer = messages.read_response(message.kind.api, version, frame, body)
        if int(answer.error_code):
            return f"answer: {ErrorCode(int(answer.error_code)).name}"
        results = [result for topic in answer.topics for result in topic.partitions]
        return "answer: " + ", ".join(
            ErrorCode(int(result.error_code)).name
            if int(result.error_code)
            else f"ISR {ids(result.isr)}"
            for result in results
        )
    if message.kind.api is ApiKey.END_TXN:
        answer = messages.read_response(message.kind.api, version, frame, body)
        return f"answer: {ErrorCode(int(answer.error_code)).name}"
    return f"answer: {message.kind.api.name.lower().replace('_', ' ')}"


def fetched_text(found: FetchedPartition) -> str:
    if found.error:
        return ErrorCode(found.error).name
    if found.diverging is not None:
        epoch, end = found.diverging
        return f"diverging, epoch {epoch} ends at {end}"
    assert found.records is None or isinstance(found.records, memoryview)
    aborted = "".join(f", aborted from {first}" for _, first in found.aborted or ())
    return f"{log_text(found.records or b'')}, HW {found.high_watermark}{aborted}"
