"""Entries of the event log whose fields are not what they should be: anybody who may write there can write anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.client import Client
from ottla.console.model.cluster_model import ClusterModel, problems_of
from ottla.console.model.structure import THE
from ottla.console.watch import cluster_watch as module
from ottla.console.watch.cluster_watch import ClusterWatch
from ottla.diagnosis.explanation import WRONG
from unit.console.test_model_structure import ELECTION, NOW, PLACE, a_model, a_topic, an_event
from unit.console.test_visits import SetClock, connect

ODD: list[Any] = [None, "x", [None, 1], {}, 1.5, 2]
KINDS: dict[str, dict[str, Any]] = {
    "election": ELECTION,
    "offline": {"previous_leader": 1, "leader_epoch": 6},
    "isr_shrink": {"leader": 1, "leader_epoch": 5, "isr": [1], "previous_isr": [1, 2], "brokers": [2]},
    "isr_expand": {"leader": 1, "leader_epoch": 5, "isr": [1], "previous_isr": [1], "brokers": [2]},
    "reassignment": {"step": "started", "replicas": [1, 2], "adding": [3], "removing": []},
    "controller_change": {"controller": 1, "epoch": 9},
    "fenced": {"broker": 1},
    "unfenced": {"broker": 1},
    "leader_start": {"leader": 1, "leader_epoch": 6, "log_end": 5},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_entry_is_shown_and_changes_nothing_that_is_worked_out(kind: str) -> None:
    whole = KINDS[kind]
    cases = [{name: value for name, value in whole.items() if name != left} for left in whole]
    cases += [{**whole, name: odd} for name in whole for odd in ODD]
    for fields in cases:
        model = a_model(a_topic())
        about = None if kind in ("controller_change", "fenced", "unfenced") else "orders-0"
        model.event(an_event(kind, about, **fields))
        model.settle(NOW)
        row = model.partitions[PLACE]
        assert all(isinstance(id, int) for id in (*row.isr, *row.replicas, row.leader, row.epoch))
        then = model.past(model.happenings.events, NOW - 10)
        problems_of(then)
        assert then.controller is None or isinstance(then.controller, int)
        problems_of(model.past(model.happenings.events, NOW + 10))
        assert model.happenings.events


def test_a_round_that_fails_is_told_and_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_S", 0.01)
    monkeypatch.setattr(module, "SETTLE_S", 0.001)
    fails = True
    settle = ClusterModel.settle

    def sometimes(model: ClusterModel, now_ms: int) -> None:
        if fails:
            raise TypeError("a bug")
        settle(model, now_ms)

    monkeypatch.setattr(ClusterModel, "settle", sometimes)

    async def watch() -> None:
        nonlocal fails
        clients: list[Client] = []

        def noted() -> Client:
            clients.append(connect())
            return clients[-1]

        async with ClusterWatch(noted, SetClock()) as running:
            await asyncio.wait_for(running.changed(running.model.version), 10)
            (told,) = running.model.problems.values()
            assert told.severity == WRONG
            assert "a bug" in told.why
            fails = False
            await asyncio.wait_for(running.changed(running.model.version), 10)
            assert "own" not in running.model.problems
            assert THE in running.model.cluster

    asyncio.run(watch())
