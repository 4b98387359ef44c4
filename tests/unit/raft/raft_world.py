"""A handful of pure Rafts on a network in memory: messages, flushes, crashes and time, drawn from a seed.

After every step the world checks what must always hold (M1 to M4): it remembers each leader of each epoch,
each vote, and each committed record, and asks the disks, not the memories, what a majority really has.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from ottla.events import Event, Events
from ottla.events.quorum import (
    BecameQuorumLeader,
    MetadataCommitted,
    QuorumVotersChanged,
    SnapshotInstalled,
)
from ottla.metadata.records import MetadataRecord
from ottla.raft.election_state import QuorumStateFile
from ottla.raft.format import format_directory
from ottla.raft.journal import Journal
from ottla.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Park,
    QuorumAnswer,
    QuorumRequest,
    RemoveVoter,
    UpdateVoter,
    VersionsAnswer,
    Vote,
)
from ottla.raft.outputs import Send
from ottla.raft.raft import Raft
from ottla.raft.roles import RaftRole, Timing
from ottla.raft.snapshots import build_snapshot
from ottla.raft.voter_changes import VoterChange
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.records.batch import batches
from ottla.runtime.seams import FileRange
from ottla.sim.engine.disk import SimDisk

ROOT = "/data"


def endpoint(node: int) -> QuorumEndpoint:
    return QuorumEndpoint("CONTROLLER", f"host{node}", 9093)


def directory_of(node: int, life: int = 0) -> UUID:
    return UUID(int=1000 + node + 100 * life)


def _heard() -> Events:
    """Somebody wants every event, so every event is built."""
    events = Events()
    events.subscribe(lambda event: None)
    return events


class Host:
    """One node: its disk stays, its Raft comes and goes."""

    def __init__(
        self, world: World, node: int, *, is_voter: bool, is_controller: bool = False
    ) -> None:
        """`is_voter`: one of the first voters. `is_controller`: it may become one."""
        self.world = world
        self.node = node
        self.is_voter = is_voter
        self.endpoint = endpoint(node) if is_voter or is_controller else None
        self.kraft_versions: tuple[int, int] | None = (0, 1)
        self.may_join = False
        self.changes: list[tuple[VoterChange, Callable[[QuorumAnswer], None]]] = []
        self.directory_life = 0
        self.disk = SimDisk(random.Random(world.random.random()))
        self.raft: Raft | None = None
        self.life = 0
        self.parked: list[tuple[Fetch, float, Callable[[QuorumAnswer], None]]] = []
        self.is_flushing = False
        self.applied = 0
        self.format()

    def format(self) -> None:
        format_directory(
            self.disk,
            ROOT,
            cluster_id="cluster",
            node_id=self.node,
            directory_id=directory_of(self.node, self.directory_life),
            voters=self.world.voters
            if self.is_voter and self.directory_life == 0 and not self.world.static
            else None,
        )

    def replace_disk(self) -> None:
        assert self.raft is None
        self.world.wiped[self.key] = self.world.end_on_disk(self)
        self.disk.wipe()
        self.directory_life += 1
        self.format()

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node, directory_of(self.node, self.directory_life))

    def start(self) -> None:
        assert self.raft is None
        world = self.world
        self.life += 1
        journal = Journal.open(
            self.disk,
            ROOT,
            static_voters=world.voters if world.static else None,
            now_ms=world.wall_ms(),
        )
        self.raft = Raft(
            self.key,
            self.endpoint,
            journal,
            QuorumStateFile(self.disk, f"{ROOT}/__cluster_metadata-0"),
            random.Random(world.random.random()),
            world.wall_ms,
            timing=world.timing,
            bootstrap=[endpoint(node) for node in world.voters.ids],
            may_join=self.may_join,
            events=_heard(),
        )
        self.raft.start(world.now)
        self.after_input()

    def crash(self, *, power_loss: bool) -> None:
        assert self.raft is not None
        self.raft = None
        self.parked.clear()
        self.changes.clear()
        self.is_flushing = False
        self.disk.forget_process()
        if power_loss:
            self.disk.lose_power()
        self.world.cut_connections_of(self.node)

    @property
    def running(self) -> Raft:
        assert self.raft is not None
        return self.raft

    # What a shell does after every input

    def after_input(self) -> None:
        raft = self.running
        raft.invariants()
        sends = raft.outbox[:]
        raft.outbox.clear()
        for send in sends:
            self.world.send(self, send)
        events = raft.events[:]
        raft.events.clear()
        for event in events:
            self.world.saw(self, event)
        if raft.journal.needs_flush and not self.is_flushing:
            self.is_flushing = True
            plan = raft.journal.flush_plan()
            self.world.later(self, self.world.flush_time(), lambda: self.flush(plan))
        self.serve_parked()
        for change, answer in self.changes:
            if change.answer is not None:
                answer(change.answer)
        self.changes = [each for each in self.changes if each[0].answer is None]
        self.world.tick_at(self, raft.next_deadline())

    def flush(self, plan: Callable[[], int]) -> None:
        end_offset = plan()
        self.is_flushing = False
        self.running.flushed(end_offset, self.world.now)
        self.after_input()

    def serve_parked(self) -> None:
        parked, self.parked = self.parked, []
        for request, until, answer in parked:
            result = self.running.handle_fetch(request, self.world.now)
            if isinstance(result, Park):
                if self.world.now < until:
                    self.parked.append((request, until, answer))
                    continue
                result = result.answer
            answer(_over_the_wire(result))
        if self.running.events:
            self.after_input()

    def handle(self, request: QuorumRequest, answer: Callable[[QuorumAnswer], None]) -> None:
        raft, now = self.running, self.world.now
        match request:
            case Vote():
                answer(raft.handle_vote(request, now))
            case BeginQuorumEpoch():
                answer(raft.handle_begin_quorum_epoch(request, now))
            case EndQuorumEpoch():
                answer(raft.handle_end_quorum_epoch(request, now))
            case AddVoter() | RemoveVoter():
                self.changes.append((raft.handle_voter_change(request, now), answer))
            case UpdateVoter():
                answer(raft.handle_update_voter(request, now))
            case AskVersions():
                answer(VersionsAnswer(self.kraft_versions))
            case FetchSnapshot():
                answer(raft.handle_fetch_snapshot(request, now))
            case Fetch():
                result = raft.handle_fetch(request, now)
                if isinstance(result, Park):
                    self.parked.append((request, result.until, answer))
                    self.world.later(self, result.until - now, self.after_input)
                else:
                    answer(_over_the_wire(result))
        self.after_input()


def _over_the_wire(answer: FetchAnswer) -> FetchAnswer:
    if isinstance(answer.records, FileRange):
        return answer._replace(records=memoryview(bytearray(answer.records.read())))
    return answer


@dataclass(order=True)
class Due:
    at: float
    order: int
    action: Callable[[], None] = field(compare=False)


class World:
    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        controllers: int = 0,
        seed: int = 0,
        drop: float = 0.0,
        replay: float = 0.0,
        delay: float = 0.001,
        timing: Timing | None = None,
        static: bool = False,
    ) -> None:
        """`controllers` are observers that may become voters. `static`: the voters are in the settings (kraft.version 0) and have no directory ids."""
        self.static = static
        self.random = random.Random(seed)
        self.now = 0.0
        self.timing = timing or Timing()
        self.drop = drop
        self.replay = replay
        self.delay = delay
        self.voters = VoterSet.of(
            Voter(n, None if static else directory_of(n), (endpoint(n),))
            for n in range(1, voters + 1)
        )
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.ledger: dict[int, tuple[int, bytes]] = {}
        self.committed_end = 0
        self.electorates: dict[int, tuple[int, VoterSet]] = {}
        """kraft.version and voters, by the high watermark at which they are committed."""
        self.events: list[tuple[float, int, Event]] = []
        self.queue: list[Due] = []
        self.order = 0
        self.ticks: dict[int, float] = {}
        self.outstanding: dict[Send, tuple[Host, int, int]] = {}
        self.hosts = {
            n: Host(self, n, is_voter=n <= voters, is_controller=voters < n <= voters + controllers)
            for n in range(1, voters + controllers + observers + 1)
        }
        self.wiped: dict[ReplicaKey, int] = {}
        """What replicas had flushed when their disks were replaced."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)

    def flush_time(self) -> float:
        return self.delay * self.random.random() * 4

    # Time

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, Due(when, self.order, action))

    def later(self, host: Host, seconds: float, action: Callable[[], None]) -> None:
        """Unless the host has died by then."""
        life = host.life

        def act() -> None:
            if host.raft is not None and host.life == life:
                action()

        self.at(self.now + seconds, act)

    def tick_at(self, host: Host, when: float) -> None:
        if when == float("inf") or self.ticks.get(host.node) == when:
            return
        self.ticks[host.node] = when

        def tick() -> None:
            if self.ticks.get(host.node) == when:
                del self.ticks[host.node]
                host.running.tick(self.now)
                host.after_input()

        self.later(host, max(0.0, when - self.now), tick)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; with `until`, only as long as that does not hold. Whether it holds."""
        end = self.now + seconds
        while self.queue and self.queue[0].at <= end:
            if until is not None and until():
                return True
            due = heapq.heappop(self.queue)
            self.now = max(self.now, due.at)
            due.action()
        self.now = max(self.now, end) if until is None else self.now
        return until is not None and until()

    # The network

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    def send(self, host: Host, send: Send) -> None:
        where = host.running.address(send.peer)
        assert where is not None, f"no address of {send.peer}"
        target = self.hosts[int(where.host.removeprefix("host"))]
        life, target_life = host.life, target.life
        self.outstanding[send] = (host, life, target.node)

        def fail() -> None:
            if self.outstanding.pop(send, None) and host.raft is not None and host.life == life:
                host.running.request_failed(send, self.now)
                host.after_input()

        def answered(answer: QuorumAnswer) -> None:
            if self.random.random() < self.drop or self.is_cut(target.node, host.node):
                return

            def deliver() -> None:
                if self.is_cut(target.node, host.node):
                    return
                if self.outstanding.pop(send, None) and host.raft is not None and host.life == life:
                    host.running.answered(send, answer, self.now)
                    host.after_input()

            self.at(self.now + self.travel(), deliver)

        def arrive() -> None:
            if target.raft is None:
                fail()  # refused
            elif target.life == target_life and not self.is_cut(host.node, target.node):
                target.handle(send.request, answered)

        def arrive_again() -> None:
            """A request of a connection that was lost meanwhile; nobody waits for its answer."""
            if target.raft is not None and not self.is_cut(host.node, target.node):
                target.handle(send.request, lambda answer: None)

        if self.random.random() >= self.drop and not self.is_cut(host.node, target.node):
            self.at(self.now + self.travel(), arrive)
            if self.random.random() < self.replay:
                self.at(self.now + self.random.random(), arrive_again)
        self.at(self.now + 2.0, fail)  # the request timeout

    def travel(self) -> float:
        return self.delay * (0.5 + self.random.random())

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cut

    def isolate(self, node: int) -> None:
        for other in self.hosts:
            if other != node:
                self.cut |= {(node, other), (other, node)}

    def cut_link(self, one: int, other: int) -> None:
        self.cut |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cut.clear()

    def cut_connections_of(self, node: int) -> None:
        """A process died: everybody connected to it sees the connection close."""
        for send, (host, life, target) in list(self.outstanding.items()):
            if target != node or host.node == node or self.is_cut(node, host.node):
                continue  # who is cut off notices only at its request timeout
            del self.outstanding[send]

            def lost(host: Host = host, life: int = life, send: Send = send) -> None:
                if host.raft is not None and host.life == life:
                    host.running.peer_disconnected(node, self.now)
                    host.running.request_failed(send, self.now)
                    host.after_input()

            self.at(self.now + self.travel(), lost)

    # What must hold

    def saw(self, host: Host, event: Event) -> None:
        self.events.append((self.now, host.node, event))
        raft = host.running
        match event:
            case BecameQuorumLeader(epoch=epoch):
                assert self.leaders.setdefault(epoch, host.node) == host.node, (
                    f"{host.node} and {self.leaders[epoch]} lead epoch {epoch} (M1)"
                )
                assert raft.journal.log_end >= self.committed_end, "a leader without all (M3)"
            case QuorumVotersChanged():
                self.check_voters(host)
            case MetadataCommitted(high_watermark=offset):
                if raft.role is RaftRole.LEADER:
                    last = raft.journal.log.epochs.epoch_for_offset(offset - 1)
                    assert last == raft.epoch, (
                        f"{offset} commits nothing of epoch {raft.epoch} (M4)"
                    )
                if raft.role is RaftRole.LEADER and offset > self.committed_end:
                    self.check_on_majority(host, offset)
                    self.committed_end = offset
                self.check_committed(host)
            case SnapshotInstalled(end_offset=end_offset):
                host.applied = end_offset
                self.check_committed_voters(host)

    def check_committed(self, host: Host) -> None:
        """Every node's committed prefix is the same (M3)."""
        journal = host.running.journal
        host.applied = max(host.applied, journal.log_start)
        for data, batch in journal.batches_from(host.applied, journal.high_watermark):
            content = data[batch.position : batch.end]
            known = self.ledger.setdefault(batch.base_offset, (batch.leader_epoch, content))
            assert known == (batch.leader_epoch, content), f"{batch.base_offset} differs (M3)"
            host.applied = batch.next_offset
        self.check_committed_voters(host)

    def check_committed_voters(self, host: Host) -> None:
        """Nodes that have committed as much know the same voters, whether from the log or from a checkpoint (M3, M7)."""
        journal = host.running.journal
        committed = journal.high_watermark
        version, voters = journal.electorate_at(committed)
        if voters.voters:  # an observer knows none before it has read some
            known = self.electorates.setdefault(committed, (version, voters))
            assert known == (version, voters), f"voters of {host.node} at {committed} differ (M7)"

    def check_voters(self, host: Host) -> None:
        """A leader changes one voter at a time, when the change before it is committed, and its own epoch has begun (M7)."""
        raft = host.running
        electorates = raft.journal._electorates
        if not raft.is_leader or len(electorates) < 2:
            return
        before, now = electorates[-2:]
        if before.kraft_version < now.kraft_version:
            assert before.voters.ids == now.voters.ids, "an upgrade changes no voter (M7)"
            assert all(voter.directory for voter in now.voters.voters), "without a directory"
            return
        changed = {v.key for v in before.voters.voters} ^ {v.key for v in now.voters.voters}
        assert len(changed) <= 1, f"{changed} change at once (M7)"
        if changed:
            assert raft.is_established, "a change before its leader has committed anything (M7)"
            assert before.offset < raft.high_watermark, "two changes at a time (M7)"

    def check_on_majority(self, leader: Host, offset: int) -> None:
        """Committed means: on the platters of a majority, whatever happens next (M4)."""
        holding, voters = 0, leader.running.journal.voters
        for voter in voters.voters:
            host = self.hosts[voter.id]
            if not voter.is_replica(host.key):
                holding += self.wiped.get(voter.key, 0) >= offset
            elif host.raft is not None:
                holding += host.raft.journal.flushed_end >= offset
            else:
                holding += self.end_on_disk(host) >= offset
        assert holding >= voters.majority, f"{offset} is on {holding} disks only (M4)"

    def end_on_disk(self, host: Host) -> int:
        directory = f"{ROOT}/__cluster_metadata-0"
        end = 0
        for name in host.disk.list_dir(directory):
            if name.endswith(".log"):
                data = host.disk.read(f"{directory}/{name}")
                try:
                    for batch in batches(data, allow_partial=True):
                        end = batch.next_offset
                except Exception:
                    break
        return end

    # Conveniences

    def leader(self) -> Host | None:
        """The leader of the newest epoch, if it is up and established."""
        leading = [h for h in self.hosts.values() if h.raft is not None and h.raft.is_leader]
        leading.sort(key=lambda h: h.running.epoch)
        return leading[-1] if leading and leading[-1].running.is_established else None

    def elect(self) -> Host:
        assert self.run(20, lambda: self.leader() is not None), "no leader was elected"
        host = self.leader()
        assert host is not None
        return host

    def append(self, host: Host, *values: bytes) -> int:
        offset, _ = host.running.append(values)
        host.after_input()
        return offset

    def change(self, host: Host, request: AddVoter | RemoveVoter) -> VoterChange:
        change = host.running.handle_voter_change(request, self.now)
        host.after_input()
        return change

    def add(self, leader: Host, newcomer: Host) -> VoterChange:
        assert newcomer.endpoint is not None
        key = newcomer.key
        voter = Voter(key.id, key.directory, (newcomer.endpoint,))
        return self.change(leader, AddVoter(voter, 30.0))

    def remove(self, leader: Host, key: ReplicaKey) -> VoterChange:
        return self.change(leader, RemoveVoter(key))

    def snapshot(self, host: Host, records: list[MetadataRecord]) -> None:
        """As a shell does: at the high watermark, then trim what it replaces."""
        from ottla.raft.messages import SnapshotId

        journal = host.running.journal
        end = journal.high_watermark
        epoch = journal.log.epochs.epoch_for_offset(end - 1)
        assert epoch is not None
        version, voters = journal.electorate_at(end)
        id = SnapshotId(end, epoch)
        data = build_snapshot(
            records, epoch=epoch, timestamp_ms=0, kraft_version=version, voters=voters
        )
        journal.snapshots.write(id, data)
        journal.snapshot_taken(id, self.wall_ms())
        journal.clean(0, -1, self.wall_ms())
