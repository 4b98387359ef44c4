"""The cluster of the golden scripts: one partition on a few brokers, a controller, and a hold on every message.

Each public method that returns a list of lines is a command of the script language (`commands`). The controller's
decisions and the truncations of replicas are reported as they happen, whichever command caused them. The checkers of
RELIABILITY §1 watch all of it, as in any simulation, unless the lab plays the script with a design that may break them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.node import Broker, Node
from ottla.config import Settings
from ottla.controller.draft import UNCLEAN_ELECTION
from ottla.events import Event
from ottla.events.replication import Truncated
from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.runtime import Runtime
from ottla.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT, DATA, SimCluster, SimNode
from ottla.sim.engine.world import SimHost, World
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import History
from ottla.sim.oracle.safety_checker import SafetyChecker
from ottla.sim.scripts.arguments import NotInTime, ScriptError, number, one_of, pairs, usage
from ottla.sim.scripts.held_messages import InterceptedMessage, MessageInterceptor, MessageKind
from ottla.sim.scripts.leader_moves import move_leader
from ottla.sim.scripts.rendering import decision_text, ids, log_text, message_text
from ottla.sim.scripts.script_client import FOREVER_MS, PATIENCE_S, TOPIC, ScriptClient
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

LOG = f"{DATA}/{TOPIC.topic}-{TOPIC.partition}"

KINDS = {
    "fetch": MessageKind(ApiKey.FETCH, BROKER_PORT),
    "metadata": MessageKind(ApiKey.FETCH, CONTROLLER_PORT),
    "alter-partition": MessageKind(ApiKey.ALTER_PARTITION, CONTROLLER_PORT),
    "end-txn": MessageKind(ApiKey.END_TXN, BROKER_PORT),
}
ELECTIONS = {"preferred": 0, "unclean": 1}
CLIENT = "client"

SETTINGS = {
    # Nothing happens by itself unless the script waits for it.
    "replica.lag.time.max.ms": FOREVER_MS,
    "replica.socket.timeout.ms": FOREVER_MS,
    "request.timeout.ms": FOREVER_MS,
    "auto.leader.rebalance.enable": "false",
}


class UnflushedIsLost(random.Random):
    """A power loss without luck: of what was not flushed, nothing survives."""

    def choice(self, seq: Any) -> Any:
        return "none" if "none" in seq else super().choice(seq)

    def randint(self, a: int, b: int) -> int:
        return a


class ScriptCluster:
    def __init__(
        self,
        world: World,
        make_node: Callable[[Settings, Runtime], Node] = Node,
        *,
        is_checked: bool = True,
    ) -> None:
        """`make_node`: another design makes another node. `is_checked`: the first violation ends the script."""
        self.world = world
        self._make_node = make_node
        self._is_checked = is_checked
        world.network.conditions.jitter_s = 0.0
        world.network.conditions.cut_rate = 0.0
        self._interceptor = MessageInterceptor(world.loop)
        host = world.node(CLIENT)
        host.runtime = self._interceptor.between(CLIENT, host.runtime)
        self.client = ScriptClient(world, host, self)
        self.brokers: list[SimNode] = []
        self.events: list[str] = []
        """What happened since the last command, in words."""
        self._decided: PartitionImage | None = None

    # The cluster

    def cluster(self, brokers: str, *settings: str) -> list[str]:
        """This number of brokers, and one controller that never fails."""
        self.sim_cluster = SimCluster(
            self.world,
            number(brokers) + 1,
            {**SETTINGS, **pairs(settings)},
            controllers=1,
            make_node=self._make_node,
        )
        *self.brokers, self._controller = self.sim_cluster.nodes.values()
        self._evidence = (
            SafetyChecker(self.sim_cluster, History()).evidence
            if self._is_checked
            else Evidence(self.sim_cluster)
        )
        self.sim_cluster.subscribe(self._happened, Truncated)
        for node in self.sim_cluster.nodes.values():
            name = node.host.name
            node.host.runtime = self._interceptor.between(name, node.host.runtime)
            node.host.disk.random = UnflushedIsLost()
        self._controller.start()
        self._until(lambda: self._controller.is_ready, "the controller is there")
        controller = self._controller.node
        assert controller is not None and controller.quorum is not None
        controller.quorum.on_image.append(self._metadata_changed)
        return self.start(*(str(broker.id) for broker in self.brokers))

    def topic(self, *settings: str) -> list[str]:
        """`replicas=2,1`: the first is the preferred leader and leads."""
        given = pairs(settings)
        replicas = [int(id) for id in given.pop("replicas").split(",")]
        self._evidence.allows_unclean_elections = given.get(UNCLEAN_ELECTION) == "true"
        wanted = {
            "name": TOPIC.topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": replicas}],
            "configs": [{"name": name, "value": value} for name, value in given.items()],
        }
        answer = self.client.ask(
            self.brokers[0],
            ApiKey.CREATE_TOPICS,
            {"topics": [wanted], "timeout": 3000, "validate_only": False},
        )
        code = int(answer.topics[0].error_code)
        if code:
            raise ScriptError(f"the topic was not created: {ErrorCode(code).name}")
        self._until(
            lambda: all(self.replica(self.node(id)) is not None for id in replicas),
            "its replicas are there",
        )
        return []

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        topic = image.topics.get(TOPIC.topic)
        decided = None if topic is None else topic.partitions[0]
        if decided is not None and decided != self._decided:
            before, self._decided = self._decided, decided
            if before is None or decision_text(before) != decision_text(decided):
                self.events.append(f"controller: {decision_text(decided)}")

    # Machines

    def start(self, *nodes: str) -> list[str]:
        """Start these nodes, and wait until they are unfenced."""
        for node in map(self.node, nodes):
            node.start()
            self._until(lambda node=node: _broker(node) is not None, "the broker is there")  # type: ignore[misc]
        self._until(lambda: all(self.node(id).is_ready for id in nodes), "they are unfenced")
        return []

    def kill(self, *nodes: str) -> list[str]:
        """kill -9: what was written stays in the page cache, and the connections close."""
        for node in map(self.node, nodes):
            node.kill()
        return []

    def power(self, *nodes: str) -> list[str]:
        """Power loss: what was not flushed is lost, and connections are not closed."""
        for node in map(self.node, nodes):
            self._evidence.power_lost(node.id)
            node.kill(power_loss=True)
        return []

    def flush(self, *nodes: str) -> list[str]:
        """These nodes flush their logs."""
        for node in map(self.node, nodes):
            partition = self.replica(node)
            assert partition is not None
            partition.log.flush()
        return []

    def erase(self, node: str) -> list[str]:
        """Remove the partition's directory from a machine that is down; its directory id stays."""
        self._evidence.logs_erased(self.node(node).id)
        self.node(node).host.disk.remove_tree(LOG)
        return []

    def replace_disk(self, node: str) -> list[str]:
        """Give a machine that is down an empty disk for its logs."""
        self._evidence.logs_erased(self.node(node).id)
        self.node(node).host.disk.remove_tree(DATA)
        return []

    def isolate(self, node: str) -> list[str]:
        """Cut this node off from all other nodes, but not from clients."""
        name = self.node(node).host.name
        others = [each.host.name for each in self.sim_cluster.nodes.values()]
        self.world.network.partition([name], [other for other in others if other != name])
        return []

    def heal(self, node: str) -> list[str]:
        name = self.node(node).host.name
        for other in self.sim_cluster.nodes.values():
            if other.host.name != name:
                ways = [(name, other.host.name), (other.host.name, name)]
                self.world.network.unblock(ways)
        return []

    def _happened(self, node: SimNode, truncation: Event) -> None:
        if not isinstance(truncation, Truncated):
            return
        lost = truncation.high_watermark - truncation.first_offset
        self.events.append(
            f"{node.id} truncates its log from {truncation.end_offset} to {truncation.first_offset}"
            + (f"; {lost} of the records were committed" if lost > 0 else "")
        )

    # Messages

    def hold(self, kind: str, *nodes: str) -> list[str]:
        """Requests of this kind from these nodes, and their responses, wait until the script sends or releases them."""
        for node in nodes:
            self._interceptor.hold(one_of(kind, KINDS), self._name(node))
        return []

    def release(self, kind: str, *nodes: str) -> list[str]:
        for node in nodes:
            self._interceptor.release(one_of(kind, KINDS), self._name(node))
        return []

    def send(self, kind: str, node: str, which: str = "1") -> list[str]:
        """The oldest waiting request is sent; with `which` 2 the one of the second connection."""
        return self._let_through(kind, node, answers=False, which=number(which))

    def answer(self, kind: str, node: str) -> list[str]:
        """The oldest waiting response, or the next one, is delivered."""
        return self._let_through(kind, node, answers=True)

    def lose(self, kind: str, node: str) -> list[str]:
        """The connection of the oldest waiting response or request breaks."""
        message = self._next(kind, node, (True, False))
        message.connection.lose()
        return [f"lost: {self._message_text(message)}"]

    def _let_through(self, kind: str, node: str, *, answers: bool, which: int = 1) -> list[str]:
        message = self._next(kind, node, (answers,), which)
        message.connection.release(message)
        return [self._message_text(message)]

    def _next(
        self, kind: str, node: str, sides: Sequence[bool], which: int = 1
    ) -> InterceptedMessage:
        """The oldest waiting message, or the next one: responses, requests, or both."""
        name, wanted = self._name(node), one_of(kind, KINDS)
        found: list[InterceptedMessage] = []

        def is_there() -> bool:
            for answers in sides:
                messages = self._interceptor.waiting(wanted, name, answers=answers)
                if len(messages) >= which:
                    found.append(messages[which - 1])
                    return True
            return False

        self._until(is_there, f"{node} has a message that waits")
        return found[0]

    def _message_text(self, message: InterceptedMessage) -> str:
        return message_text(message, [node.host.name for node in self.sim_cluster.nodes.values()])

    # The controller

    def move(self, leader: str) -> list[str]:
        """The controller gives the leadership to this member of the ISR and changes nothing else."""
        move_leader(self._controller, TOPIC, number(leader))
        return []

    def reassign(self, replicas: str) -> list[str]:
        """AlterPartitionReassignments: `2,1`, the first is the preferred leader."""
        wanted = {"partition_index": 0, "replicas": [int(id) for id in replicas.split(",")]}
        answer = self.client.ask(
            self.brokers[0],
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            {"topics": [{"name": TOPIC.topic, "partitions": [wanted]}], "timeout": 3000},
        )
        code = int(answer.responses[0].partitions[0].error_code)
        return [f"reassign: {ErrorCode(code).name}"] if code else []

    def elect(self, kind: str, node: str) -> list[str]:
        """ElectLeaders, sent to that broker: `preferred` or `unclean`."""
        election_type = one_of(kind, ELECTIONS)
        self._evidence.allows_unclean_elections |= kind == "unclean"
        answer = self.client.ask(
            self.node(node),
            ApiKey.ELECT_LEADERS,
            {
                "election_type": election_type,
                "topic_partitions": [{"topic": TOPIC.topic, "partitions": [0]}],
                "timeout": 3000,
            },
        )
        code = int(answer.replica_election_results[0].partition_result[0].error_code)
        return [f"elect leaders: {ErrorCode(code).name}"] if code else []

    def topic_id(self) -> Any:
        node = self._controller.node
        assert node is not None and node.quorum is not None
        return node.quorum.image.topics[TOPIC.topic].id

    # Looking and waiting

    def state(self) -> list[str]:
        """Every replica, and the last decision of the controller."""
        lines = [self._replica_text(node) for node in self.brokers]
        return [*lines, f"controller: {decision_text(self._decision())}"]

    @property
    def decision(self) -> PartitionImage | None:
        """The last decision of the controller; None before there is a topic."""
        return self._decided

    def _decision(self) -> PartitionImage:
        if self._decided is None:
            raise ScriptError(f"there is no topic yet; first comes: {usage('topic', self.topic)}")
        return self._decided

    def _replica_text(self, node: SimNode) -> str:
        partition = self.replica(node)
        log = log_text(log_content(node.host))
        if partition is None:
            return f"{node.id} {'no replica' if node.is_up else 'down':<43} {log}"
        isr = f"ISR {ids(partition.isr)}" if partition.role is Role.LEADER else ""
        text = f"{node.id} {partition.role.name.lower():<8}  epoch {partition.leader_epoch:<2} "
        text += (
            f"LEO {partition.log.log_end:<3} HW {partition.log.high_watermark:<3} {isr:<9} {log}"
        )
        return text

    def epochs(self) -> list[str]:
        """The leader epoch checkpoint of each replica: which epoch began at which offset."""
        return [
            f"{node.id}: "
            + ", ".join(f"epoch {e} from {start}" for e, start in partition.log.epochs.entries)
            for node in self.brokers
            if (partition := self.replica(node)) is not None
        ]

    def wait(self, seconds: str) -> list[str]:
        self.world.run_for(float(seconds))
        return []

    def expect(self, *conditions: str) -> list[str]:
        """Wait until the controller's decision is `leader=1 isr=1,2`, or until all logs are `equal`."""
        for condition in conditions:
            try:
                self._until(lambda condition=condition: self._holds(condition), condition)  # type: ignore[misc]
            except NotInTime as late:
                raise NotInTime("\n".join([f"{late}; instead:", *self.state()])) from None
        return []

    def _holds(self, condition: str) -> bool:
        name, _, wanted = condition.partition("=")
        decided = self._decision()
        if name == "leader":
            return decided.leader == (NO_LEADER if wanted == "none" else number(wanted))
        if name == "isr":
            return set(decided.isr) == {number(id) for id in wanted.split(",")}
        if name != "equal":
            raise ScriptError(f"{name} is none of leader=B, isr=B,B, equal")
        logs = [p.log for node in self.brokers if (p := self.replica(node)) is not None]
        contents = {bytes(log_content(node.host)) for node in self.brokers if node.is_up}
        ends = {(log.log_end, log.high_watermark) for log in logs}
        return len(contents) == 1 and len(ends) == 1 and logs[0].high_watermark == logs[0].log_end

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        if not self.world.run_until(condition, PATIENCE_S):
            news = "; ".join(self.events)
            raise NotInTime(f"not within {PATIENCE_S:.0f} s: {what} ({news or 'no news'})")

    def _name(self, node: str) -> str:
        """The host name of a node, or of the client."""
        return CLIENT if node == CLIENT else self.node(node).host.name

    def node(self, id: str | int) -> SimNode:
        node = self.sim_cluster.nodes.get(number(id))
        if node is None:
            raise ScriptError(
                f"there is no broker {id}, only {ids(each.id for each in self.brokers)}"
            )
        return node

    def replica(self, node: SimNode) -> Partition | None:
        """The replica in the memory of a running broker."""
        broker = _broker(node)
        return None if broker is None else broker.replicas.partitions.get(TOPIC)


def _broker(node: SimNode) -> Broker | None:
    return None if node.node is None else node.node.broker


def log_content(host: SimHost) -> bytes:
    """The partition's segments as they are on the disk of that host, in order."""
    if not host.disk.exists(LOG):
        return b""
    names = [name for name in host.disk.list_dir(LOG) if name.endswith(".log")]
    return b"".join(bytes(host.disk.peek(f"{LOG}/{name}")) for name in names)
