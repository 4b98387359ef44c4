"""What `sitecustomize` switches on: a look at every request that a listener takes."""

from __future__ import annotations

import json
import os
from typing import Any


def record_requests(directory: str) -> None:
    from ottla.broker.server import connections
    from ottla.wire.apis import ApiKey
    from ottla.wire.errors import InvalidFrame
    from ottla.wire.headers import read_request_header
    from ottla.wire.messages import read_request

    received = connections.ServerConnection.frame_received
    software: dict[Any, tuple[str, str]] = {}
    seen: set[tuple[str, str, str, str, int]] = set()

    def note(connection: Any, frame: memoryview) -> None:
        try:
            header = read_request_header(frame)
            if header.api_key == ApiKey.API_VERSIONS and 3 <= header.api_version <= 4:
                message = read_request(header.api_key, header.api_version, frame, header.body)
                who = (message.client_software_name, message.client_software_version)
                software[connection] = who
                connection.on_close.append(lambda: software.pop(connection, None))
        except InvalidFrame:
            return
        name, version = software.get(connection, ("", ""))
        api = ApiKey(header.api_key).name
        entry = (name, version, header.client_id or "", api, header.api_version)
        if entry not in seen:
            seen.add(entry)
            with open(f"{directory}/{os.getpid()}.jsonl", "a") as file:
                file.write(json.dumps(entry) + "\n")

    def frame_received(self: Any, frame: memoryview) -> None:
        note(self, frame)
        received(self, frame)

    connections.ServerConnection.frame_received = frame_received  # type: ignore[method-assign]
