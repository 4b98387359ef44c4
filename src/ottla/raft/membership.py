"""What a controller asks of its leader about its own place among the voters (KIP-853).

A voter that listens at another address than the voters say has them corrected. A controller that may join by itself
(controller.quorum.auto.join.enable) has itself added. If the disk of a voter was replaced, its former identity is removed first:
it has the same id and will never vote again.

A static voter tells each leader which directory it has, so that its place can be written into the log some day
(`kraft_version_upgrade`).
"""

from __future__ import annotations

from ottla.raft.journal import Journal
from ottla.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from ottla.raft.voter_changes import RECONFIGURABLE_FROM
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter


def wanted_change(
    key: ReplicaKey,
    endpoint: QuorumEndpoint | None,
    journal: Journal,
    epoch: int,
    *,
    may_join: bool,
    has_told_leader: bool,
    timeout_s: float,
) -> AddVoter | RemoveVoter | UpdateVoter | None:
    """None if everything is as it should be. `endpoint` is None on a node that is no controller."""
    if endpoint is None:
        return None
    are_static = journal.kraft_version < RECONFIGURABLE_FROM
    if are_static and has_told_leader:
        return None
    voters, myself = journal.voters, Voter(key.id, key.directory, (endpoint,))
    if are_static:
        return UpdateVoter(epoch, myself) if voters.has(key) else None
    if voters.has(key):
        return UpdateVoter(epoch, myself) if voters.has_moved(key, endpoint) else None
    if not may_join:
        return None
    former = voters.get(key.id)
    if former is not None:
        return RemoveVoter(former.key)
    return AddVoter(myself, timeout_s, ack_when_committed=False)
