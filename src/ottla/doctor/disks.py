"""Log directories: failed, full, and when they will be full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from ottla.diagnosis.facts import Facts, LogDir
from ottla.diagnosis.words import size
from ottla.doctor.finding import DAY_S, Case, FindingSeverity, HealthFinding, Rule, duration, ids

LARGER = "a larger disk, or delete files there that are not ottla's"
DISK_SERIOUS, DISK_WARNING = 0.05, 0.10
ROOMY = 0.2
"""A directory with this part of it free may take replicas of another."""
HISTORY_MIN_S = 600.0
"""Of a shorter time no hour can be foretold."""
FORECAST_SERIOUS_S, FORECAST_WARNING_S = DAY_S, 7 * DAY_S


def log_dir_failed(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.log_dirs:
        if each.error is not None:
            yield HealthFinding(
                "log-dir-failed",
                FindingSeverity.SERIOUS,
                f"log directory {each.path} of broker {each.broker} is offline ({each.error})",
                "Its replicas are gone until the disk is mended and the broker is started again.",
                f"df -h {quote(each.path)}; dmesg | tail  # on the machine of broker {each.broker}",
            )


def disk_full(case: Case) -> Iterator[HealthFinding]:
    seen: set[str] = set()
    for each in case.facts.log_dirs:
        if each.total_bytes and each.usable_bytes is not None:
            share = each.usable_bytes / each.total_bytes
            if each.refuses_records:
                seen.add(each.path)
                yield _refusal_finding(case, each.broker, each.path, each.usable_bytes)
            elif share < DISK_WARNING:
                seen.add(each.path)
                yield _disk_finding(case, each.broker, each.path, each.usable_bytes, share)
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        for disk in node.disks:
            share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 1.0
            if share < DISK_WARNING and disk.path not in seen:
                yield _disk_finding(case, node.node, disk.path, disk.free_bytes, share)


def _refusal_finding(case: Case, broker: int, path: str, free: int) -> HealthFinding:
    return HealthFinding(
        "disk-full",
        FindingSeverity.SERIOUS,
        f"the disk of {path} (broker {broker}) is nearly full, {size(free)} are left: it takes no records",
        "Producers wait, or write to replicas on other disks. It goes on by itself when there is room"
        " (ottla.disk.watermark.percent).",
        _more_room(case, broker, path),
    )


def _more_room(case: Case, broker: int, path: str) -> str:
    """What deletes nothing comes first."""
    facts = case.facts
    largest = _largest_topic(facts, broker)
    less = f"du -sh {quote(path)}/*" if largest is None else _keep_less(case, *largest)
    if (elsewhere := _to_another_directory(case, broker, path)) is not None:
        return f"{elsewhere}  # its largest replica goes to another disk of broker {broker}. Or {LARGER}. At last: {less}"
    if any(each.broker != broker and _is_roomy(each) for each in facts.log_dirs):
        move = case.ottla("balance apply")
        return f"{move}  # replicas move to brokers with more room. Or {LARGER}. At last: {less}"
    return (
        f"df -h {quote(path)}  # make room: {LARGER}, or another broker ({case.ottla('brokers add')}); no disk of the others"
        f" has enough. At last: {less}"
    )


def _is_roomy(directory: LogDir) -> bool:
    total, usable = directory.total_bytes, directory.usable_bytes
    return directory.error is None and bool(total and usable and usable > ROOMY * total)


def _to_another_directory(case: Case, broker: int, path: str) -> str | None:
    """The command that moves the largest replica, if this broker has a disk for it."""
    own = [each for each in case.facts.log_dirs if each.broker == broker]
    to = next((each.path for each in own if each.path != path and _is_roomy(each)), None)
    held = [replica for each in own if each.path == path for replica in each.replicas]
    if to is None or not held:
        return None
    largest = max(held, key=lambda each: each.size_bytes)
    partition = case.facts.partition((largest.topic, largest.partition))
    if partition is None or broker not in partition.replicas:
        return None
    move = {
        "topic": largest.topic,
        "partition": largest.partition,
        "replicas": list(partition.replicas),
        "log_dirs": [to if id == broker else "any" for id in partition.replicas],
    }
    text = json.dumps({"version": 1, "partitions": [move]})
    return f"echo {quote(text)} > move.json && {case.ottla('reassign execute move.json')}"


def _disk_finding(case: Case, broker: int, path: str, free: int, share: float) -> HealthFinding:
    return HealthFinding(
        "disk-full",
        FindingSeverity.SERIOUS if share < DISK_SERIOUS else FindingSeverity.WARNING,
        f"the disk of {path} (broker {broker}) has {size(free)} left, {share:.0%}",
        "A broker whose disk is full can write nothing, and takes its log directory offline.",
        _more_room(case, broker, path),
    )


def _keep_less(case: Case, topic: str, size: int) -> str:
    command = case.ottla(f"topics alter {topic} -c retention.bytes={max(size // 2, 1)}")
    return f"{command} (DELETES the older half of {topic}, its largest topic)"


def _largest_topic(facts: Facts, broker: int) -> tuple[str, int] | None:
    """And the size of its largest partition there."""
    sizes: dict[str, list[int]] = {}
    for dir, replica in facts.replica_sizes():
        topic = facts.topic(replica.topic)
        if dir.broker == broker and topic is not None and not topic.internal:
            sizes.setdefault(replica.topic, []).append(replica.size_bytes)
    if not sizes:
        return None
    largest = max(sizes, key=lambda topic: sum(sizes[topic]))
    return largest, max(sizes[largest])


def inodes_few(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        for disk in node.disks:
            if disk.inodes_total and disk.inodes_free / disk.inodes_total < DISK_SERIOUS:
                yield HealthFinding(
                    "inodes-few",
                    FindingSeverity.SERIOUS,
                    f"the file system of {disk.path} (node {node.node}) has {disk.inodes_free} of"
                    f" {disk.inodes_total} inodes left",
                    "No segment can be rolled without one, although the disk has space.",
                    f"df -i {quote(disk.path)}",
                )


@dataclass
class SharedDisk:
    """Log directories on one disk, maybe of several nodes of this machine."""

    usable: int
    directories: list[LogDir]

    @property
    def name(self) -> str:
        brokers = sorted({each.broker for each in self.directories})
        return f"the disk of {self.directories[0].path} (broker {ids(brokers)})"


def disk_will_be_full(case: Case) -> Iterator[HealthFinding]:
    for disk in _disks(case.facts):
        growth = sum(_growth(case.facts, each) for each in disk.directories)
        seconds = full_after_s(case.facts, disk, growth)
        if seconds is not None and seconds < FORECAST_WARNING_S:
            first = disk.directories[0]
            yield HealthFinding(
                "disk-will-be-full",
                FindingSeverity.SERIOUS
                if seconds < FORECAST_SERIOUS_S
                else FindingSeverity.WARNING,
                f"{disk.name} will be full in {duration(seconds)}, at the rate of the last hour"
                f" ({size(round(growth))}/s, {size(disk.usable)} left)",
                "A broker whose disk is full can write nothing, and takes its log directory offline.",
                _more_room(case, first.broker, first.path),
            )


def _disks(facts: Facts) -> list[SharedDisk]:
    nodes = () if facts.machine is None else facts.machine.nodes
    devices = {disk.path: disk.device for node in nodes for disk in node.disks}
    found: dict[object, SharedDisk] = {}
    for each in facts.log_dirs:
        if each.usable_bytes is not None and each.error is None:
            device = devices.get(each.path)
            key = (each.broker, each.path) if device is None else device
            disk = found.setdefault(key, SharedDisk(each.usable_bytes, []))
            disk.directories.append(each)
    return list(found.values())


def _growth(facts: Facts, directory: LogDir) -> float:
    """Bytes per second: the directory's part of what its broker has measured. What is copied there now ends by itself, and a
    short history says nothing of an hour."""
    known = facts.growth.get(directory.broker)
    is_given = any(directory.broker in each.adding for each in facts.reassignments)
    if known is None or known.history_s < HISTORY_MIN_S or known.minute <= 0 or is_given:
        return 0.0
    all_bytes = sum(
        replica.size_bytes
        for each, replica in facts.replica_sizes()
        if each.broker == directory.broker
    )
    own = sum(replica.size_bytes for replica in directory.replicas)
    return max(0.0, known.hour) * own / all_bytes if all_bytes else 0.0


def full_after_s(facts: Facts, disk: SharedDisk, growth: float) -> float | None:
    """None if retention keeps it from filling: because all that is written now is deleted before, or no log may grow so far."""
    if growth <= 0:
        return None
    seconds, room, longest_s = disk.usable / growth, 0.0, 0.0
    for directory in disk.directories:
        for replica in directory.replicas:
            topic = facts.topic(replica.topic)
            if topic is None:
                return seconds  # nobody knows how long it is kept
            if "delete" not in (topic.configs.get("cleanup.policy") or "delete"):
                continue  # compaction keeps the newest record of each key, however many come
            kept_ms, kept_bytes = topic.number("retention.ms"), topic.number("retention.bytes")
            is_kept = kept_ms is None or kept_ms < 0
            longest_s = max(
                longest_s, float("inf") if kept_ms is None or is_kept else kept_ms / 1000
            )
            is_whole = kept_bytes is None or kept_bytes < 0
            room += (
                float("inf")
                if kept_bytes is None or is_whole
                else max(0, kept_bytes - replica.size_bytes)
            )
    return seconds if seconds < longest_s and room > disk.usable else None


RULES: tuple[Rule, ...] = (
    log_dir_failed,
    disk_full,
    inodes_few,
    disk_will_be_full,
)
