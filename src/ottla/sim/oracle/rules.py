"""The invariants that every run must keep, and where each of them is checked.

A violation names its rule: "D9 node 2, t0-1, at 12.345678: …". Look the rule up here: `says` is what was expected, and
`checked_in` are the methods that compare it with what was found. The rules are those of RELIABILITY §1: D for data, M
for metadata, C for clients, A for access, E for the event log. (C5, the same seed gives the same run, is a test: `tests/sim/test_cluster_determinism.py`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Rule(NamedTuple):
    says: str
    checked_in: tuple[str, ...]
    """`module.Class.method` or `module.function`, below `ottla.sim`."""


RULES: Mapping[str, Rule] = {
    "D1": Rule(
        "every member of the controller's ISR and ELR holds all records below any leader's high watermark",
        ("oracle.isr_checker.IsrChecker.check_strong_isr",),
    ),
    "D2": Rule(
        "two logs with the same offset in the same epoch hold the same bytes there and below",
        (
            "oracle.log_checker.LogChecker.check_same_batches",
            "run.final_checks.check_end",
            "clients.compacted_table.CompactedTable.check_end",
        ),
    ),
    "D3": Rule(
        "a committed record is never lost or changed on a clean leader; nothing is acknowledged before it is committed",
        (
            "oracle.replica_checker.ReplicaChecker._check_new_leader",
            "oracle.replica_checker.ReplicaChecker._check_committed",
            "oracle.client_checker.ClientChecker._check_acks",
            "clients.consumer.SimConsumer._take",
            "run.final_checks.check_end",
            "clients.compacted_table.CompactedTable.check_end",
        ),
    ),
    "D4": Rule(
        "a leader's high watermark does not fall within an epoch, and no consumer sees the end of a partition fall",
        (
            "oracle.replica_checker.ReplicaChecker._check_changed",
            "clients.consumer.SimConsumer._ask_end",
            "clients.consumer.SimConsumer._poll",
        ),
    ),
    "D5": Rule(
        "log start ≤ last stable offset ≤ high watermark ≤ log end; offsets rise, epochs of batches do not fall",
        ("oracle.replica_checker.ReplicaChecker._check_changed",),
    ),
    "D6": Rule(
        "the leader epoch cache is what the batches of the log say",
        ("oracle.log_checker.LogChecker._check_epochs",),
    ),
    "D7": Rule(
        "a leader never truncates; no replica truncates or loses committed records; what was flushed survives",
        (
            "oracle.log_checker.LogChecker._check_lost",
            "oracle.log_checker.LogChecker._check_cut",
            "oracle.replica_checker.ReplicaChecker._record_loss",
        ),
    ),
    "D8": Rule(
        "a follower appends only in its leader's epoch, and truncates before its high watermark advances",
        (
            "oracle.log_checker.LogChecker._check_appended",
            "oracle.log_checker.LogChecker.check_truncation",
        ),
    ),
    "D9": Rule(
        "the high watermark waits for the whole ISR, proposed members included, and stands below min.insync.replicas",
        (
            "oracle.replica_checker.ReplicaChecker._check_high_watermark",
            "oracle.replica_checker.ReplicaChecker._check_min_isr",
            "oracle.isr_checker.IsrChecker.check_members_hold",
        ),
    ),
    "D10": Rule(
        "a replica that joins the ISR holds all committed records, is registered and is not shutting down",
        (
            "oracle.isr_checker.IsrChecker.check_proposal",
            "oracle.isr_checker.IsrChecker.check_joined",
            "oracle.decision_checker.DecisionChecker._check_decision",
        ),
    ),
    "D11": Rule(
        "nothing above the high watermark is deleted or read; only DeleteRecords and retention move a log's start",
        (
            "oracle.log_checker.LogChecker.check_log_start",
            "oracle.client_checker.ClientChecker._check_reads",
        ),
    ),
    "D12": Rule(
        "a new leader was in the ISR or ELR and is alive, unless unclean election is allowed",
        ("oracle.decision_checker.DecisionChecker._check_decision",),
    ),
    "D13": Rule(
        "where a disk has no room, no log grows",
        ("faults.crowding.CrowdedDisks.check",),
    ),
    "O1": Rule(
        "replicas change only as somebody asked: a move ends with exactly the wanted ones, in their order, all in sync, or, "
        "if it was cancelled, with those from before; until then nobody leaves",
        (
            "oracle.move_checker.MoveChecker.decided",
            "oracle.move_checker.MoveChecker.check_end",
        ),
    ),
    "O2": Rule(
        "at rest a node has the directories of its replicas, and no other; who was drained has none",
        ("oracle.move_checker.MoveChecker.check_strays",),
    ),
    "O3": Rule(
        "a command that moves replicas leaves no throttle behind",
        (
            "oracle.move_checker.MoveChecker.command_ended",
            "oracle.move_checker.MoveChecker.check_end",
        ),
    ),
    "M1": Rule(
        "one leader of the quorum in an epoch; one vote of a node in an epoch",
        (
            "oracle.quorum_checker.QuorumChecker._check_state",
            "oracle.quorum_checker.QuorumChecker.check_vote",
        ),
    ),
    "M2": Rule(
        "the epoch of a voter rises, also across restarts",
        ("oracle.quorum_checker.QuorumChecker._check_state",),
    ),
    "M3": Rule(
        "committed metadata is the same on every node and is never truncated",
        (
            "oracle.quorum_checker.QuorumChecker._log_changed",
            "oracle.quorum_checker.QuorumChecker._check_committed",
        ),
    ),
    "M4": Rule(
        "metadata is committed only when a majority has flushed it, by a leader of that epoch; what was flushed survives",
        (
            "oracle.quorum_checker.QuorumChecker._check_committed",
            "oracle.quorum_checker.QuorumChecker._open",
        ),
    ),
    "M5": Rule(
        "a metadata log begins at a checkpoint, which equals the log up to it; a leader never installs one",
        (
            "oracle.quorum_checker.QuorumChecker._check_snapshot",
            "oracle.quorum_checker.QuorumChecker._copy_from",
            "oracle.quorum_checker.QuorumChecker.check_install",
        ),
    ),
    "M6": Rule(
        "at the same offset every node has the same metadata image, and it is what the records say",
        (
            "oracle.quorum_checker.QuorumChecker._check_image",
            "oracle.quorum_checker.QuorumChecker._check_reading",
        ),
    ),
    "M7": Rule(
        "voters change one at a time: two majorities of successive sets share a voter, and a change begins when the one "
        "before it is committed; the last set in a log counts",
        (
            "oracle.quorum_checker.QuorumChecker._check_voters",
            "oracle.quorum_checker.QuorumChecker._check_sets",
        ),
    ),
    "M8": Rule(
        "leader, ISR, ELR and replicas fit together; epochs rise; one leader of a partition in an epoch",
        (
            "oracle.metadata_replay.MetadataReplay.check",
            "oracle.decision_checker.DecisionChecker._check_decision",
            "oracle.replica_checker.ReplicaChecker._check_new_leader",
        ),
    ),
    "M9": Rule(
        "a fenced broker is in no ISR and leads nothing; no broker epoch, producer id or topic id is used twice",
        ("oracle.metadata_replay.MetadataReplay.check",),
    ),
    "C1": Rule(
        "the batches of an idempotent producer are in the log once, without a gap",
        ("run.final_checks.check_end", "clients.producer.SimProducer._answered"),
    ),
    "C2": Rule(
        "an acknowledged record is at the offset that was acknowledged",
        ("run.final_checks.check_end", "clients.compacted_table.CompactedTable.check_end"),
    ),
    "C3": Rule(
        "a transaction is read as a whole or not at all, each input is processed once, a fenced producer changes nothing",
        (
            "oracle.group_oracle.GroupOracle.saw",
            "oracle.group_oracle.GroupOracle.check_fenced",
            "oracle.group_oracle.GroupOracle.ended",
            "oracle.group_oracle.GroupOracle.check_end",
        ),
    ),
    "C4": Rule(
        "one owner of a partition in a generation; a committed offset is a register that loses nothing; "
        "a former generation commits nothing",
        (
            "oracle.group_oracle.GroupOracle.assigned",
            "oracle.group_oracle.GroupOracle.read",
            "oracle.group_oracle.GroupOracle.took_a_stale_commit",
        ),
    ),
    "C6": Rule(
        "the lag of a group is the age of the record that its consumer would get next",
        ("run.lag_check.check_lag",),
    ),
    "A1": Rule(
        "before a login, and after the end of its session, nobody is answered anything but the login; "
        "a login that proves nothing opens nothing",
        (
            "clients.intruder.Intruder._ask_before_login",
            "clients.intruder.Intruder._log_in_wrongly",
            "clients.access.Visitor._session",
            "clients.access.Visitor._asked",
        ),
    ),
    "A2": Rule(
        "whatever a client read, wrote or changed was allowed by the ACLs of its broker at some moment since it asked",
        (
            "oracle.access_checker.AccessChecker.granted",
            "clients.access.Visitor._use_fetch_session_of_another",
        ),
    ),
    "A3": Rule(
        "a connection has one principal, for ever",
        ("clients.intruder.Intruder._log_in_as_another",),
    ),
    "A4": Rule(
        "who may not see a thing gets the same answers whether it exists or not",
        (
            "clients.snoop.Snoop._ask_for_a_thing",
            "clients.snoop.Snoop._ask_for_a_user",
        ),
    ),
    "A5": Rule(
        "the index of ACLs decides like a loop over all of them, on every node, after every change; at rest all nodes agree",
        (
            "oracle.access_checker.AccessChecker._check_index",
            "oracle.access_checker.AccessChecker.check_end",
        ),
    ),
    "A6": Rule(
        "a credential or a right that was taken away has no effect a second after the broker has applied that, "
        "also for requests that wait",
        ("oracle.access_checker.AccessChecker.read", "clients.access.Visitor._asked"),
    ),
    "A7": Rule(
        "nobody without the identity of a node is obeyed as a node",
        (
            "clients.intruder.Intruder._is_refused",
            "clients.intruder.Intruder._pretend_to_be_a_node",
        ),
    ),
    "A8": Rule(
        "nobody is refused what is allowed",
        ("oracle.access_checker.AccessChecker.denied", "clients.access.Visitor._refused"),
    ),
    "E1": Rule(
        "an event of a node that lives is in the event log once, or is counted there as dropped",
        ("oracle.event_log_checker.EventLogChecker.check_end",),
    ),
    "E2": Rule(
        "every committed election and ISR change was reported once, unless its controller was deposed or died; "
        "nothing else was",
        ("oracle.event_log_checker.EventLogChecker.check_end",),
    ),
    "E3": Rule(
        "the queue of an event log's writer keeps its bound",
        ("oracle.event_log_checker.EventLogChecker.check_end",),
    ),
}
