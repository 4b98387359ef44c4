"""What must always hold of the metadata quorum (M1 to M7), and what its committed log adds up to.

`image` is computed here, batch by batch, from what was first seen committed: no node's word is taken for it.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.broker.node import Node
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import MetadataRecord, decode
from ottla.raft.election_state import ElectionState
from ottla.raft.journal import Journal
from ottla.raft.messages import SnapshotId
from ottla.raft.roles import RaftRole
from ottla.raft.snapshots import BOOTSTRAP, read_snapshot
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import read_batch
from ottla.records.record import records as records_of
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.event_recorder import GrantedVote
from ottla.sim.oracle.ledger import Ledger, LogCopy, Violation, content, is_flushed
from ottla.sim.oracle.metadata_replay import MetadataReplay
from ottla.sim.oracle.voter_sets import SeenVoters, may_follow, static_voters, voters_in
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.types import TopicPartition

METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
VOTERS_TO_LOSE_ONE = 3
"""With fewer voters, the others are no majority without one of them."""


class VoterLastSeen:
    """One voter as it was last seen, across all its restarts."""

    def __init__(self, machine: SimNode) -> None:
        self.machine = machine
        self.copy = LogCopy()
        self.log: Log | None = None
        self.last_log: Log | None = None
        """As `log`, also after the process ended: its files are still there."""
        self.seen: object = None
        self.role = RaftRole.UNATTACHED
        self.flushed = 0
        """What it says is flushed: it must keep that."""
        self.proven = 0
        """What is flushed on its simulated disk, whatever it says."""
        self.former: LogCopy | None = None
        """What it had flushed before its disk was replaced, until it fetches again."""
        self.directory: UUID | None = None
        """Of the disk that it has now; None while nothing is known of it."""
        self.former_directories: dict[UUID, LogCopy] = {}
        """What was flushed on the disks that it had before, where voters have directory ids."""
        self.sets: list[SeenVoters] = []
        """The voters in its log, the last of which count; empty if the voters are static."""
        self.sets_read_to = 0
        self.has_vote = False
        self.epoch = 0
        self.voters: list[int] = []
        self.newest_snapshot: SnapshotId | None = None
        self.image: MetadataImage | None = None

        self.died_midway = False
        """Its process died between two changes of its disk: a truncation may be half done."""

    def restarted(self) -> None:
        self.seen = self.log = self.image = self.newest_snapshot = None

    def lost_its_disk(self) -> None:
        """What it promised by its votes still counts, so it must not vote at once."""
        self.restarted()
        if self.former is None:
            self.copy.cut(self.flushed)
            self.former = self.copy
        if self.directory is not None:
            self.former_directories.setdefault(self.directory, self.former)
            self.directory = None
        self.last_log = None
        self.copy, self.flushed, self.epoch, self.has_vote = LogCopy(), 0, 0, False

    def has_flushed(self, end: int, hash: bytes | None) -> bool:
        """A leader may count what a voter had before its disk was replaced: that voter votes for no one else."""
        if self.copy.hash_at(end) == hash and self._is_on_platter(end):
            return True
        return self.former is not None and self.former.hash_at(end) == hash

    def has_flushed_as(self, key: ReplicaKey, end: int, hash: bytes | None) -> bool:
        """As the voter `key`. What it acknowledged with a disk that it has no more counts for that voter, which never votes
        again."""
        if key.directory is None:
            return self.has_flushed(end, hash)
        if key.directory == self.directory:
            return self.copy.hash_at(end) == hash and self._is_on_platter(end)
        former = self.former_directories.get(key.directory)
        return former is not None and former.hash_at(end) == hash

    def _is_on_platter(self, end: int) -> bool:
        if self.last_log is None:
            return False
        disk = self.machine.host.disk
        first = self.last_log.segment_bases[0]  # below that there is a checkpoint
        for batch in self.copy.after(max(self.proven, first)):
            if batch.end > end:
                break
            if not is_flushed(disk, self.last_log, batch):
                return False
            self.proven = batch.end
        return True


class QuorumChecker:
    def __init__(self, cluster: SimCluster) -> None:
        self.image = MetadataImage()
        """The image of all committed metadata, by the product's code."""
        self.replay = MetadataReplay()
        """The same, read without the product's code."""
        self.ledger = Ledger(METADATA, cluster.world.loop.trace.tell)
        self.on_decisions: list[Callable[[int, MetadataImage, MetadataImage, Delta], None]] = []
        """Called with each committed batch: the node whose log it was read from, the images before and after, the delta."""
        self.voters = {node.id: VoterLastSeen(node) for node in cluster.nodes.values()}
        self._cluster = cluster
        self._images = {-1: self.image}
        """By the offset of their last record. Comparing images costs far less than hashing them."""
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, UUID | None, int], int] = {}
        self._electorates: list[list[int]] = []
        self._begins: dict[int, int] = {}
        """Where each epoch begins, by its leader's log."""
        self._reads_sets = cluster.first_voters is not None or cluster.upgrades_voters
        """Whether the log may say who votes."""
        self.committed_sets: list[SeenVoters] = []
        if cluster.first_voters is not None:
            keys = frozenset(voter.key for voter in cluster.first_voters.voters)
            self.committed_sets.append(SeenVoters(-1, keys))
        elif cluster.upgrades_voters:
            self.committed_sets.append(static_voters(cluster.nodes))

    @property
    def may_upgrade(self) -> bool:
        """Whether voters are still static, and may become voters of the log."""
        return self._reads_sets and self.committed_sets[-1].are_static

    @property
    def is_dynamic(self) -> bool:
        """Whether voters may change, and have directory ids."""
        return self._reads_sets and not self.committed_sets[-1].are_static

    def _now(self) -> float:
        return self._cluster.world.loop.time()

    def _fail(self, rule: str, node: int, what: str) -> Violation:
        return self.ledger.violation(rule, f"node {node}", self._now(), what)

    def look(self, node: int, running: Node) -> None:
        """At a node that did something."""
        voter = self.voters[node]
        quorum = running.quorum
        assert quorum is not None
        if quorum.failed is not None:
            if isinstance(quorum.failed, OSError | LogDirError):
                return  # its disk failed, and it ends
            raise self._fail("M", node, f"left the quorum: {quorum.failed!r}")
        raft = quorum.raft
        journal = raft.journal
        if self._reads_sets:
            voter.directory = quorum.directory_id
        if voter.log is not journal.log:
            self._open(voter, journal.log)
        voter.flushed = journal.log.recovery_point
        voter.has_vote = raft.has_vote
        if voter.has_vote or journal.log_end > journal.log_start:
            voter.former = None  # it has fetched again: from now on that counts
        seen = (raft.state, raft.role, journal.log.log_end, journal.log.high_watermark)
        if seen != voter.seen:
            led = RaftRole.LEADER in (raft.role, voter.role)
            voter.seen, voter.role = seen, raft.role
            self.ledger.note(
                self._now(),
                f"node {node}",
                f"{raft.role} {_state_text(raft.state)} HW {journal.high_watermark} LEO {journal.log_end}",
            )
            raft.invariants()
            self._check_state(voter, raft.state, raft.role)
            if not self._reads_sets:
                self._check_voters(voter, journal)
            self._log_changed(voter, journal.log)
            if self._reads_sets:
                self._check_sets(voter, journal)
            self._check_committed(voter, journal.high_watermark, led)
        if journal.snapshots.latest != voter.newest_snapshot:
            self._check_snapshot(voter, journal)
        if quorum.image is not voter.image:
            voter.image = quorum.image
            self._check_image(voter, quorum.image)

    def check_vote(self, vote: GrantedVote) -> None:
        """M1: a node votes once in an epoch, also if it restarted since."""
        voter = vote.voter, self.voters[vote.voter].directory, vote.epoch
        given = self._votes.setdefault(voter, vote.candidate)
        if given != vote.candidate:
            what = f"voted for {given} and {vote.candidate} in epoch {vote.epoch}"
            raise self._fail("M1", vote.voter, what)

    def check_install(self, node: int, role: RaftRole) -> None:
        """M5: a leader does not install a checkpoint of another node."""
        if role is RaftRole.LEADER:
            raise self._fail("M5", node, "installed a checkpoint while it led")

    def _check_state(self, voter: VoterLastSeen, state: ElectionState, role: RaftRole) -> None:
        """M1: one leader in an epoch, one vote. M2: epochs rise."""
        node = voter.machine.id
        if state.epoch < voter.epoch:
            raise self._fail("M2", node, f"epoch fell from {voter.epoch} to {state.epoch}")
        voter.epoch = state.epoch
        if role is RaftRole.LEADER:
            other = self._leaders.setdefault(state.epoch, node)
            if other != node:
                raise self._fail(
                    "M1", node, f"leads epoch {state.epoch}, which node {other} has led"
                )
        if state.voted is not None:
            self.check_vote(GrantedVote(node, state.epoch, state.voted.id))

    def _check_voters(self, voter: VoterLastSeen, journal: Journal) -> None:
        """M7: a new set of voters differs from a known one by a single voter, so that each majority of the one shares a
        node with each majority of the other."""
        ids = journal.voters.ids
        if ids == voter.voters:
            return
        voter.voters = ids
        if ids and ids not in self._electorates:
            if self._electorates and not any(
                len(set(ids) ^ set(known)) == 1 for known in self._electorates
            ):
                raise self._fail(
                    "M7",
                    voter.machine.id,
                    f"voters are {ids}, before that they were one of {self._electorates}",
                )
            self._electorates.append(ids)

    def _check_sets(self, voter: VoterLastSeen, journal: Journal) -> None:
        """M7, where voters have directory ids. Every majority of a set shares a voter with every majority of the next one. A
        leader writes the next set only when the last one is committed, and a record of its own epoch. The voters that count
        are the last in the log."""
        node, log = voter.machine.id, voter.log
        assert log is not None
        if voter.role is RaftRole.LEADER and voter.epoch not in self._begins:
            # Seen before a checkpoint can replace the beginning of the log.
            self._begins[voter.epoch] = dict(voter.copy.epochs)[voter.epoch]
        for batch in voter.copy.after(voter.sets_read_to):
            voter.sets_read_to = batch.end
            data = content(voter.machine.host.disk, log, batch)
            for found in voters_in(data):
                before = voter.sets[-1]
                voter.sets.append(found)
                if not may_follow(before, found):
                    what = f"voters change from {before} to {found}"
                    raise self._fail("M7", node, what)
                if voter.role is RaftRole.LEADER and found.keys != before.keys:
                    self._check_change(voter, batch.epoch, before, journal.high_watermark)
        counted = frozenset(each.key for each in journal.voters.voters)
        if counted and counted != voter.sets[-1].keys:
            what = f"counts the voters {sorted(counted)}, its log has {voter.sets[-1]}"
            raise self._fail("M7", node, what)

    def _check_change(
        self, voter: VoterLastSeen, epoch: int, before: SeenVoters, high_watermark: int
    ) -> None:
        if epoch != voter.epoch:
            return  # another leader wrote it
        begins = self._begins[epoch]
        if high_watermark <= max(begins, before.offset):
            raise self._fail(
                "M7",
                voter.machine.id,
                f"changes the voters with HW {high_watermark}, in an epoch that begins at {begins},"
                f" after the change at {before.offset}",
            )

    def is_whole(self, key: ReplicaKey) -> bool:
        """Whether the disk of this voter is there."""
        return key.directory is None or self.voters[key.id].directory == key.directory

    def sets_that_may_count(self) -> list[frozenset[ReplicaKey]]:
        """The committed voters, and those that are in some log and may yet be committed."""
        last = [voter.sets[-1].keys for voter in self.voters.values() if voter.sets]
        return [self.committed_sets[-1].keys, *last]

    def can_lose(self, node: int) -> bool:
        """Whether all voters have their disks, and can do without that of `node`."""
        return all(
            len(keys) >= VOTERS_TO_LOSE_ONE
            and all(self.is_whole(key) for key in keys if key.id != node)
            for keys in self.sets_that_may_count()
            if node in {key.id for key in keys}
        )

    def _open(self, voter: VoterLastSeen, log: Log) -> None:
        """M4: what was flushed survives every crash."""
        voter.log = voter.last_log = log
        may_have_cut, voter.died_midway = voter.died_midway, False
        if log.log_end < voter.flushed and not (
            may_have_cut and not self._committed_between(voter, log.log_end, voter.flushed)
        ):
            raise self._fail(
                "M4",
                voter.machine.id,
                f"had flushed up to {voter.flushed}, now ends at {log.log_end}",
            )
        voter.copy = self._copy_from(voter, log)
        voter.proven = voter.copy.start

    def _committed_between(self, voter: VoterLastSeen, first: int, end: int) -> bool:
        """Whether it had committed records there."""
        return any(
            self.ledger.copy.hash_at(batch.end) == batch.hash
            for batch in voter.copy.after(first)
            if batch.end <= end
        )

    def _log_changed(self, voter: VoterLastSeen, log: Log) -> None:
        """M3: what is committed is never truncated."""
        start, mine = log.segment_bases[0], voter.copy
        if start >= mine.end or (
            start > mine.start and mine.hash_at(start) != self.ledger.copy.hash_at(start)
        ):
            # It begins again at a checkpoint, perhaps one that ends where the log before it ended (seed 13).
            voter.copy = self._copy_from(voter, log)
            voter.proven = start
        disk = voter.machine.host.disk
        for batch in voter.copy.cut_like(disk, log):
            if self.ledger.copy.hash_at(batch.end) == batch.hash:
                raise self._fail(
                    "M3",
                    voter.machine.id,
                    f"truncated offset {batch.base} of epoch {batch.epoch}, which is committed",
                )
            voter.proven = min(voter.proven, batch.base)
            self._cut_sets(voter, batch.base)
        voter.copy.follow(disk, log)

    def _cut_sets(self, voter: VoterLastSeen, end: int) -> None:
        voter.sets_read_to = min(voter.sets_read_to, end)
        while len(voter.sets) > 1 and voter.sets[-1].offset >= end:
            voter.sets.pop()
            mark("voter change undone")

    def _copy_from(self, voter: VoterLastSeen, log: Log) -> LogCopy:
        start = log.segment_bases[0]
        if self._reads_sets:
            voter.sets = [
                next(s for s in reversed(self.committed_sets) if s.offset < start or s.offset < 0)
            ]
            voter.sets_read_to = start
        known = self.ledger.copy.hash_at(start)
        if known is None:
            what = f"its log begins at {start}, which is not committed"
            raise self._fail("M5", voter.machine.id, what)
        return LogCopy(start, known)

    def _check_snapshot(self, voter: VoterLastSeen, journal: Journal) -> None:
        """M5: the log does not begin above its checkpoint, and the checkpoint equals the log up to it."""
        node, id = voter.machine.id, journal.snapshots.latest
        voter.newest_snapshot = id
        if id is None or id == BOOTSTRAP:
            return
        if journal.log_start > id.end_offset:
            raise self._fail(
                "M5", node, f"its log begins at {journal.log_start}, above its checkpoint {id}"
            )
        data = bytes(voter.machine.host.disk.peek(journal.snapshots.path(id)))
        records = read_snapshot(data, str(id)).records
        image, _ = MetadataImage().apply(records, id.end_offset - 1, id.epoch)
        if image != self._images.get(image.offset):
            raise self._fail("M5", node, f"its checkpoint {id} differs from the log up to there")

    def _check_committed(self, voter: VoterLastSeen, high_watermark: int, led: bool) -> None:
        """M3: what is committed is the same on every node. M4: a majority has flushed it, by a leader of that epoch."""
        node = voter.machine.id
        before = self.ledger.end
        if high_watermark <= voter.copy.start:
            return
        problem = self.ledger.commit(voter.copy, high_watermark)
        if problem is not None:
            raise self._fail("M3", node, f"HW {high_watermark}, but {problem}")
        if self.ledger.end == before:
            return
        end = self.ledger.end
        voters = [w for w in self.voters.values() if w.machine.settings.is_controller]
        committed = self.ledger.copy.hash_at(end)
        if self._reads_sets:
            having = self._voters_with(voter, end, committed)
            is_on_majority = len(having) > len(voter.sets[-1].keys) // 2
        else:
            having = [other.machine.id for other in voters if other.has_flushed(end, committed)]
            is_on_majority = len(having) > len(voters) // 2
        if not is_on_majority:
            raise self._fail(
                "M4", node, f"all below {end} is committed, but flushed only on nodes {having}"
            )
        if not led:
            raise self._fail(
                "M4",
                node,
                f"a follower counts all below {end} as committed, before any leader does",
            )
        last = self.ledger.copy.batches[-1]
        if voter.role is RaftRole.LEADER and last.epoch != voter.epoch:
            raise self._fail(
                "M4",
                node,
                f"the leader of epoch {voter.epoch} committed offset {last.base} of epoch {last.epoch}",
            )
        self._apply(voter, before)

    def _voters_with(self, leader: VoterLastSeen, end: int, committed: bytes | None) -> list[int]:
        """Which voters of the leader's last set have flushed everything below `end`."""
        return sorted(
            key.id
            for key in leader.sets[-1].keys
            if self.voters[key.id].has_flushed_as(key, end, committed)
        )

    def _apply(self, voter: VoterLastSeen, from_offset: int) -> None:
        """Apply the newly committed batches to the image, one after the other."""
        log = voter.log
        assert log is not None
        disk = voter.machine.host.disk
        for seen in voter.copy.after(from_offset):
            if seen.end > self.ledger.end:
                break
            data = content(disk, log, seen)
            batch = read_batch(data, 0)
            records: list[MetadataRecord] = []
            if not batch.is_control:
                records = [decode(r.value or b"") for r in records_of(data, batch)]
            elif self._reads_sets:
                self.committed_sets += voters_in(data)
            before = self.image
            self.image, delta = before.apply(records, seen.end - 1, seen.epoch)
            self._check_reading(voter, records, delta)
            self._images[self.image.offset] = self.image
            for callback in self.on_decisions:
                callback(voter.machine.id, before, self.image, delta)

    def _check_reading(
        self, voter: VoterLastSeen, records: list[MetadataRecord], delta: Delta
    ) -> None:
        """M6: the product's image is what the records say. M8, M9: what they say is consistent."""
        node = voter.machine.id
        try:
            touched = self.replay.apply(records)
            for difference in self.replay.differences(self.image, delta, touched):
                what = f"the image at offset {self.image.offset} differs from its records: {difference}"
                raise self._fail("M6", node, what)
            self.replay.check(touched)
        except AssertionError as error:
            raise self._fail("M8", node, str(error)) from error

    def _check_image(self, voter: VoterLastSeen, image: MetadataImage) -> None:
        """M6: at the same offset all nodes have the same image."""
        if image != self._images.get(image.offset):
            raise self._fail(
                "M6",
                voter.machine.id,
                f"its image at offset {image.offset} differs from that of other nodes",
            )


def _state_text(state: ElectionState) -> str:
    voted = "" if state.voted is None else f" voted for {state.voted.id}"
    return (
        f"epoch {state.epoch} leader {state.leader}{voted}{' newborn' if state.is_newborn else ''}"
    )
