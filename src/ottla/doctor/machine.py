"""Limits of this machine that hurt its nodes: open files and settings of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.doctor.finding import Case, FindingSeverity, HealthFinding, Rule

OPEN_FILES_FEW = 4_096
OPEN_FILES_SHARE = 0.8
SWAPPINESS_MAX = 10
MAP_COUNT_MIN = 65_530
DIRTY_RATIO_MAX = 60


def open_files_few(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        most, used = node.open_files_max, node.open_files
        if most is None or used is None:
            continue
        is_near = used > OPEN_FILES_SHARE * most
        if is_near or most < OPEN_FILES_FEW:
            yield HealthFinding(
                "open-files-few",
                FindingSeverity.SERIOUS if is_near else FindingSeverity.WARNING,
                f"node {node.node} may open {most} files, and has {used} open",
                "Each connection and each segment takes one. Without any left, the node refuses clients and"
                " cannot roll a log.",
                f"ulimit -n 100000 && {case.ottla(f'nodes stop {node.node}')} &&"
                f" {case.ottla(f'nodes start {node.node}')}",
            )


def kernel_settings(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    if machine is None or not machine.nodes:
        return
    kernel = {name: int(value) for name, value in machine.kernel.items() if value.isdigit()}
    swaps = bool(machine.swap_used_bytes)
    for name, hurts, right, why in (
        (
            "vm.swappiness",
            swaps and kernel.get("vm.swappiness", 0) > SWAPPINESS_MAX,
            1,
            "This machine swaps. A node that is swapped out misses heartbeats, and is fenced.",
        ),
        (
            "vm.max_map_count",
            kernel.get("vm.max_map_count", MAP_COUNT_MIN) < MAP_COUNT_MIN,
            262_144,
            "Apache Kafka maps two files of each segment, and fails when it may map no more.",
        ),
        (
            "vm.dirty_ratio",
            kernel.get("vm.dirty_ratio", 0) > DIRTY_RATIO_MAX,
            60,
            "So much unwritten data may gather that a flush stops every write for seconds.",
        ),
        (
            "vm.overcommit_memory",
            kernel.get("vm.overcommit_memory") == 2,
            0,
            "The kernel refuses memory that it could give, and a node may fail to start.",
        ),
    ):
        if hurts:
            yield HealthFinding(
                "kernel-settings",
                FindingSeverity.WARNING,
                f"{name} is {kernel[name]} on this machine",
                why,
                f"sudo sysctl -w {name}={right}",
            )


RULES: tuple[Rule, ...] = (
    open_files_few,
    kernel_settings,
)
