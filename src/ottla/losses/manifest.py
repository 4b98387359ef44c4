"""The manifest of kept records: one JSON object beside the batches that a truncation, or a stray log, took away.

first_offset         the first record that was taken away
committed_end        the records below it were committed: this replica knew that. They are lost for certain.
end_offset           the end of what was taken away. Between the two nobody here knows: another replica may have known more.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

FILE = "ottla-kept.json"
VERSION = 1


class BadManifest(Exception):
    """The file is not a manifest, or not one that this version can read."""


class LossKind(StrEnum):
    TRUNCATION = "truncation"
    RESTART = "restart"
    """The log was emptied because the leader's log begins after it, and nobody knows where they ceased to agree: what was
    deleted on the leader is no loss, what it never had is one."""
    STRAY_LOG = "stray_log"


class State(StrEnum):
    CUTTING = "cutting"
    """The records are about to be cut off. If the process died here, the next start looks how far it came."""
    KEPT = "kept"
    NOT_KEPT = "not_kept"
    """They are gone: there was no room."""


class EpochRange(NamedTuple):
    """Records [first, end) that the leader of this epoch wrote."""

    epoch: int
    first: int
    end: int


class Manifest(NamedTuple):
    id: str
    kind: LossKind
    state: State
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    committed_end: int
    end_offset: int
    epochs: tuple[EpochRange, ...]
    records: int
    """Offsets, or records where compaction left gaps. Markers of transactions count."""
    bytes: int
    at_ms: int
    cause: str
    leader: int
    leader_epoch: int
    broker: int
    why_not: str | None = None
    """Why they are not kept."""
    recovered_to: str | None = None
    """The topic into which `ottla recover` has copied them."""

    def as_json(self) -> dict[str, Any]:
        return {"version": VERSION, **self._asdict()}


TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "topic", "topic_id", "cause"), (str,)),
    **dict.fromkeys(("partition", "first_offset", "committed_end", "end_offset"), (int,)),
    **dict.fromkeys(("records", "bytes", "at_ms", "leader", "leader_epoch", "broker"), (int,)),
    **dict.fromkeys(("why_not", "recovered_to"), (str, type(None))),
    "epochs": (list, tuple),
}
"""Of all fields but the two enumerations, as JSON gives them."""


def text_of(manifest: Manifest) -> bytes:
    return (json.dumps(manifest.as_json()) + "\n").encode()


def parse(text: bytes | str) -> Manifest:
    try:
        return from_json(json.loads(text))
    except (ValueError, UnicodeDecodeError) as error:
        raise BadManifest(f"no manifest of kept records: {error}") from error


def from_json(fields: Any) -> Manifest:
    try:
        if fields["version"] != VERSION:
            raise BadManifest(f"a manifest of version {fields['version']}; this is {VERSION}")
        values = {name: fields[name] for name in Manifest._fields}
        for name, value in values.items():
            if name in TYPES and type(value) not in TYPES[name]:
                raise BadManifest(f"a manifest with {name}={value!r}")
        values["kind"] = LossKind(values["kind"])
        values["state"] = State(values["state"])
        values["epochs"] = tuple(EpochRange(*map(int, each)) for each in values["epochs"])
        return Manifest(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise BadManifest(f"no manifest of kept records: {error!r}") from error
