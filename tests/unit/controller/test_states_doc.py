"""docs/STATES.md is drawn from the tables in controller/states.py, replica/roles.py and raft/roles.py; run as a script
this draws it anew."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ottla.controller.states import (
    BROKER_TRANSITIONS,
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    BrokerControlState,
    PartitionState,
    ReplicaState,
)
from ottla.raft import roles as raft_roles
from ottla.raft.roles import RaftRole
from ottla.replica.roles import TRANSITIONS, Role

State = TypeVar("State", bound=Enum)

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "STATES.md"
HEAD = """# The state machines of the controller, and the roles of replicas and quorum nodes

Drawn from the tables in `src/ottla/controller/states.py`, `src/ottla/replica/roles.py` and `src/ottla/raft/roles.py` by
`python tests/unit/controller/test_states_doc.py`. A test fails when this page is stale. A transition that is not drawn
here cannot happen.

The states of brokers, partitions and replicas are not stored. Each follows from the cluster's metadata, and every
decision of the controller is checked against these tables before it is written.
"""
ROLES = """The role in which a broker holds a replica, after the decisions of the controller that have reached it. Only the
`become_…` methods of `replica.partition.Partition` change a role, along these transitions.
"""
RAFT_ROLES = """The role of a node in the quorum of the metadata log. Only the `become_…` methods of
`raft.quorum_state.QuorumState` change a role, along these transitions. A broker that is no voter is only UNATTACHED or
FOLLOWER.
"""
RAFT_START = {
    RaftRole.UNATTACHED: "the node starts",
    RaftRole.RESIGNED: "the node starts, and led the last epoch that it knows",
}


def drawn(
    title: str,
    states: type[State],
    transitions: Mapping[tuple[State, State], str],
    outside: State | None = None,
    text: str | None = None,
    start: Mapping[RaftRole, str] | None = None,
) -> str:
    """One machine: a diagram, and what each state means. It begins and ends in `outside`, or begins in `start`."""

    def name(state: State) -> str:
        return "[*]" if state is outside else state.name

    lines = [f"## {title}", "", *([] if text is None else [text]), "```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state.name}: {_safe(why)}" for state, why in (start or {}).items()]
    lines += [f"    {name(a)} --> {name(b)}: {_safe(why)}" for (a, b), why in transitions.items()]
    lines += ["```", "", "| State | Meaning |", "|---|---|"]
    meanings = _docstrings(states)
    lines += [
        f"| {state.name}{' (the dot)' if state is outside else ''} "
        f"| {meanings.get(state.name, state.value)} |"
        for state in states
    ]
    return "\n".join(lines) + "\n"


def _docstrings(states: type[Enum]) -> dict[str, str]:
    """The strings below the members of an enum whose values are not their meanings."""
    tree = ast.parse(inspect.getsource(states))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for member, below in pairwise(body):
        match member, below:
            case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                found[name] = text.rstrip(".")
    return found


def _safe(label: str) -> str:
    """Mermaid ends a label at a semicolon, and a second colon confuses it."""
    return label.replace(";", ",").replace(":", " –")


def page() -> str:
    machines = [
        drawn("Brokers", BrokerControlState, BROKER_TRANSITIONS, BrokerControlState.UNREGISTERED),
        drawn("Partitions", PartitionState, PARTITION_TRANSITIONS, PartitionState.NONEXISTENT),
        drawn("Replicas", ReplicaState, REPLICA_TRANSITIONS, ReplicaState.UNASSIGNED),
        drawn("Roles of a replica on its broker", Role, TRANSITIONS, Role.OFFLINE, ROLES),
        drawn(
            "Roles of a node in the quorum",
            RaftRole,
            raft_roles.TRANSITIONS,
            text=RAFT_ROLES,
            start=RAFT_START,
        ),
    ]
    return "\n".join([HEAD, *machines])


def test_P33_the_state_machines_in_the_docs_are_drawn_from_the_codes_tables() -> None:
    assert PAGE.read_text() == page(), f"stale: run python {Path(__file__).relative_to(ROOT)}"


if __name__ == "__main__":
    PAGE.write_text(page())
