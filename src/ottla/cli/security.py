"""`ottla security`: what is open, and what has to be renewed."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    client_to,
    local_cluster,
)
from ottla.cli.errors import CONFLICT, FAILED, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, say

if TYPE_CHECKING:
    from ottla.local.cluster import LocalCluster

app = typer.Typer(
    help="What is open, and new certificates and passwords.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LOOK_AGAIN_S = 0.2


@app.command()
def check(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Look for what is open, expiring, unused, readable by others or contradictory.

    Exit code 1 if something is red.
    """
    from ottla.client import Unreachable
    from ottla.diagnosis.security_check import Danger, SecurityFacts, security_findings
    from ottla.diagnosis.security_facts import asked_facts, local_facts
    from ottla.local.secure import now

    cluster = local_cluster(bootstrap, dir)
    try:
        with client_to(bootstrap, dir, command_config, timeout) as blocking:
            facts = blocking.run(asked_facts(blocking.client))
    except (Unreachable, OSError) as error:
        if cluster is None:
            raise
        facts = SecurityFacts(unknown={"the cluster": str(error)})
    if cluster is not None:
        facts = local_facts(cluster, facts, now())
    findings = security_findings(facts)
    if format is Format.json:
        print_json(
            {
                "findings": [
                    {"danger": each.danger.value, "what": each.what, "mend": each.mend}
                    for each in findings
                ],
                "unknown": dict(facts.unknown),
            }
        )
    else:
        for danger, what, mend in findings:
            say(f"{danger.value}: {what}")
            say(f"    mend: {mend}")
        for what, why in facts.unknown.items():
            say(f"could not be checked: {what}: {why}")
        looked = f"{count_of(len(facts.brokers), 'broker')}, {count_of(len(facts.users), 'user')}, {count_of(len(facts.acls), 'ACL')}, {count_of(len(facts.certificates), 'certificate')}"
        say(f"{count_of(len(findings), 'finding') if findings else 'nothing to report'} ({looked})")
    if any(each.danger is Danger.red for each in findings):
        raise typer.Exit(FAILED)


CUT_OFF = (
    "running clients with the old password are cut off at once: restart them with the new files"
)


class What(StrEnum):
    nodes = "nodes"
    clients = "clients"


@app.command()
def rotate(
    what: Annotated[
        What, typer.Argument(help="nodes: certificates. clients: passwords of all users here.")
    ],
    ca: Annotated[
        bool,
        typer.Option("--ca", help="The next step to another CA: trust both; sign by the new; forget the old."),
    ] = False,
    dir: DirOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:  # fmt: skip
    """Make new certificates or passwords, of a secure cluster on this machine, without a restart.

    For another CA, run it three times with --ca. In between, clients elsewhere need the new ca.crt.
    """
    from ottla.local.cluster import locked

    cluster = _secure(dir)
    with locked(cluster.directory):
        if ca:
            lines = _next_ca(cluster, what)
            _wait_until_shown(cluster, timeout)
        elif what is What.nodes:
            from ottla.local.secure import renew_nodes

            renew_nodes(cluster)
            _wait_until_shown(cluster, timeout)
            lines = [f"{count_of(len(cluster.nodes), 'node')}: new certificates for 30 days"]
        else:
            users = _new_passwords(cluster, timeout)
            lines = [f"new passwords: {', '.join(users)}; their files are in {cluster.directory}/clients", CUT_OFF]  # fmt: skip
    if format is Format.json:
        print_json({"done": lines})
    else:
        say(*lines)


def _secure(dir: Path | None) -> LocalCluster:
    from ottla.cli.reaching import directory_of
    from ottla.local.cluster import LocalCluster

    cluster = LocalCluster.load(directory_of(dir))
    if not cluster.secure:
        raise Failure(
            f"{cluster.directory}: is an open cluster, without certificates (ottla up --secure makes another)",
            CONFLICT,
        )
    return cluster


def _next_ca(cluster: LocalCluster, what: What) -> list[str]:
    from ottla.local.certificates import RollStep
    from ottla.local.secure import authorities, now, renew_nodes, write_trust

    nodes, clients = authorities(cluster.directory)
    rolled = nodes if what is What.nodes else clients
    step = rolled.roll(cluster.cluster_id, now())
    if step is RollStep.SIGNS and what is What.nodes:
        renew_nodes(cluster)
    write_trust(cluster)
    again = f"ottla security rotate {what.value} --ca"
    match step:
        case RollStep.TRUSTED:
            return [
                "step 1 of 3: the new CA is trusted beside the old one",
                *(
                    [
                        f"clients elsewhere need {rolled.trust} now",
                        "clients read it when they start: restart all that run, here and elsewhere, before the next step",
                    ]
                    if what is What.nodes
                    else []
                ),
                f"then {again}",
            ]
        case RollStep.SIGNS:
            return [
                "step 2 of 3: the new CA signs",
                f"when all is well, {again} forgets the old; clients whose trust file lacks the new one fail now",
            ]
        case RollStep.FORGOTTEN:
            return ["step 3 of 3: the old CA is trusted no longer"]


def _new_passwords(cluster: LocalCluster, timeout_s: float) -> list[str]:
    """Of all users whose files are here. The admin's own is last: until then this process logs in with the old one."""
    from ottla.cli.users import change_password
    from ottla.client.security_admin import SecurityAdmin
    from ottla.local.client_files import ADMIN, user_directory
    from ottla.local.secure import new_password
    from ottla.security.secrets import Secret

    with client_to(None, cluster.directory, None, timeout_s) as blocking:
        admin = SecurityAdmin(blocking.client)
        names = [user.name for user in blocking.run(admin.users())]
        here = [name for name in names if user_directory(cluster.directory, name).is_dir()]
        for name in sorted(here, key=lambda each: (each == ADMIN, each)):
            password = Secret(new_password())
            blocking.run(change_password(cluster, admin, name, password))
    return here


@app.command()
def reload(
    dir: DirOption = None, timeout: TimeoutOption = 10.0, format: FormatOption = Format.table
) -> None:
    """Wait until every running node shows the certificate that is in its file.

    Nodes look at their files once a second. A certificate that a node does not take (it fits no key, it is
    over, it lacks a name) is refused, with the reason in the node's log.
    """
    cluster = _secure(dir)
    _wait_until_shown(cluster, timeout)
    if format is Format.json:
        print_json({"nodes": [node.id for node in cluster.running]})
    else:
        say(f"{count_of(len(cluster.running), 'node')}: what the files hold is in use")


def _wait_until_shown(cluster: LocalCluster, timeout_s: float) -> None:
    from ottla.local.secure import shows_its_certificate

    until = time.monotonic() + timeout_s
    waiting = [node.id for node in cluster.running]
    while waiting := [id for id in waiting if not shows_its_certificate(cluster, id)]:
        if time.monotonic() > until:
            nodes = ", ".join(f"node {id} ({cluster.log_file(id)})" for id in waiting)
            raise Failure(f"not in use after {timeout_s:g} s: the certificate of {nodes}")
        time.sleep(LOOK_AGAIN_S)
