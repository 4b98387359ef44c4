"""What to do: advice that explanations of partitions and of brokers have in common.

A command can be typed as it stands, so it must do no harm when somebody types it at once. A restart that makes sense only
after a repair by hand is therefore a step of its own, and says what it takes down. A setting that is loosened for a while
has the command that sets it back.
"""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Sequence

from ottla.diagnosis.explanation import Advice
from ottla.diagnosis.now import BrokerNow, ClusterNow, Commands, PartitionNow, Reach
from ottla.diagnosis.words import brokers, listed, size

Limit = tuple[str, int, int]
"""A replication throttle: role (leader or follower), broker, and bytes per second."""
UNCLEAN = "unclean.leader.election.enable"
KEPT_RETENTION = "ottla.kept.records.retention.ms"
FASTER = 10
LOOPBACK = ("127.", "localhost", "[::1]", "::1")
DISK_REPAIRS = {
    errno.ENOSPC: "Make room on the disk of {0}: it is full (a larger disk; files there that are not ottla's; replicas moved to other brokers"
    " by ottla balance apply; at last, since it deletes records, shorter retention of topics).",
    errno.EDQUOT: "Raise the disk quota of the user of the broker: it is used up at {0}.",
    errno.EIO: "Check the disk of {0}, and replace it if it is defective: reading or writing failed (dmesg says more).",
    errno.EROFS: "Find out why the file system of {0} is read-only, often an error of the disk (dmesg); check it, and mount"
    " it writable.",
    errno.EFBIG: "Raise the limit on the size of a file: a file in {0} reached it. It is that of the process (ulimit -f where"
    " the broker is started) or of the file system. A full disk has another error.",
    errno.EACCES: "Give the user of the broker the right to read and write {0}.",
    errno.EPERM: "Give the user of the broker the right to read and write {0}.",
    errno.ENOENT: "Mount {0} again: files of it are missing.",
    errno.ENODEV: "Bring the disk of {0} back: its device is gone.",
    errno.ENXIO: "Bring the disk of {0} back: its device is gone.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n where the broker is started).",
}
"""By the error of the operating system. The directory is {0}."""


def repair_directory(
    directory: str, error: str | None, broker: int, cluster: ClusterNow, commands: Commands
) -> tuple[Advice, ...]:
    """What the error asks for, and then the restart: a broker uses a failed directory again only after one."""
    found = re.search(r"\[Errno (\d+)\]", error or "")
    otherwise = "Find out why {0} cannot be used (the log of the broker, df, dmesg), and repair it."
    number = int(found[1]) if found else 0
    text = DISK_REPAIRS.get(number, otherwise).format(directory)
    pid = cluster.broker(broker).pid
    look = ""
    if commands.local and number in (errno.ENOSPC, errno.EDQUOT):
        look = f"df -h {directory}"
    elif pid is not None and number == errno.EFBIG:
        look = f"prlimit --fsize --pid {pid}"
    return (
        Advice(text, look),
        Advice(
            f"Only then restart broker {broker}: it copies what it lacks. All its other replicas are down meanwhile."
            f"{only_in_sync(cluster, broker)}",
            commands.restart(broker),
        ),
    )


def only_in_sync(cluster: ClusterNow, broker: int) -> str:
    """The caution before a restart, as a sentence; empty if others are in sync everywhere."""
    if cluster.alone is None:
        return " Whether it is the only replica in sync of a partition is not known."
    names = cluster.alone.get(broker, ())
    if not names:
        return ""
    some = listed([*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])])
    return (
        f" Caution: it is the only replica in sync of {some}: nobody can use that until it is back."
    )


def correct_listener(
    broker: BrokerNow, cluster: ClusterNow, commands: Commands, now: PartitionNow | None = None
) -> tuple[Advice, ...]:
    """`now`: the partition that is explained, which the broker leads."""
    if broker.reach is Reach.SILENT:
        return wake(
            broker, cluster, commands, " If it stays silent, it is fenced, and others lead."
        )
    where = "to an address at which its clients and the other brokers reach it"
    if broker.listens_at:
        only = (
            ", which only clients on this machine reach"
            if broker.listens_at.startswith(LOOPBACK)
            else ""
        )
        where += f". It listens at {broker.listens_at}{only}"
    edit = f"${{EDITOR:-vi}} {broker.config} && " if broker.config else ""
    restart = commands.restart(broker.id) if edit else ""
    step = Advice(
        f"Set advertised.listeners of broker {broker.id}, in its file of settings, {where}. Then restart it."
        f"{only_in_sync(cluster, broker.id)}",
        f"{edit}{restart}" if restart else "",
    )
    if now is None or not now.unclean or now.isr != (broker.id,) or len(now.replicas) == 1:
        return (step,)
    return (
        Advice(
            f"First forbid unclean elections: broker {broker.id} is the only replica in sync, and while it restarts another"
            " one would lead without its records.",
            commands.ottla(f"topics alter {now.topic} -c {UNCLEAN}=false"),
        ),
        step,
        Advice(
            "When all replicas are in sync again, allow them as before, if you must.",
            set_back(now, (UNCLEAN,), commands),
        ),
    )


def start_in_order(
    now: PartitionNow, cluster: ClusterNow, others: Advice, commands: Commands
) -> tuple[Advice, ...]:
    """Before `others`, which starts several brokers: those that have every committed record, where whoever comes first
    may lead."""
    complete = tuple(dict.fromkeys((*now.isr, *now.elr)))
    behind = tuple(id for id in now.replicas if id not in complete)
    if not now.unclean or not complete or not behind:
        return (others,)
    if any(cluster.broker(id).answers for id in complete):
        return (others,)
    only = (
        f"Broker {complete[0]} is the only replica in sync"
        if len(complete) == 1
        else f"Only {brokers(complete)} are in sync"
    )
    alive = [id for id in behind if cluster.broker(id).answers]
    race = (
        f" Even so {brokers(alive, 'or')}, which runs, may be elected before it is back."
        if alive
        else ""
    )
    return (
        Advice(
            f"{only}, and topic {now.topic} allows unclean elections: start {brokers(complete, 'or')} first. If"
            f" {brokers(behind, 'or')} can be elected before, what it lacks is lost.{race}",
            " && ".join(filter(None, (commands.start((id,))[1] for id in complete))),
        ),
        Advice(
            "As soon as there is an active controller, forbid unclean elections, before any other replica starts.",
            commands.ottla(f"topics alter {now.topic} -c {UNCLEAN}=false"),
        ),
        Advice(
            f"Only when {brokers(complete, 'or')} leads {now.name} again: {others.text[0].lower()}{others.text[1:]}",
            others.command,
        ),
    )


def set_back(now: PartitionNow, names: Sequence[str], commands: Commands) -> str:
    """The command that gives settings of the topic back what they are now."""
    changes = [
        f"-c {shlex.quote(f'{name}={now.own_settings[name]}')}"
        if name in now.own_settings
        else f"--unset {name}"
        for name in names
    ]
    return commands.ottla(f"topics alter {now.topic} {' '.join(changes)}")


def wake(
    broker: BrokerNow, cluster: ClusterNow, commands: Commands, more: str = ""
) -> tuple[Advice, ...]:
    """For a broker whose port accepts connections and that does not answer."""
    if broker.paused:
        return (
            Advice(
                f"The process of broker {broker.id} is paused: continue it.{more}",
                f"kill -CONT {broker.pid}",
            ),
        )
    paused = (
        "its process may be paused (kill -CONT PID continues it),"
        if broker.paused is None
        else f"its process ({broker.pid}) runs and is not paused; it may"
    )
    look = Advice(
        f"Look at broker {broker.id}: {paused} wait for its disk or be overloaded, or the network drops its packets.{more}",
        commands.ottla("status") if commands.local else "",
    )
    if not commands.local:
        return (look,)
    restart = f"{commands.ottla(f'nodes kill {broker.id}')} && {commands.ottla(f'nodes start {broker.id}')}"
    return (
        look,
        Advice(
            "Only if it does not wait for its disk, and stays silent: start its process anew."
            f"{only_in_sync(cluster, broker.id)}",
            restart,
        ),
    )


def faster_copy(
    now: PartitionNow, limits: Sequence[Limit], commands: Commands
) -> tuple[Advice, ...]:
    """For a copy that a replication throttle slows down."""
    keys = [
        (f"--entity-type brokers --entity-name {id}", f"{role}.replication.throttled.rate", rate)
        for role, id, rate in limits
    ]
    raised = [
        commands.kafka_configs(f"{entity} --add-config {key}={rate * FASTER}")
        for entity, key, rate in keys
    ]
    rates = listed(dict.fromkeys(rate for _, _, rate in keys))
    names = [
        f"{role}.replication.throttled.replicas" for role in dict.fromkeys(r for r, _, _ in limits)
    ]
    unset = " ".join(f"--unset {name}" for name in names)
    return (
        Advice(
            "Wait, if the throttle is meant: it keeps the copy from slowing clients down. This shows how far it is.",
            commands.ottla(f"explain {now.name}"),
        ),
        Advice(
            f"Or raise the rate, here to {size(min(rate for _, _, rate in keys) * FASTER)}/s, as far as disks and network have"
            f" room for it. The same command with {rates} sets it back.",
            " && ".join(raised),
        ),
        Advice(
            f"Or lift the throttle of topic {now.topic}. Caution: the copy then takes all the bandwidth that there is, and"
            f" clients may feel it. Back again: {set_back(now, names, commands)}",
            commands.ottla(f"topics alter {now.topic} {unset}"),
        ),
    )
