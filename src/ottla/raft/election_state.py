"""The `quorum-state` file: the epoch that a node has reached, the leader it knows there and the vote it gave.

The file is on disk before anything that follows from it leaves the node. Without it, a restarted node could vote
twice in one epoch (M1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ottla.raft.voters import ReplicaKey
from ottla.runtime.seams import Disk
from ottla.wire.types import ZERO_UUID, uuid_from_text, uuid_to_text

FILE_NAME = "quorum-state"
NEWBORN = "ottlaNewborn"


class CorruptQuorumState(Exception):
    """The file exists and cannot be read. A voter must not guess how it had voted."""


class ElectionState(NamedTuple):
    """What the file says (Kafka's ElectionState)."""

    epoch: int = 0
    leader: int | None = None
    voted: ReplicaKey | None = None
    is_newborn: bool = False
    """A static voter on a disk that was empty has no vote yet (see `newborn`)."""

    def in_epoch(self, epoch: int) -> ElectionState:
        """What stays of it in `epoch`: in a newer one there is no leader and no vote yet."""
        if epoch == self.epoch:
            return self
        return ElectionState(epoch, is_newborn=self.is_newborn)


def encode_state(state: ElectionState, *, kraft_version: int, voters: Sequence[int]) -> bytes:
    """Kafka's JSON: version 1 names the directory of the vote, version 0 the static voters."""
    leader = -1 if state.leader is None else state.leader
    voted = -1 if state.voted is None else state.voted.id
    fields: dict[str, object]
    if kraft_version >= 1:
        directory = state.voted.directory if state.voted is not None else None
        fields = {
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "votedDirectoryId": uuid_to_text(directory or ZERO_UUID),
            "data_version": 1,
        }
    else:
        fields = {
            "clusterId": "",
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    if state.is_newborn:
        fields[NEWBORN] = True  # Kafka ignores fields that it does not know
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(data: bytes, path: str) -> ElectionState:
    try:
        fields = json.loads(data)
        version, epoch = int(fields["data_version"]), int(fields["leaderEpoch"])
        leader, voted = int(fields["leaderId"]), int(fields["votedId"])
        directory = uuid_from_text(fields["votedDirectoryId"]) if version >= 1 else ZERO_UUID
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptQuorumState(f"{path}: {error!r}") from error
    if version not in (0, 1) or epoch < 0:
        raise CorruptQuorumState(f"{path}: version {version}, epoch {epoch}")
    vote = ReplicaKey(voted, None if directory == ZERO_UUID else directory)
    return ElectionState(
        epoch,
        None if leader < 0 else leader,
        None if voted < 0 else vote,
        bool(fields.get(NEWBORN, False)),
    )


class QuorumStateFile:
    """The file in its directory. `kraft_version` and the static voters decide its format."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{FILE_NAME}"

    @property
    def exists(self) -> bool:
        return self._disk.exists(self.path)

    def read(self) -> ElectionState:
        if not self.exists:
            return ElectionState()
        return decode_state(self._disk.read(self.path), self.path)

    def write(self, state: ElectionState, *, kraft_version: int, voters: Sequence[int]) -> None:
        """Returns when it would survive a power loss."""
        data = encode_state(state, kraft_version=kraft_version, voters=voters)
        self._disk.replace(self.path, data, durable=True)
