"""Log directories: failed, full, and when they will be full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote

from ottla.diagnosis.facts import RECENT_MS, Facts, Place
from ottla.diagnosis.words import size
from ottla.doctor.finding import DAY_S, Case, FindingSeverity, HealthFinding, Rule, duration

DISK_SERIOUS, DISK_WARNING = 0.05, 0.10
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
    largest = _largest_topic(case.facts, broker)
    if largest is not None:
        return _keep_less(case, *largest)
    return f"du -sh {quote(path)}/*  # on the machine of broker {broker}"


def _disk_finding(case: Case, broker: int, path: str, free: int, share: float) -> HealthFinding:
    return HealthFinding(
        "disk-full",
        FindingSeverity.SERIOUS if share < DISK_SERIOUS else FindingSeverity.WARNING,
        f"the disk of {path} (broker {broker}) has {size(free)} left, {share:.0%}",
        "A broker whose disk is full can write nothing, and takes its log directory offline.",
        _more_room(case, broker, path),
    )


def _keep_less(case: Case, topic: str, size: int) -> str:
    return (
        case.ottla(f"topics alter {topic} -c retention.bytes={max(size // 2, 1)}")
        + f"  # DELETES the older half of {topic}, its largest topic; a larger disk deletes nothing"
    )


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


def disk_will_be_full(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.log_dirs:
        if each.usable_bytes is None:
            continue
        growths = [
            growth
            for replica in each.replicas
            if (
                growth := _growth(
                    case.facts, (replica.topic, replica.partition), replica.size_bytes
                )
            )
        ]
        seconds = full_after_s(growths, each.usable_bytes)
        if seconds is not None and seconds < FORECAST_WARNING_S:
            rate = sum(growth.bytes_per_s for growth in growths)
            largest = _largest_topic(case.facts, each.broker)
            yield HealthFinding(
                "disk-will-be-full",
                FindingSeverity.SERIOUS
                if seconds < FORECAST_SERIOUS_S
                else FindingSeverity.WARNING,
                f"the disk of {each.path} (broker {each.broker}) will be full in {duration(seconds)}, at the"
                f" rate of the last hour ({size(round(rate))}/s, {size(each.usable_bytes)} left)",
                "A broker whose disk is full can write nothing, and takes its log directory offline.",
                _keep_less(case, *largest)
                if largest is not None
                else f"df -h {quote(each.path)}  # on the machine of broker {each.broker}",
            )


@dataclass(frozen=True)
class Growth:
    """How a replica grows: bytes each second, until it has grown by `room` and retention removes as much as comes."""

    bytes_per_s: float
    room: float


def _growth(facts: Facts, place: Place, size: int) -> Growth | None:
    """From the share of its records that came within the last hour. None if it does not grow, or nothing is known."""
    topic, partition = facts.topic(place[0]), facts.partition(place)
    if topic is None or partition is None or not partition.recent:
        return None
    if partition.log_start is None or partition.log_end is None:
        return None
    if "delete" not in (topic.configs.get("cleanup.policy") or "delete"):
        return None  # compaction keeps the newest record of each key, however many come
    records = partition.log_end - partition.log_start
    rate = size * min(1.0, partition.recent / max(records, 1)) / (RECENT_MS / 1000)
    limits = [float("inf")]
    if (kept_ms := topic.number("retention.ms")) is not None and kept_ms >= 0:
        limits.append(rate * kept_ms / 1000)
    if (kept_bytes := topic.number("retention.bytes")) is not None and kept_bytes >= 0:
        limits.append(kept_bytes)
    room = max(0.0, min(limits) - size)
    return Growth(rate, room) if rate > 0 and room > 0 else None


def full_after_s(growths: Iterable[Growth], usable: float) -> float | None:
    """After how many seconds they have grown by `usable` bytes together; None if they never do."""
    now, left = 0.0, float(usable)
    growing = sorted(growths, key=lambda growth: growth.room / growth.bytes_per_s)
    while growing:
        rate = sum(growth.bytes_per_s for growth in growing)
        ends = growing[0].room / growing[0].bytes_per_s
        if left <= rate * (ends - now):
            return now + left / rate
        left -= rate * (ends - now)
        now = ends
        growing.pop(0)
    return None


RULES: tuple[Rule, ...] = (
    log_dir_failed,
    disk_full,
    inodes_few,
    disk_will_be_full,
)
