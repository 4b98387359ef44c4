"""Who may do what in a secure run: the rules A1 to A8, held against what clients were answered.

The checker notes which ACLs and credentials each node had when. It decides by a loop over all ACLs, and shares no code with the
product's authorizer. Clients report what they asked, when they asked, when the answer came and what it said (`clients.access`,
`clients.intruder`, `clients.snoop`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.node import Node
from ottla.metadata.records import AccessControlEntryRecord, UserScramCredentialRecord
from ottla.security.operations import AclOperation, ResourceType
from ottla.security.principals import user
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.oracle.ledger import Violation

REVOKED_S = 1.0
"""So long after a node has applied it, what was taken away may still have an effect."""
QUESTIONS = 24
"""About each change of the ACLs of a node."""
LAST_CHANGES = 12

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
EVERYONE, ANYTHING = "User:*", "*"
IMPLIED = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

Question: TypeAlias = tuple[AclOperation, ResourceType, str]
Need: TypeAlias = tuple[Question, ...]
"""One of these is enough."""
Acls: TypeAlias = Mapping[Any, AccessControlEntryRecord]
Credentials: TypeAlias = Mapping[tuple[str, int], UserScramCredentialRecord]


class AccessState(NamedTuple):
    """What a node knew, from a time on."""

    since: float
    acls: Acls
    credentials: Credentials


class AccessQuestion(NamedTuple):
    """A request of a client, and its answer."""

    who: str
    """The name of the user."""
    host: str
    node: int
    what: str
    needs: tuple[Need, ...]
    sent_at: float
    answered_at: float
    by_controller: bool = False
    """Whether the node passed it on: then the ACLs of any node may have decided."""


def covers(record: AccessControlEntryRecord, name: str) -> bool:
    if record.pattern_type == PREFIXED:
        return name.startswith(record.resource_name)
    return record.resource_name in (name, ANYTHING)


def allows(acls: Iterable[AccessControlEntryRecord], who: str, host: str, asked: Question) -> bool:
    """The rules of SECURITY §6, one ACL after the other."""
    operation, resource_type, name = asked
    allowed = False
    for record in acls:
        if (
            record.resource_type != resource_type
            or record.principal not in (f"User:{who}", EVERYONE)
            or record.host not in (host, ANYTHING)
            or not covers(record, name)
        ):
            continue
        if record.operation in (operation, AclOperation.ALL):
            if record.permission_type == DENY:
                return False
            allowed = True
        elif record.permission_type == ALLOW and record.operation in IMPLIED.get(operation, ()):
            allowed = True
    return allowed


class AccessChecker:
    def __init__(
        self,
        cluster: SimCluster,
        chance: random.Random,
        questions: Callable[[random.Random], tuple[str, str, Question]],
    ) -> None:
        """`questions` draws who, from where, and what."""
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._random = chance
        self._question = questions
        self._states: dict[int, list[AccessState]] = {id: [] for id in cluster.nodes}
        self._changes: list[str] = []

    def _now(self) -> float:
        return self._cluster.world.loop.time()

    # What nodes know

    def look(self, id: int, node: Node) -> None:
        """After each event of this node."""
        assert node.quorum is not None
        image, states = node.quorum.image, self._states[id]
        last = states[-1] if states else None
        if last is not None and last.acls is image.acls and last.credentials is image.scram:
            return
        states.append(AccessState(self._now(), image.acls, image.scram))
        if last is not None:
            self._changes += _differences(self._now(), id, last, states[-1])
            del self._changes[:-LAST_CHANGES]
        self._check_index(id, node, image.acls)

    def _check_index(self, id: int, node: Node, acls: Acls) -> None:
        """A5: the index of ACLs decides like a loop over all of them."""
        authorizer = node.authorizer
        if authorizer is None or not authorizer.is_loaded:
            return
        records = list(acls.values())
        for _ in range(QUESTIONS):
            who, host, asked = self._question(self._random)
            found = authorizer.decide(user(who), host, *asked).allowed
            if found is not allows(records, who, host, asked):
                self.report(
                    "A5",
                    id,
                    f"{who} from {host} {'may' if found else 'may not'} {_text(asked)}, by the index;"
                    " by all ACLs it is otherwise",
                )
                return

    def states(self, node: int | None, since: float, until: float) -> Iterator[AccessState]:
        """What this node, or any, knew at some moment between the two times."""
        for states in self._states.values() if node is None else (self._states[node],):
            for state in reversed(states):
                if state.since <= until:
                    yield state
                    if state.since <= since:
                        break

    # What clients were answered

    def granted(self, asked: AccessQuestion) -> None:
        """A2: it was allowed at some moment since it was asked."""
        node = None if asked.by_controller else asked.node
        for need in asked.needs:
            if not any(
                self._meets(state, asked, need)
                for state in self.states(node, asked.sent_at, asked.answered_at)
            ):
                self.report(
                    "A2", asked.node, f"{asked.who} did {asked.what} without {_text(need[0])}"
                )

    def denied(self, asked: AccessQuestion) -> None:
        """A8: nobody is refused what is allowed all the time."""
        node = None if asked.by_controller else asked.node
        if all(
            self._meets(state, asked, need)
            for need in asked.needs
            for state in self.states(node, asked.sent_at, asked.answered_at)
        ):
            self.report("A8", asked.node, f"{asked.who} was refused {asked.what}, which is allowed")

    def read(self, asked: AccessQuestion, written_at: Sequence[float]) -> None:
        """A6: nobody reads a record that was written a second after the right was taken away. The fetch may have waited since before."""
        for at in written_at:
            if not any(
                self._meets(state, asked, need)
                for need in asked.needs
                for state in self.states(asked.node, at - REVOKED_S, asked.answered_at)
            ):
                self.report(
                    "A6", asked.node, f"{asked.who} read what was written at {at:.6f} without READ"
                )
                return

    def _meets(self, state: AccessState, asked: AccessQuestion, need: Need) -> bool:
        records = state.acls.values()
        return any(allows(records, asked.who, asked.host, question) for question in need)

    # Logins

    def credentials_of(
        self, name: str, mechanism: int, node: int, since: float, until: float
    ) -> list[UserScramCredentialRecord | None]:
        key = name, mechanism
        return [state.credentials.get(key) for state in self.states(node, since, until)]

    def report(self, rule: str, node: int, what: str) -> None:
        self.violations.append(
            Violation(rule, f"node {node}, at {self._now():.6f}", what, list(self._changes))
        )

    def check_end(self) -> None:
        """A5: at rest all nodes decide alike."""
        known = {
            machine.id: frozenset(machine.node.authorizer.acls)
            for machine in self._cluster.up
            if machine.node is not None and machine.node.authorizer is not None
        }
        for id, acls in known.items():
            if acls != next(iter(known.values())):
                self.report("A5", id, "at rest it has other ACLs than the first node")


def _text(asked: Question) -> str:
    operation, resource_type, name = asked
    return f"{operation.name} on {resource_type.name} {name}"


def _differences(now: float, id: int, before: AccessState, after: AccessState) -> Iterator[str]:
    for sign, one, other in (("-", before, after), ("+", after, before)):
        for key, record in one.acls.items():
            if key not in other.acls:
                yield (
                    f"{now:.6f} node {id}: {sign} {'DENY' if record.permission_type == DENY else 'ALLOW'} "
                    f"{record.principal} {AclOperation(record.operation).name} "
                    f"{ResourceType(record.resource_type).name} {record.resource_name}"
                    f"{'…' if record.pattern_type == PREFIXED else ''} from {record.host}"
                )
        for who, credential in one.credentials.items():
            if other.credentials.get(who) != credential:
                yield f"{now:.6f} node {id}: {sign} credential of {who[0]}"
