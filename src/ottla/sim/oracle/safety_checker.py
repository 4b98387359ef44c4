"""The entry of the oracle: after everything that any node or client does, it checks what changed.

The invariants D1 to D12, M1 to M9 and C1 to C4 are listed in `oracle.rules`, with the checker that holds each of them.

Two things are outside the contract, and exempt. One is a replica that lost an unflushed tail in a power loss, until it
has everything again (it must not be elected meanwhile). The other is what a last known leader lost, which the cluster
itself marks as a recovery.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.process import SimProcess
from ottla.sim.oracle.access_checker import AccessChecker
from ottla.sim.oracle.client_checker import ClientChecker
from ottla.sim.oracle.coverage_controller import DecisionCoverage
from ottla.sim.oracle.decision_checker import DecisionChecker
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import History
from ottla.sim.oracle.isr_checker import IsrChecker
from ottla.sim.oracle.last_seen import NodeLastSeen
from ottla.sim.oracle.log_checker import LogChecker
from ottla.sim.oracle.replica_checker import ReplicaChecker


class SafetyChecker:
    """Connects the checkers of a run, and calls them."""

    def __init__(
        self, cluster: SimCluster, history: History, access: AccessChecker | None = None
    ) -> None:
        self.evidence = evidence = Evidence(cluster)
        self.on_proposal: list[Callable[[Partition, Proposal], None]] = []
        """A leader proposes another ISR to the controller."""
        self._clients = ClientChecker(evidence, history)
        self._isr = IsrChecker(evidence)
        self._log = LogChecker(evidence)
        self._replicas = ReplicaChecker(evidence, self._log, self._isr)
        self._decisions = DecisionChecker(evidence, self._isr)
        self.on_loss = self._replicas.on_loss
        self.on_deletion = self._decisions.on_deletion
        self.on_decisions = evidence.quorum.on_decisions
        self.on_decisions.append(DecisionCoverage().decided)
        # Decisions are checked first, against the evidence from before them.
        self.on_decisions.append(self._decisions.check_decisions)
        self.on_decisions.append(evidence.leaders.decided)
        self.on_decisions.append(evidence.eligible_leaders.decided)
        self.on_decisions.append(evidence.expiry.decided)
        self._access = access
        self._by_process: dict[SimProcess, NodeLastSeen] = {}
        cluster.on_change.append(self._machine_changed)
        cluster.world.loop.after_event = self._after_event

    def _machine_changed(self, machine: SimNode) -> None:
        seen = self.evidence.nodes[machine.id]
        self._by_process = {
            process: other for process, other in self._by_process.items() if other is not seen
        }
        if machine.process is not None:
            self._by_process[machine.process] = seen
            self.evidence.quorum.voters[machine.id].restarted()
            seen.has_served = False

    def _after_event(self, process: SimProcess) -> None:
        """Called by the event loop after each event, with the process that it happened in."""
        seen = self._by_process.get(process)
        if seen is None:
            self._clients.look()
            return
        node = seen.machine.node
        if node is None or node.quorum is None:
            return
        broker = node.broker
        self.evidence.quorum.look(seen.machine.id, node)
        if self._access is not None:
            self._access.look(seen.machine.id, node)
        if broker is not None and (seen.has_served or broker.is_serving):
            seen.has_served = True  # also while it stops: followers go on until their logs close
            self._replicas.look(seen, broker.replicas.partitions)
            seen.served_as = broker.lifecycle.broker_epoch
        if self.evidence.recorder.has_news:
            self._check_recorded()

    def _check_recorded(self) -> None:
        """What a node did within the event, and may have changed again before its end."""
        recorder = self.evidence.recorder
        for node, truncation in recorder.truncations:
            self._log.check_truncation(node, truncation)
        for partition, proposal in recorder.proposals:
            self._isr.check_proposal(partition, proposal)
            for callback in self.on_proposal:
                callback(partition, proposal)
        for vote in recorder.votes:
            self.evidence.quorum.check_vote(vote)
        for node, role in recorder.installs:
            self.evidence.quorum.check_install(node, role)
        recorder.forget()
