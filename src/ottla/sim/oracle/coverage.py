"""Which rare states a run has met: a thousand seeds prove nothing about what never happened in them.

`mark` counts a rare state. The observers call it where the product does something rare, the checkers and clients where
they see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ottla.sim.engine.disk import CHANGES

RARE: Mapping[str, str] = {
    # Name (also in files of results): what happened then.
    "leader moved in sync": "leadership moved to another member of the ISR, and the ISR did not change",
    "leader from the ELR": "the ISR was empty, and an eligible leader replica was elected",
    "last known leader": "ISR and ELR were empty, and the last known leader was elected as RECOVERING",
    "unclean election": "another replica was elected, with losses, because the topic allows it",
    "no leader": "no replica that may lead was alive",
    "in the ELR": "a replica left an ISR below its minimum and stayed eligible",
    "truncation": "a follower truncated records that its leader does not have",
    "truncation in two rounds": "a follower truncated twice before its log agreed with its leader's",
    "truncation across segments": "a truncation removed whole segments",
    "committed records truncated": "a follower truncated committed records, and logged it",
    "tail lost": "a machine lost records in a power loss",
    "torn tail cut": "recovery found a damaged or incomplete batch at the end of a log",
    "log set aside": "a log was unusable after a power loss and is copied again",
    "clean stop recognized": "a broker registered after a clean stop and said so",
    "log directory failed": "a disk failed under a running broker",
    "fenced and back": "a live broker was fenced, and unfenced without a restart",
    "ISR expansion refused": "the controller refused a new member",
    "ISR shrink refused": "the controller refused to remove a member",
    "below the epoch's start": "a follower had all below the HW, but ended below the start of the leader's epoch",
    "restarted member refused": "a proposed member had restarted since its leader saw it (KIP-903)",
    "retry answered with its offset": "a batch was in the log already",
    "too few replicas": "acks=all was refused because the ISR was too small",
    "too few replicas after append": "the ISR shrank while a produce was parked",
    "parked produce lost its leader": "leadership ended while a produce was parked",
    "parked produce timed out": "a produce was parked for longer than its client allowed",
    "end not available": "a new leader could not answer ListOffsets(latest) yet",
    "older epoch refused": "a request named an epoch that is over",
    "newer epoch refused": "a request named an epoch that its receiver did not know yet",
    "session evicted": "a fetch session was removed to make room for another",
    "records expired": "retention removed segments",
    "log compacted": "compaction removed records",
    "tombstone kept": "a key of the compacted topic had a tombstone at the end",
    "tombstone forgotten": "a key of the compacted topic was deleted, and its tombstone had expired",
    "began anew": "a follower's log end was outside of its leader's log, so its log began again",
    "pre-vote rejected": "a voter rejected a pre-vote",
    "vote rejected": "a voter rejected a vote",
    "quorum leader gave up": "a leader of the quorum resigned because no majority fetched from it",
    "metadata truncated": "a voter truncated records that were not committed",
    "voter added": "a controller became a voter",
    "voter removed": "a voter was removed",
    "voter upgraded": "static voters became voters of the log",
    "removed leader resigned": "a leader of the quorum was removed, committed that, and resigned",
    "voter change undone": "a change of the voters was truncated",
    "snapshot fetched": "a node was so far behind that it fetched a checkpoint",
    "damage seen by a consumer": "a consumer rejected a batch that a broker's disk had damaged",
    "damage seen by a follower": "a follower rejected a batch that its leader's disk had damaged",
    "reassigned": "a reassignment was completed",
    "reassignment cancelled": "a reassignment was cancelled",
    "balance command done": "a balance, carried out by ottla's own client, ended well during faults",
    "drain command done": "a drain of a broker ended well during faults",
    "factor command done": "a change of a replication factor ended well during faults",
    "absent node replaced": "a node was away, and what it had was moved to others",
    "move command killed": "a command that moved replicas was killed, and left its throttle behind",
    "move command failed": "a command that moved replicas gave up",
    "topic made anew": "a topic was deleted, and another of the same name was created",
    "right taken away": "an operator removed an ACL while it was in use",
    "visitor logged in": "a user with few rights logged in",
    "visitor allowed": "a user with few rights was allowed something",
    "visitor refused": "a user with few rights was refused something",
    "request before a login": "somebody asked before a login, and was cut off",
    "login refused": "an intruder did not log in",
    "forged node refused": "a client that pretended to be a node was refused",
    "wrong certificate refused": "somebody showed nodes a wrong certificate, or none",
    "things that exist and do not": "a user without rights asked for both, and got the same answer",
    "users that exist and do not": "somebody began to log in as both",
    "fetch session of another": "a user named a fetch session of another user",
    "records deleted": "a leader deleted records for DeleteRecords",
    "read from a follower": "a consumer read records from a follower",
    "at rest without one": "one node stayed away, and the others came to rest without it",
    **{
        f"died before a {change}": "a process died before this kind of change of its disk"
        for change in CHANGES
    },
    "events dropped": "the queue of an event log was full, and the log says how many events are missing",
    "decisions lost": "a controller lost its leadership before its decisions were committed",
    "garbage sent": "a node received garbage, and answered or closed the connection",
    "request replayed": "a node received an old request of another client, and answered or closed the connection",
    # Groups and transactions
    "rebalance lost its coordinator": "a group was not stable when its coordinator changed",
    "replies lost their coordinator": "a coordinator was replaced before its decisions were committed",
    "shard began again": "a coordinator could not write its decisions, and loaded its log again",
    "reply not committed in time": "a coordinator answered with a retriable error because its records were not committed in time",
    "open transaction got another coordinator": "a transaction was open when its coordinator failed over",
    "decided transaction got another coordinator": "the next coordinator sent the markers again",
    "producer fenced by its coordinator": "a newer instance had taken over, or the transaction had timed out",
    "producer fenced by a partition": "a batch had a former producer epoch",
    "transaction aborted by its coordinator": "a newer instance had taken over, or the transaction had timed out",
    "transaction timed out": "a transaction was open for too long",
    "end of a transaction repeated": "EndTxn was sent again after its answer was lost",
    "marker refused": "a transaction marker was refused because the partition had it already",
    "offsets loaded anew": "a coordinator loaded committed offsets",
    "offsets of an open transaction loaded anew": "a coordinator loaded offsets of an open transaction",
    "commit of a former member refused": "a commit named a former generation or member",
    "offset unstable": "OffsetFetch asked for an offset that an open transaction changes",
    "member fell silent": "the session of a member timed out",
    "static member came back": "a member was replaced by another of the same instance id",
}

_counts: Counter[str] = Counter()


def mark(word: str) -> None:
    assert word in RARE, word
    _counts[word] += 1


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts what is marked as long as this lasts."""
    global _counts
    outside, _counts = _counts, Counter()
    try:
        yield _counts
    finally:
        _counts = outside


def missing(marks: Mapping[str, int], faults: Mapping[str, int], kinds: Iterable[str]) -> list[str]:
    """Rare states and kinds of faults that never happened."""
    return [word for word in RARE if not marks.get(word)] + [
        kind for kind in kinds if not faults.get(kind)
    ]
