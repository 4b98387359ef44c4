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
    "leader moved in sync": "leadership went to another member of the ISR, which stayed as it was",
    "leader from the ELR": "nobody of the ISR was left, an eligible leader replica was elected",
    "last known leader": "ISR and ELR were empty, the last known leader leads again, recovering",
    "unclean election": "somebody else was elected, with losses, because the topic allows it",
    "no leader": "nobody who might lead was alive",
    "in the ELR": "a replica left a too small ISR and stayed eligible",
    "truncation": "a follower cut records that its leader does not have",
    "truncation in two rounds": "the first cut ended where agreement only might have ended",
    "truncation across segments": "a cut removed whole segments",
    "committed records truncated": "a follower cut what had been committed, and put it on record",
    "tail lost": "a machine's power loss cost it records",
    "torn tail cut": "recovery found a damaged or incomplete batch at the end of a log",
    "log set aside": "a log was unusable after a power loss and is copied anew",
    "clean stop recognized": "a broker came back from a clean stop and said so",
    "log directory failed": "a disk failed under a running broker",
    "fenced and back": "a live broker was fenced, and unfenced without a restart",
    "ISR expansion refused": "the controller refused a new member",
    "ISR shrink refused": "the controller refused to let a member go",
    "below the epoch's start": "a follower had all below the HW and not all of the epochs before",
    "restarted member refused": "a proposed member had restarted since its leader saw it (KIP-903)",
    "retry answered with its offset": "a batch was in the log already",
    "too few replicas": "acks=all was refused, the ISR being too small",
    "too few replicas after append": "the ISR shrank while a produce was parked",
    "parked produce lost its leader": "leadership ended while a produce was parked",
    "parked produce timed out": "a produce was parked for longer than its client allowed",
    "end not available": "a new leader could not tell the end of its partition yet",
    "older epoch refused": "a request named an epoch that is over",
    "newer epoch refused": "a request named an epoch that its receiver had not heard of",
    "session evicted": "a fetch session had to make room",
    "records expired": "retention removed segments",
    "log compacted": "compaction removed records",
    "tombstone kept": "a key of the compacted topic was deleted in the end, and said so",
    "tombstone forgotten": "a key of the compacted topic was deleted, and nothing is left of it",
    "began anew": "a follower's end lay outside of its leader's log",
    "pre-vote rejected": "a voter kept another from disturbing the quorum",
    "vote rejected": "a candidate was refused",
    "quorum leader gave up": "a leader of the quorum heard of no majority any more",
    "metadata truncated": "a voter cut records that no majority had",
    "snapshot fetched": "a node was so far behind that it was sent a checkpoint",
    "damage seen by a consumer": "a batch that a broker's disk had damaged was refused by its reader",
    "damage seen by a follower": "a batch that its leader's disk had damaged was refused by a follower",
    "reassigned": "a partition's replicas were others in the end",
    "reassignment cancelled": "a partition's new replicas left before they were whole",
    "topic made anew": "a topic was deleted, and another of the same name was made",
    "records deleted": "a leader deleted records because it was asked to",
    "read from a follower": "a consumer got records from a replica that does not lead",
    "at rest without one": "one node was gone for good, and the others came to rest without it",
    **{
        f"died before a {change}": "a process died there, in the midst of a sequence of changes"
        for change in CHANGES
    },
    "decisions lost": "a controller lost its leadership with decisions not committed",
    "garbage sent": "a node was sent what nobody can read, and answered or hung up",
    "request replayed": "a node was sent what another had asked long before, and answered or hung up",
    # Groups and transactions
    "rebalance lost its coordinator": "a group was not stable when its coordinator changed",
    "replies lost their coordinator": "a coordinator was deposed with decisions not committed",
    "shard began again": "what a coordinator decided could not be written, so it loaded its log anew",
    "reply not committed in time": "a coordinator told a client to ask again, its records being late",
    "open transaction got another coordinator": "a transaction was under way in a failover",
    "decided transaction got another coordinator": "the next coordinator sent the markers again",
    "producer fenced by its coordinator": "a producer had an heir, or had been too slow",
    "producer fenced by a partition": "a batch had an epoch that was over",
    "transaction aborted by its coordinator": "its producer had an heir, or had been too slow",
    "transaction timed out": "a transaction was open for too long",
    "end of a transaction repeated": "the answer to the first had been lost",
    "marker refused": "a partition had it already",
    "offsets loaded anew": "a coordinator took over committed offsets",
    "offsets of an open transaction loaded anew": "a coordinator took over offsets still undecided",
    "commit of a former member refused": "its generation was over, or its membership",
    "offset unstable": "an offset was asked for that a transaction was about to change",
    "member fell silent": "a session ended",
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
