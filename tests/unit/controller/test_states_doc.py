"""docs/STATES.md is drawn from the tables in controller/states.py and replica/roles.py; run as a script this draws it
anew."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from ottla.controller.states import (
    BROKER_EDGES,
    PARTITION_EDGES,
    REPLICA_EDGES,
    BrokerControlState,
    PartitionState,
    ReplicaState,
)
from ottla.replica.roles import EDGES, Role

State = TypeVar("State", bound=Enum)

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "STATES.md"
HEAD = """# The state machines of the controller, and the roles of a replica

Drawn from the tables in `src/ottla/controller/states.py` and `src/ottla/replica/roles.py` by
`python tests/unit/controller/test_states_doc.py`; a test fails when this page is stale. An edge that is not drawn
here cannot happen.

No state of the controller is stored: each is read off the cluster's metadata, and every decision of the controller
is checked against these tables before it is written.
"""
ROLES = """What the broker that holds a replica makes of the controller's decisions. Only the `become_…` methods of
`replica.partition.Partition` change a role, along these edges.
"""


def drawn(
    title: str,
    states: type[State],
    edges: Mapping[tuple[State, State], str],
    outside: State,
    text: str | None = None,
) -> str:
    """One machine: a diagram, and what each state means. `outside` is where it begins and ends."""

    def name(state: State) -> str:
        return "[*]" if state is outside else state.name

    lines = [f"## {title}", "", *([] if text is None else [text]), "```mermaid", "stateDiagram-v2"]
    lines += [f"    {name(a)} --> {name(b)}: {_safe(why)}" for (a, b), why in edges.items()]
    lines += ["```", "", "| State | Meaning |", "|---|---|"]
    lines += [
        f"| {state.name}{' (the dot)' if state is outside else ''} | {state.value} |"
        for state in states
    ]
    return "\n".join(lines) + "\n"


def _safe(label: str) -> str:
    """Mermaid ends a label at a semicolon, and a second colon confuses it."""
    return label.replace(";", ",").replace(":", " –")


def page() -> str:
    machines = [
        drawn("Brokers", BrokerControlState, BROKER_EDGES, BrokerControlState.UNREGISTERED),
        drawn("Partitions", PartitionState, PARTITION_EDGES, PartitionState.NONEXISTENT),
        drawn("Replicas", ReplicaState, REPLICA_EDGES, ReplicaState.UNASSIGNED),
        drawn("Roles of a replica on its broker", Role, EDGES, Role.OFFLINE, ROLES),
    ]
    return "\n".join([HEAD, *machines])


def test_P33_the_state_machines_in_the_docs_are_drawn_from_the_codes_tables() -> None:
    assert PAGE.read_text() == page(), f"stale: run python {Path(__file__).relative_to(ROOT)}"


if __name__ == "__main__":
    PAGE.write_text(page())
