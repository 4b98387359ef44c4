"""KeptRecords: operators list, read and mark the lost records that this broker keeps (`ottla losses`, `ottla recover`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.server.connections import Request
from ottla.log.kept_records import KeptRecords
from ottla.log.manager import LogManager
from ottla.runtime import Chunk, FileRange
from ottla.security.needs import ALTER_CLUSTER, DESCRIBE_CLUSTER, READ_TOPIC
from ottla.wire import kept_records as wire
from ottla.wire.errors import InvalidFrame
from ottla.wire.types import is_valid_topic_name

REFUSAL = (
    "authorization failed: to list needs DESCRIBE on the cluster, to mark ALTER on the cluster, "
    "to read that and READ on the topic"
)


class KeptRecordsHandler:
    def __init__(self, logs: LogManager) -> None:
        assert logs.kept is not None, "a broker keeps lost records"
        self._logs = logs
        self._kept: KeptRecords = logs.kept

    def __call__(self, request: Request) -> None:
        """Not of Kafka's protocol, so ApiVersions does not announce it."""
        question = wire.read_request(request.frame, request.header.body)
        need = DESCRIBE_CLUSTER if question["ask"] == "list" else ALTER_CLUSTER
        if not need.met(request.rights):
            self._answer(request, {"error": REFUSAL})
            return
        match question["ask"]:
            case "list":
                listed = [kept.manifest.as_json() for kept in self._kept.kept.values()]
                self._answer(request, {"error": None, "kept": listed})
            case "read":
                self._read(request, question)
            case "recovered":
                self._recovered(request, question)
            case unknown:
                raise InvalidFrame(f"KeptRecords cannot {unknown!r}")

    def _read(self, request: Request, question: Mapping[str, Any]) -> None:
        kept = self._kept.kept.get(question.get("id", ""))
        if kept is None:
            self._answer(request, {"error": "nothing is kept under this id (any more)"})
            return
        if not READ_TOPIC.met(request.rights, kept.manifest.topic):
            self._answer(request, {"error": REFUSAL})
            return
        position = question.get("position", 0)
        left = min(question.get("max_bytes", wire.READ_BYTES_MAX), wire.READ_BYTES_MAX)
        size = 0
        chunks: list[Chunk] = []
        disk = self._logs.disk
        try:
            for path in self._kept.files_of(kept):
                bytes_there = disk.file_size(path)
                begin = max(0, position - size)
                length = min(bytes_there - begin, left)
                if length > 0:
                    chunks.append(FileRange(disk.open(path), begin, length))
                    left -= length
                    position += length
                size += bytes_there
        except OSError as error:
            self._answer(request, {"error": f"what is kept cannot be read: {error}"})
            return
        self._answer(request, {"error": None, "size": size}, chunks)

    def _recovered(self, request: Request, question: Mapping[str, Any]) -> None:
        id, topic = question.get("id", ""), question.get("topic", "")
        if not is_valid_topic_name(topic):
            raise InvalidFrame(f"KeptRecords with a topic {topic!r}")
        error = None
        if id in self._kept.kept:
            try:
                self._kept.recovered(id, topic)
            except OSError as failure:
                error = f"the manifest was not written: {failure}"
        self._answer(request, {"error": error})

    def _answer(
        self, request: Request, answer: Mapping[str, Any], records: list[Chunk] | None = None
    ) -> None:
        request.respond_chunks([wire.write_response(answer), *(records or ())])
