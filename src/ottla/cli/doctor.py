"""`ottla doctor` and `ottla bundle`: what is wrong with a cluster, and everything that a helper needs to see."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import BootstrapOption, CommandConfigOption, DirOption, client_to
from ottla.cli.errors import SERIOUS, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, say, warn

if TYPE_CHECKING:
    from ottla.diagnosis.facts import Facts
    from ottla.doctor.finding import HealthFinding
    from ottla.local.cluster import LocalCluster

TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for each answer.", min=0.1)
]


def doctor(
    from_client: Annotated[
        bool,
        typer.Option(
            "--from-client",
            help="Only whether a client on this machine can use the cluster: names, addresses, versions, clocks.",
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 10.0,
    format: FormatOption = Format.table,
) -> None:
    """Look for what is wrong, or soon will be.

    Each finding says what is so, why it matters, and which command mends it. Nothing is changed. The exit
    code is 6 if a finding is serious. With any Kafka; of a cluster on this machine also the machine.
    """
    from ottla.diagnosis.facts import as_json
    from ottla.doctor.examination import examine, is_serious

    cluster = _local_cluster(bootstrap, dir)
    facts = look(bootstrap, dir, cluster, timeout, command_config, from_client=from_client)
    findings = examine(facts, _target(bootstrap, dir, cluster))
    if format is Format.json:
        print_json(
            {
                "cluster_id": facts.cluster_id,
                "at_ms": facts.at_ms,
                "serious": is_serious(findings),
                "findings": as_json(findings),
                "unknown": as_json(facts.unknown),
            }
        )
    else:
        _print(facts, findings)
    if is_serious(findings):
        raise typer.Exit(SERIOUS)


def _print(facts: Facts, findings: list[HealthFinding]) -> None:
    for finding in findings:
        say(f"{finding.severity.value}: {finding.what}")
        say(f"    why:  {finding.why}")
        say(f"    mend: {finding.mend}")
    if facts.unknown:
        print("could not be checked:")
        for what, why in sorted(facts.unknown.items()):
            say(f"    {what}: {why}")
    partitions = sum(len(topic.partitions) for topic in facts.topics)
    looked_at = f"{count_of(len(facts.brokers), 'broker')}, {count_of(len(facts.topics), 'topic')},"
    looked_at += f" {count_of(partitions, 'partition')}, {count_of(len(facts.groups), 'group')}"
    what = count_of(len(findings), "finding") if findings else "nothing to report"
    print(f"{what} ({looked_at})")


def look(
    bootstrap: str | None,
    directory: Path | None,
    cluster: LocalCluster | None,
    timeout_s: float,
    command_config: Path | None = None,
    *,
    from_client: bool = False,
) -> Facts:
    """The facts. Of a local cluster of which no node answers, only what this machine tells."""
    from dataclasses import replace

    from ottla.client import Unreachable
    from ottla.diagnosis.gathering import Gathering, no_answers, with_machine
    from ottla.diagnosis.machine import machine
    from ottla.runtime.real import RealClock
    from ottla.wire.errors import KafkaError

    clock = RealClock()
    try:
        with client_to(bootstrap, directory, command_config, timeout_s) as blocking:
            gathering = Gathering(blocking.client, clock)
            work = gathering.for_clients() if from_client else gathering.all()
            facts = blocking.run(work)
    except (Unreachable, KafkaError, OSError) as error:
        if cluster is None:
            raise
        facts = no_answers(clock.wall_ms(), cluster.cluster_id, str(error))
    if from_client:
        return facts
    return with_machine(replace(facts, machine=machine(cluster)))


def _local_cluster(bootstrap: str | None, directory: Path | None) -> LocalCluster | None:
    """The cluster of the directory, if that is what the command is about."""
    import os

    from ottla.cli.reaching import directory_of
    from ottla.local.cluster import LocalCluster

    if bootstrap is not None or (directory is None and os.environ.get("OTTLA_BOOTSTRAP")):
        return None
    return LocalCluster.load(directory_of(directory))


def _target(bootstrap: str | None, directory: Path | None, cluster: LocalCluster | None) -> str:
    """How the commands that a finding names find the same cluster."""
    from shlex import quote

    if bootstrap is not None:
        return f" -b {quote(bootstrap)}"
    return "" if cluster is None or directory is None else f" --dir {quote(str(cluster.directory))}"


def bundle(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The file. [default: ottla-bundle-TIME.tar.gz here]", show_default=False
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 10.0,
    format: FormatOption = Format.table,
) -> None:
    """Pack everything that a helper needs into one file.

    Facts, findings, settings, log tails, the event log, metrics, a list of files with sizes. No record's key,
    value or header, and no password, certificate or token: settings are taken by a list of known harmless
    names, and logs without the texts that clients chose.
    """
    from ottla.doctor.bundle import pack

    cluster = _local_cluster(bootstrap, dir)
    facts = look(bootstrap, dir, cluster, timeout, command_config)
    if facts.unknown:
        warn(f"{count_of(len(facts.unknown), 'question')} had no answer; facts.json says which")
    file = out or Path(time.strftime("ottla-bundle-%Y%m%d-%H%M%S.tar.gz"))
    events, metrics = _more(bootstrap, dir, facts, timeout, command_config)
    try:
        members = pack(file, facts, cluster, events, metrics, _target(bootstrap, dir, cluster))
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    if format is Format.json:
        print_json({"file": str(file), "bytes": file.stat().st_size, "members": members})
    else:
        print(f"{file}: {count_of(len(members), 'file')}, {file.stat().st_size} bytes")


def _more(
    bootstrap: str | None,
    directory: Path | None,
    facts: Facts,
    timeout_s: float,
    command_config: Path | None,
) -> tuple[list[str], dict[int, str]]:
    """The newest entries of the event log, and the metrics of each broker; nothing where there is none."""
    from ottla.client import Unreachable
    from ottla.diagnosis.event_tail import event_tail
    from ottla.diagnosis.metrics_pages import metrics_pages
    from ottla.wire.errors import KafkaError

    try:
        with client_to(bootstrap, directory, command_config, timeout_s) as blocking:
            metrics = blocking.run(metrics_pages(facts, timeout_s))
            return blocking.run(event_tail(blocking.client)), metrics
    except (Unreachable, KafkaError, OSError):
        return [], {}
