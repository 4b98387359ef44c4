"""The commands of the script language, and how one line of a script is run.

A command does one thing, lets the cluster react for a moment, and returns lines that say what happened. To add one,
write a method of `ScriptCluster` or `ScriptClient` with its words as `str` parameters, and add it to the table here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature

from ottla.sim.engine.world import World
from ottla.sim.scripts.arguments import ScriptError, usage
from ottla.sim.scripts.script_client import REACTION_S
from ottla.sim.scripts.script_cluster import ScriptCluster


class ScriptCommands:
    def __init__(self, world: World, cluster: ScriptCluster | None = None) -> None:
        self._world = world
        self._cluster = cluster = cluster or ScriptCluster(world)
        client = cluster.client
        self._commands: dict[str, Callable[..., list[str]]] = {
            "cluster": cluster.cluster,
            "topic": cluster.topic,
            "start": cluster.start,
            "kill": cluster.kill,
            "power-off": cluster.power,
            "flush": cluster.flush,
            "erase-log": cluster.erase,
            "replace-disk": cluster.replace_disk,
            "isolate": cluster.isolate,
            "heal": cluster.heal,
            "hold": cluster.hold,
            "release": cluster.release,
            "send": cluster.send,
            "answer": cluster.answer,
            "lose": cluster.lose,
            "move-leader": cluster.move,
            "reassign": cluster.reassign,
            "elect": cluster.elect,
            "produce": client.produce,
            "consume": client.consume,
            "producer": client.producer,
            "write": client.write,
            "end-txn": client.end_transaction,
            "transactions": client.transactions,
            "end": client.end,
            "state": cluster.state,
            "epochs": cluster.epochs,
            "wait": cluster.wait,
            "expect": cluster.expect,
        }

    def run(self, name: str, arguments: Sequence[str]) -> list[str]:
        """One line of a script; what happened then."""
        command = self._commands.get(name)
        if command is None:
            raise ScriptError(f"{name} is none of {', '.join(self._commands)}")
        try:
            signature(command).bind(*arguments)
        except TypeError as error:
            raise ScriptError(f"{error}; usage: {usage(name, command)}") from None
        if not self._cluster.brokers and name != "cluster":
            first = usage("cluster", self._cluster.cluster)
            raise ScriptError(f"there are no brokers yet; first comes: {first}")
        lines = command(*arguments)
        self._world.run_for(REACTION_S)
        events = self._cluster.events
        events += self._cluster.client.finished()
        problems = self._world.problems()
        if problems:
            raise ScriptError("; ".join(problems))
        self._cluster.events = []
        return [*lines, *events]
