"""The majority quorum of Raft, Zab and Viewstamped Replication, over the product's log and fetches."""

from __future__ import annotations

from ottla.broker.design import NodeDesign
from ottla.lab.commit.design import CommitDesign
from ottla.lab.commit.majority import MajorityNode
from ottla.lab.commit.rules import change_by_majority, committed_by_majority
from ottla.lab.design import Design, Seam
from ottla.replica.partition import ReplicationRules

DESIGN = Design(
    name="majority",
    seam=Seam.COMMIT,
    promise="P41",
    summary="A record is committed when a majority of all replicas has it; the most complete log of a majority leads next.",
    part=CommitDesign(
        NodeDesign(rules=ReplicationRules(commit=committed_by_majority), change=change_by_majority),
        MajorityNode,
    ),
    # The ISR has no part in commits, so its size has none in what is accepted.
    settings={"min.insync.replicas": "1"},
)
