"""A cluster of node processes on this machine, and the directory that describes it.

DIR/cluster.json                the nodes, their ports and their process ids
DIR/node-1/server.properties    the node's settings
DIR/node-1/node.log             what the node logs and prints
DIR/node-1/data/                its log directory, in Kafka's layout
DIR/console.log                 what the console prints, if there is one

A secure cluster has more: see `local.secure`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ottla.local.console import LocalConsole, kill_console, start_console, stop_console
from ottla.local.disks import is_gone, trouble_with
from ottla.local.errors import (
    Conflict,
    DamagedCluster,
    InvalidUse,
    LocalClusterError,
    NoCluster,
    NotFound,
)
from ottla.local.exit_codes import CONFLICT, USAGE
from ottla.local.ports import free_ports
from ottla.local.private_files import write_private
from ottla.local.processes import Process, Starting, first_to_tell, stop_all, wait_gone

HOST = "127.0.0.1"
CONTROLLERS_MAX = 3  # a larger quorum would only be slower on one machine
READY_TIMEOUT_S = 60.0
NEWS_EVERY_S = 5.0
STOP_PATIENCE_S = 60.0
READY_LINE = b"node is ready"
RUNNING, STOPPED, KILLED, DIED = "running", "stopped", "killed", "died"
OF_EACH_NODE = (
    "node.id",
    "process.roles",
    "cluster.id",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
    "metadata.log.dir",
    "metrics.listeners",
)
SECURED = (
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "authorizer.class.name",
    "super.users",
    "ottla.decoy.secret",
)
"""Settings of a secure cluster that are not for its user to choose."""
"""Settings that differ from node to node: `LocalCluster` sets them."""


def default_directory() -> Path:
    """$OTTLA_DIR, or `ottla/default` in the user's data directory."""
    if given := os.environ.get("OTTLA_DIR"):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "ottla" / "default"


@dataclass(frozen=True)
class LocalNode:
    id: int
    port: int
    controller_port: int | None
    metrics_port: int | None = None
    internal_port: int | None = None
    """For other nodes, in a secure cluster."""
    pid: int | None = None
    started: str = ""
    ended: str = ""
    """How its last process ended, if that is known: STOPPED, KILLED or, with a code, DIED."""
    ended_at: float | None = None
    """When, in seconds since 1970."""

    @property
    def process(self) -> Process | None:
        return None if self.pid is None else Process(self.pid, self.started)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def state(self) -> str:
        """RUNNING, or how it ended. Whoever ended without a command of ours has died."""
        if self.running:
            return RUNNING
        return DIED if self.pid is not None and not self.ended else self.ended or STOPPED

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ports(self) -> list[int]:
        known = (self.port, self.controller_port, self.metrics_port, self.internal_port)
        return [port for port in known if port is not None]

    @property
    def metrics(self) -> str | None:
        """Where its metrics are."""
        return None if self.metrics_port is None else f"http://{HOST}:{self.metrics_port}/metrics"


class LocalCluster:
    """What DIR/cluster.json says; every change is written there at once."""

    def __init__(
        self,
        directory: Path,
        cluster_id: str,
        nodes: list[LocalNode],
        *,
        secure: bool = False,
        hosts: Sequence[str] = (),
        dynamic_voters: bool = False,
        per_machine: int | None = None,
        console: LocalConsole | None = None,
    ) -> None:
        self.directory = directory
        self.console = console
        """The console beside it; None if there never was one."""
        self.per_machine = per_machine
        """How many nodes stand for one machine. None: nothing is said about machines, and each may be one."""
        self.dynamic_voters = dynamic_voters
        """Whether voters may change: then each has a directory id, and no setting names them."""
        self.cluster_id = cluster_id
        self.nodes = {node.id: node for node in nodes}
        self.secure = secure
        self.hosts = tuple(hosts)
        """Names of this machine under which clients of a secure cluster reach it from elsewhere."""

    # -- the directory

    @classmethod
    def load(cls, directory: Path) -> LocalCluster:
        file = directory / "cluster.json"
        try:
            content = json.loads(file.read_text())
            nodes = [LocalNode(**node) for node in content["nodes"]]
            return cls(
                directory,
                content["cluster_id"],
                nodes,
                secure=content.get("secure", False),
                hosts=content.get("hosts", ()),
                dynamic_voters=content.get("dynamic_voters", False),
                per_machine=content.get("per_machine"),
                console=None if "console" not in content else LocalConsole(**content["console"]),
            )
        except (FileNotFoundError, NotADirectoryError):
            raise NoCluster(f"{directory}: no cluster here") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCluster(f"{file}: cannot be read ({error})") from None

    @classmethod
    def create(
        cls,
        directory: Path,
        count: int,
        port: int,
        settings: Mapping[str, str] | None = None,
        *,
        metrics: bool = False,
        secure: bool = False,
        hosts: Sequence[str] = (),
        dynamic_voters: bool = False,
        per_machine: int | None = None,
    ) -> LocalCluster:
        """`port`: the first one, or 0 for free ones. `settings`: of every node, in addition to those that it needs.
        `metrics`: every node serves its metrics. `secure`: see `local.secure`; with `hosts`, clients reach it from
        other machines. `per_machine`: so many nodes have the same `broker.rack`, which names their machine."""
        if directory.exists() and any(name.name != ".lock" for name in directory.iterdir()):
            raise Conflict(
                f"{directory}: is not empty and holds no cluster; choose another directory"
            )
        # A machine that is lost must take only one controller with it.
        of_controllers = list(range(1, count + 1, per_machine or 1))[:CONTROLLERS_MAX]
        controllers = len(of_controllers)
        needed = count + controllers + (count if metrics else 0) + (count if secure else 0)
        ports = free_ports(needed) if port == 0 else list(range(port, port + needed))
        if max(ports) > 65535:
            raise InvalidUse(
                f"{port} is too high: {len(ports)} ports from there on are needed, up to 65535",
                parameter="port",
            )
        _require_free(ports, "choose another port, or 0 for free ones", parameter="port")
        nodes = [
            LocalNode(
                id,
                ports[id - 1],
                ports[count + of_controllers.index(id)] if id in of_controllers else None,
                ports[count + controllers + id - 1] if metrics else None,
                ports[needed - count + id - 1] if secure else None,
            )
            for id in range(1, count + 1)
        ]
        cluster = cls(
            directory,
            _new_cluster_id(),
            nodes,
            secure=secure,
            hosts=hosts,
            dynamic_voters=dynamic_voters,
            per_machine=per_machine,
        )
        if settings:
            cluster._check(settings)
        for node in nodes:
            cluster.node_directory(node.id).mkdir(parents=True)
        if secure:
            from ottla.local.secure import make_secure

            make_secure(cluster)
        elif dynamic_voters:
            from ottla.local.voters import format_controllers

            format_controllers(cluster)
        for node in nodes:
            cluster.configure(node.id, settings or {})
        cluster.save()
        return cluster

    def save(self) -> None:
        content: dict[str, object] = {
            "cluster_id": self.cluster_id,
            "nodes": [asdict(node) for node in self.nodes.values()],
        }
        if self.secure:
            content |= {"secure": True, "hosts": self.hosts}
        if self.dynamic_voters:
            content["dynamic_voters"] = True
        if self.per_machine is not None:
            content["per_machine"] = self.per_machine
        if self.console is not None:
            content["console"] = asdict(self.console)
        file = self.directory / "cluster.json"
        temporary = file.with_name("cluster.json.new")
        text = json.dumps(content, indent=1) + "\n"
        try:
            if self.secure:
                write_private(file, text)
            else:
                temporary.write_text(text)
                temporary.replace(file)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise LocalClusterError(
                f"{self.directory}: cluster.json cannot be written: {error.strerror}; make room"
                " there, then try again"
            ) from None

    def _save_end(self) -> None:
        """Also if the disk is full: that a process has ended is seen without the file."""
        with suppress(LocalClusterError):
            self.save()

    def purge(self) -> None:
        self.kill()
        if self.console is not None:
            kill_console(self.console)
        shutil.rmtree(self.directory)

    def node_directory(self, id: int) -> Path:
        return self.directory / f"node-{id}"

    def config_file(self, id: int) -> Path:
        return self.node_directory(id) / "server.properties"

    def log_file(self, id: int) -> Path:
        return self.node_directory(id) / "node.log"

    def configure(self, id: int, more: Mapping[str, str]) -> None:
        """Write the node's file of settings: those that make it part of this cluster, and `more`."""
        settings = {**self._settings(self.nodes[id]), **more}
        text = "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())
        if self.secure:
            write_private(self.config_file(id), text)
        else:
            self.config_file(id).write_text(text, encoding="utf-8")

    def _check(self, settings: Mapping[str, str]) -> None:
        """A node would refuse them, too. To check them here leaves nothing half made."""
        from ottla.config import ConfigError, Settings
        from ottla.config.node_settings import TABLE

        fixed = (*OF_EACH_NODE, *(SECURED if self.secure else ()))
        if self.per_machine is not None:
            fixed = (*fixed, "broker.rack")
        own = {name for row in TABLE if row.name in fixed for name in row.names}
        for name in own & settings.keys():
            raise InvalidUse(f"{name}: every node gets its own", parameter="settings")
        try:
            for node in self.nodes.values():
                Settings.of({**self._settings(node), **settings}, "settings")
        except ConfigError as error:
            reason = str(error).removeprefix("settings: ")
            raise InvalidUse(reason, parameter="settings") from None

    def _settings(self, node: LocalNode) -> dict[str, str]:
        # No two replicas of a partition share a machine, unless somebody asks for more replicas than there are machines.
        machines = len({self.machine_of(id) for id in self.nodes})
        factor, in_sync = min(3, machines), min(2, machines)
        controllers = [each for each in self.nodes.values() if each.controller_port is not None]
        quorum = {
            "controller.quorum.voters": ",".join(
                f"{each.id}@{HOST}:{each.controller_port}" for each in controllers
            )
        }
        if self.dynamic_voters:
            quorum = {
                "controller.quorum.bootstrap.servers": ",".join(
                    f"{HOST}:{each.controller_port}" for each in controllers
                )
            }
        if node.internal_port is None:
            listeners = [f"PLAINTEXT://{HOST}:{node.port}"]
        else:
            bound = "0.0.0.0" if self.hosts else HOST
            listeners = [
                f"CLIENTS://{bound}:{node.port}",
                f"INTERNAL://{HOST}:{node.internal_port}",
            ]
        if node.controller_port is not None:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        settings: dict[str, object] = {
            "node.id": node.id,
            "process.roles": "broker" if node.controller_port is None else "broker,controller",
            "cluster.id": self.cluster_id,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            **quorum,
            "log.dirs": self.node_directory(node.id) / "data",
            "default.replication.factor": factor,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": in_sync,
        }
        if self.per_machine is not None:
            settings["broker.rack"] = self.machine_of(node.id)
        if node.metrics_port is not None:
            settings["metrics.listeners"] = f"HTTP://{HOST}:{node.metrics_port}"
        if node.internal_port is not None:
            from ottla.local.secure import node_settings

            settings |= node_settings(self, node.id)
            reached = self.reached_at(node)
            settings["advertised.listeners"] = (
                f"CLIENTS://{reached},INTERNAL://{HOST}:{node.internal_port}"
            )
        return {name: str(value) for name, value in settings.items()}

    def machine_of(self, id: int) -> str:
        """The machine that this node has, or stands for: the value of its `broker.rack`, if nodes share machines."""
        return f"machine-{(id - 1) // (self.per_machine or 1) + 1}"

    # -- processes

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def advertised(self) -> str:
        """As `bootstrap`, for clients that may be on other machines."""
        return ",".join(self.reached_at(node) for node in self.nodes.values())

    def reached_at(self, node: LocalNode) -> str:
        return f"{self.hosts[0]}:{node.port}" if self.hosts else node.address

    @property
    def running(self) -> list[LocalNode]:
        return [node for node in self.nodes.values() if node.running]

    def node(self, id: int) -> LocalNode:
        if id not in self.nodes:
            known = ", ".join(str(each) for each in self.nodes)
            raise NotFound(f"{self.directory}: no node {id}; there are {known}")
        return self.nodes[id]

    @property
    def lack_of_controllers(self) -> str:
        """Why nobody can be the active controller; empty if a majority of them runs, or where only the cluster knows who
        votes."""
        controllers = [node for node in self.nodes.values() if node.controller_port is not None]
        running = sum(node.running for node in controllers)
        needed = len(controllers) // 2 + 1
        if running >= needed or (self.dynamic_voters and running > 0):
            return ""
        return (
            f"{running} of {len(controllers)} controllers run{'s' if running == 1 else ''},"
            f" {needed} {'is' if needed == 1 else 'are'} needed"
        )

    def start(
        self,
        ids: list[int],
        timeout_s: float = READY_TIMEOUT_S,
        tell: Callable[[str], None] | None = None,
    ) -> dict[int, Starting]:
        """Start these nodes together and return when all are ready. If one fails, all of them are stopped."""
        starting = self.launch(ids)
        self.wait_ready(starting, timeout_s, tell)
        return starting

    def launch(self, ids: list[int], *, outlive: bool = True) -> dict[int, Starting]:
        """Start these nodes and do not wait. `outlive`: whether they go on when this process ends."""
        for id in ids:
            _require_free(self.nodes[id].ports, f"node {id} needs it")
        self._require_room(ids)
        if self.secure:
            from ottla.local.secure import renew_in_time

            renew_in_time(self, ids)
        starting = {}
        for id in ids:
            starting[id] = Starting(self.config_file(id), self.log_file(id), outlives=outlive)
            process = starting[id].process
            self.nodes[id] = replace(
                self.nodes[id], pid=process.pid, started=process.started, ended="", ended_at=None
            )
        try:
            self.save()
        except LocalClusterError:
            self.kill(ids)
            raise
        return starting

    def _require_room(self, ids: list[int]) -> None:
        """Before anything is started: a node on a full disk could not even write into its log why it ended."""
        found = {
            id: trouble
            for id in ids
            if (trouble := trouble_with(self.node_directory(id))) is not None
        }
        if found:
            which = (
                f"node {next(iter(found))}"
                if len(found) == 1
                else "nodes " + ", ".join(map(str, found))
            )
            raise LocalClusterError(
                f"{which} cannot start: {next(iter(found.values()))}, then try again"
            )

    def troubles(self, id: int) -> list[str]:
        """What is wrong with the directories of a node: one line for each, with what to do."""
        directories = dict.fromkeys((self.node_directory(id), *self._log_directories(id)))
        return [trouble for each in directories if (trouble := trouble_with(each)) is not None]

    def lost_directories(self, id: int) -> list[Path]:
        """Its log directories, if a node that ran here has none of them any more. One that is left makes it start as before."""
        directories = self._log_directories(id)
        return directories if all(map(is_gone, directories)) and self._was_ready(id) else []

    def _was_ready(self, id: int) -> bool:
        """A node whose first start failed has no directory either, and has lost nothing."""
        log = self.log_file(id)
        try:
            return log.with_name(f"{log.name}.1").exists() or READY_LINE in log.read_bytes()
        except OSError:
            return False

    def _log_directories(self, id: int) -> list[Path]:
        """As its file of settings has them; without one, where they would be."""
        from ottla.config.sources import read_lines
        from ottla.config.values import ConfigError

        try:
            given = {entry.name: entry.value for entry in read_lines(str(self.config_file(id)))}
        except ConfigError:
            given = {}
        named = f"{given.get('log.dirs', '')},{given.get('metadata.log.dir', '')}"
        return [Path(each.strip()) for each in named.split(",") if each.strip()]

    def wait_ready(
        self,
        starting: Mapping[int, Starting],
        timeout_s: float,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Wait until all are ready; `tell` gets a line every few seconds. If one is not ready, all are stopped. One that ends
        is told at once, though the others wait for it: without it they may have no majority."""
        began = time.monotonic()
        news_at = began + NEWS_EVERY_S
        waiting = dict(starting)
        try:
            while waiting:
                for id in first_to_tell(waiting, min(began + timeout_s, news_at)):
                    node = waiting.pop(id)
                    if not node.wait(time.monotonic()):
                        raise self.end_of(id, node)
                waited_s = time.monotonic() - began
                if not waiting or (began + waited_s < news_at and waited_s < timeout_s):
                    continue
                id, node = next(iter(waiting.items()))
                if waited_s >= timeout_s:
                    said = f"its last line: {words}; " if (words := node.last_words()) else ""
                    raise LocalClusterError(
                        f"node {id} was not ready after {timeout_s:g} s and is stopped again;"
                        f" {said}see {node.log}",
                        parameter="timeout_s",
                    )
                if tell is not None:
                    tell(f"node {id} is not ready after {waited_s:.0f} s: {node.last_words()}")
                news_at += NEWS_EVERY_S
        except (LocalClusterError, KeyboardInterrupt):
            self.stop(list(starting), patience_s=1.0)
            raise

    def end_of(self, id: int, node: Starting) -> LocalClusterError:
        """Why the node ended: the last line that it wrote, and the kind of error that its exit code stands for."""
        code = node.exit_code()
        words = node.last_words() or "; ".join(self.troubles(id))
        why = f"gave up: {words}" if words else f"ended with code {code}"
        kinds = {USAGE: InvalidUse, CONFLICT: Conflict}
        kind = LocalClusterError if code is None else kinds.get(code, LocalClusterError)
        return kind(f"node {id} {why}; see {node.log}")

    def start_console(self, *, is_anywhere: bool = False) -> None:
        """Unless it runs."""
        if self.console is None or not self.console.running:
            self.console = start_console(self.directory, self.console, is_anywhere=is_anywhere)
            self.save()

    def stop_console(self) -> bool:
        """Whether it ran."""
        ran = self.console is not None and self.console.running
        if self.console is not None:
            self.console = stop_console(self.console)
            self._save_end()
        return ran

    def stop(self, ids: list[int], patience_s: float = STOP_PATIENCE_S) -> list[int]:
        """Controlled shutdown of these nodes; returns those that had to be killed."""
        processes = {id: process for id in ids if (process := self.nodes[id].process) is not None}
        alive = [id for id, process in processes.items() if process.alive]
        killed = stop_all(processes, patience_s)
        self._ended([id for id in alive if id in killed], KILLED)
        self._ended([id for id in alive if id not in killed], STOPPED)
        self._forget(ids)
        return killed

    def kill(self, ids: list[int] | None = None) -> None:
        """SIGKILL, as in a crash. All get it before any is waited for, so that they die at the same moment."""
        ids = list(self.nodes) if ids is None else ids
        processes = {id: process for id in ids if (process := self.nodes[id].process) is not None}
        signalled = [id for id, process in processes.items() if process.signal(signal.SIGKILL)]
        for id in signalled:
            wait_gone(processes[id])
        self._ended(signalled, KILLED)
        self._forget(ids)

    def died(self, id: int, code: int) -> None:
        """Its process ended with this exit code, or by the signal -`code`, and no command ended it."""
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        self._ended([id], f"{DIED} {how}")
        self._save_end()

    def end_time(self, id: int) -> float | None:
        """When the node ended. None if it runs, or died when nobody looked: what it wrote last may be much older."""
        node = self.nodes[id]
        return None if node.running else node.ended_at

    def _ended(self, ids: list[int], how: str) -> None:
        for id in ids:
            self.nodes[id] = replace(self.nodes[id], ended=how, ended_at=time.time())

    def _forget(self, ids: list[int]) -> None:
        for id in ids:
            node = self.nodes[id]
            ended = DIED if node.state == DIED else node.ended
            self.nodes[id] = replace(node, pid=None, started="", ended=ended)
        self._save_end()

    @property
    def console_url(self) -> str | None:
        """Where its console answers; None if it does not run."""
        return self.console.url if self.console is not None and self.console.running else None

    def as_json(self) -> dict[str, object]:
        return {
            "bootstrap": self.bootstrap,
            "cluster_id": self.cluster_id,
            **({} if self.console_url is None else {"console": self.console_url}),
            "nodes": [
                {
                    "id": node.id,
                    "pid": node.pid if node.running else None,
                    "address": node.address,
                    "metrics": node.metrics,
                    "dir": str(self.node_directory(node.id)),
                }
                for node in self.nodes.values()
            ],
        }


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One command at a time changes a cluster's directory. What this makes is removed if no cluster comes of it."""
    made_directory, made_lock = not directory.exists(), not (directory / ".lock").exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / ".lock", "a")  # noqa: SIM115 (closed below; closing is unlocking)
    except OSError as error:
        raise InvalidUse(f"{directory}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"{directory}: another ottla command is at work here") from None
        if os.fstat(file.fileno()).st_nlink == 0:  # the one that held it has just removed it
            raise Conflict(f"{directory}: another ottla command was at work here; try again")
        try:
            yield
        finally:
            if made_lock and directory.exists() and not (directory / "cluster.json").exists():
                (directory / ".lock").unlink()
                if made_directory and not any(directory.iterdir()):
                    directory.rmdir()


def _require_free(ports: list[int], advice: str, *, parameter: str = "") -> None:
    """A node would refuse to start. To check it here leaves nothing half started."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise Conflict(
                    f"{HOST}:{port}: {error.strerror}; {advice}", parameter=parameter
                ) from None


def _new_cluster_id() -> str:
    from base64 import urlsafe_b64encode

    raw = os.urandom(16)
    # The first bit is cleared so that the text never begins with "-", which tools take for an option.
    return urlsafe_b64encode(bytes([raw[0] & 0x7F]) + raw[1:]).decode().rstrip("=")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
