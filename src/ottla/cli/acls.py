"""`ottla acls`: who may do what, by roles or one by one, and why something is denied."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import FAILED, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, say, warn

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.security.acls import Acl
    from ottla.security.authorizer import Authorizer
    from ottla.security.principals import Principal

app = typer.Typer(
    help="Rights: who may do what, of any Kafka with an authorizer.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WhoArgument = Annotated[
    str, typer.Argument(metavar="WHO", help="A user's name, or TYPE:NAME; * is everybody.")
]
ProduceOption = Annotated[
    list[str] | None,
    typer.Option("--produce", metavar="TOPIC", help="May write this topic. orders* is a prefix."),
]
ConsumeOption = Annotated[
    list[str] | None, typer.Option("--consume", metavar="TOPIC", help="May read this topic.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="May be in this group.")
]
TransactionalOption = Annotated[
    list[str] | None,
    typer.Option("--transactional", metavar="ID", help="May use this transactional id."),
]
ObserveOption = Annotated[
    bool, typer.Option("--observe", help="May see everything but records, for consoles.")
]
AdminOption = Annotated[bool, typer.Option("--admin", help="May do everything.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="OPERATION", help="One operation, on what the next options name."),
]  # fmt: skip
DenyOption = Annotated[
    list[str] | None,
    typer.Option("--deny", metavar="OPERATION", help="The same, and it wins over all that allows."),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="For --allow and --deny.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="For --allow and --deny.")]
FromOption = Annotated[
    str, typer.Option("--from", metavar="ADDRESS", help="Only from this address, not a network.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


@app.command()
def add(
    who: WhoArgument,
    produce: ProduceOption = None,
    consume: ConsumeOption = None,
    group: GroupOption = None,
    transactional: TransactionalOption = None,
    observe: ObserveOption = False,
    admin: AdminOption = False,
    allow: AllowOption = None,
    deny: DenyOption = None,
    topic: TopicOption = None,
    cluster: ClusterOption = False,
    host: FromOption = "*",
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Give rights by role, or single ones by --allow and --deny.

    A name that ends with * means all names that begin so. What is there already stays as it is.
    """
    from ottla.client.security_admin import SecurityAdmin

    wanted = _wanted(
        who, produce, consume, group, transactional, observe, admin, allow, deny, topic, cluster, host
    )  # fmt: skip
    _warn_of_useless(wanted)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        changes = SecurityAdmin(blocking.client)
        known = set(blocking.run(changes.acls()))
        new = [acl for acl in wanted if acl not in known]
        if new and not dry_run:
            blocking.run(changes.add_acls(new))
        _warn_of_strangers(blocking, wanted)
    _tell(new, [], format, dry_run)


@app.command()
def remove(
    who: WhoArgument,
    everything: Annotated[bool, typer.Option("--all", help="All that are for WHO.")] = False,
    produce: ProduceOption = None,
    consume: ConsumeOption = None,
    group: GroupOption = None,
    transactional: TransactionalOption = None,
    observe: ObserveOption = False,
    admin: AdminOption = False,
    allow: AllowOption = None,
    deny: DenyOption = None,
    topic: TopicOption = None,
    cluster: ClusterOption = False,
    host: FromOption = "*",
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Take rights away, by the same options that gave them, or --all.

    A right that two roles have in common goes with the first of them.
    """
    from ottla.client.security_admin import SecurityAdmin, exactly

    wanted: list[Acl] = []
    if not everything:
        wanted = _wanted(
            who, produce, consume, group, transactional, observe, admin, allow, deny, topic, cluster, host
        )  # fmt: skip
    principal = str(_principal(who))
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        changes = SecurityAdmin(blocking.client)
        known = blocking.run(changes.acls())
        gone = [
            acl for acl in known if (everything or acl in wanted) and acl.principal == principal
        ]
        if gone and not dry_run:
            gone = blocking.run(changes.remove_acls([exactly(acl) for acl in gone]))
    _tell([], gone, format, dry_run)


@app.command("list")
def list_acls(
    who: Annotated[
        str | None, typer.Argument(metavar="[WHO]", help="Only those for this user.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only those that apply to this topic.")
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """List ACLs."""
    from ottla.client.security_admin import SecurityAdmin
    from ottla.security.acls import AclFilter
    from ottla.security.operations import PatternType, ResourceType

    wanted = AclFilter(principal=None if who is None else str(_principal(who)))
    if topic is not None:
        wanted = wanted._replace(
            resource_type=ResourceType.TOPIC,
            pattern_type=PatternType.MATCH,
            resource_name=topic,
        )
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        found = blocking.run(SecurityAdmin(blocking.client).acls(wanted))
    if format is Format.json:
        print_json([acl.as_json() for acl in found])
        return
    print_table(
        ("principal", "permission", "operations", "resource", "from"),
        [
            (who, permission, operations, resource, host)
            for who, permission, operations, resource, host in _rows(found)
        ],
    )


@app.command()
def test(
    who: WhoArgument,
    operation: Annotated[
        str | None, typer.Argument(metavar="OPERATION", help="read, write, create, describe, …")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The topic, or what --type says.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--type", help="topic, group, cluster, transactional-id or user.")
    ] = "topic",
    host: Annotated[
        str,
        typer.Option("--from", metavar="ADDRESS", help="Where the request comes from. Without it, ACLs for single addresses do not count."),
    ] = "0.0.0.0",
    can: Annotated[bool, typer.Option("--can", help="Everything that WHO may do, and why.")] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:  # fmt: skip
    """May WHO do it, and which rule decides? Exit code 1 if not.

    The broker's own code decides, from the cluster's ACLs and super users. The cluster's own
    topics need more than the right to them.
    """
    from ottla.client.security_admin import SecurityAdmin
    from ottla.security.needs import is_asked_for
    from ottla.security.operations import CLUSTER_NAME, ResourceType
    from ottla.security.roles import explained, suggestion

    principal = _principal(who)
    if can != (operation is None):
        raise Failure("give OPERATION and NAME, or --can", USAGE)
    resource = _member(ResourceType, kind, "--type")
    asked = None if operation is None else _operation(operation)
    if asked is not None and resource is not ResourceType.CLUSTER and name is None:
        raise Failure(f"which {kind}? NAME is missing", USAGE)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        authorizer, are_known = blocking.run(SecurityAdmin(blocking.client).authorizer())
    if not are_known and str(principal) not in authorizer.super_users:
        warn(
            f"the cluster does not say who its super users are; if {principal} is one, the answer is yes"
        )
    if asked is None:
        _tell_all(authorizer, principal, format)
        return
    what = CLUSTER_NAME if name is None else name
    if not is_asked_for(asked, resource):
        warn(f"{asked.name} means nothing for a {kind}: no request asks for it")
    answer = explained(authorizer, principal, host, asked, resource, what)
    if format is Format.json:
        print_json({"allowed": answer.allowed, "because": answer.because})
    else:
        say(f"{'yes' if answer.allowed else 'no'}: {answer.because}")
        if not answer.allowed and answer.because.startswith("nothing"):
            say(f"    ottla acls add {who} {suggestion(asked, resource, what)}   would.")
    if not answer.allowed:
        raise typer.Exit(FAILED)


def _tell_all(authorizer: Authorizer, principal: Principal, format: Format) -> None:
    from ottla.security.operations import Permission
    from ottla.security.principals import EVERYONE
    from ottla.security.roles import acl_text

    if str(principal) in authorizer.super_users:
        if format is Format.json:
            print_json({"super_user": True, "acls": []})
        else:
            say(f"everything: {principal} is a super user")
        return
    own = (str(principal), str(EVERYONE))
    entries = sorted(acl for acl in authorizer.acls if acl.principal in own)
    if format is Format.json:
        print_json({"super_user": False, "acls": [acl.as_json() for acl in entries]})
        return
    if not entries:
        say(f"nothing: no ACL is for {principal} or User:*")
    for acl in entries:
        sign = "  " if acl.permission is Permission.ALLOW else "- "
        say(f"{sign}{acl_text(acl)}")


@app.command()
def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="TOML: [alice], produce = ['orders'], …")
    ],
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Make the ACLs of the users in a file what the file says; others are left alone.

    A table for each user, with produce, consume, group and transactional as lists of names, and
    observe and admin as true or false. An empty table takes all away. The difference is shown.
    """
    from ottla.client.security_admin import SecurityAdmin, exactly

    wanted = _read(file)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        changes = SecurityAdmin(blocking.client)
        known = [acl for acl in blocking.run(changes.acls()) if acl.principal in wanted]
        target = [acl for acls in wanted.values() for acl in acls]
        new = [acl for acl in target if acl not in known]
        gone = [acl for acl in known if acl not in target]
        if new and not dry_run:
            blocking.run(changes.add_acls(new))
        if gone and not dry_run:
            gone = blocking.run(changes.remove_acls([exactly(acl) for acl in gone]))
    _tell(new, gone, format, dry_run)


def _read(file: Path) -> dict[str, list[Acl]]:
    import tomllib

    from ottla.security.roles import AclRole

    lists = {"produce": "produce", "consume": "consume", "group": "groups", "transactional": "transactional"}  # fmt: skip
    try:
        tables = tomllib.loads(file.read_text())
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", USAGE) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {error}", USAGE) from None
    found: dict[str, list[Acl]] = {}
    for who, table in tables.items():
        if not isinstance(table, dict):
            raise Failure(f"{file}: {who}: is no table of a user, [{who}]", USAGE)
        given: dict[str, Any] = {}
        for key, value in table.items():
            if key in lists and isinstance(value, list) and all(isinstance(v, str) for v in value):
                given[lists[key]] = value
            elif key in ("observe", "admin") and isinstance(value, bool):
                given[key] = value
            else:
                raise Failure(
                    f"{file}: [{who}] {key}: {', '.join(lists)} are lists of names; observe and admin are"
                    " true or false",
                    USAGE,
                )
        principal = _principal(who)
        found[str(principal)] = AclRole(**given).acls(principal)
    return found


# Words and entries


def _principal(text: str) -> Principal:
    from ottla.security.roles import principal_named

    try:
        return principal_named(text)
    except ValueError as error:
        raise Failure(str(error), USAGE) from None


def _member(kinds: Any, text: str, option: str) -> Any:
    """By its name, as people write it."""
    name = text.strip().upper().replace("-", "_")
    known = [each for each in kinds if each.name not in ("UNKNOWN", "ANY", "MATCH")]
    for each in known:
        if each.name == name:
            return each
    words = ", ".join(each.name.lower().replace("_", "-") for each in known)
    raise Failure(f"{option}: '{text}' is none of {words}", USAGE)


def _operation(text: str) -> Any:
    from ottla.security.operations import AclOperation

    return _member(AclOperation, text, "OPERATION")


def _wanted(
    who: str,
    produce: list[str] | None,
    consume: list[str] | None,
    group: list[str] | None,
    transactional: list[str] | None,
    observe: bool,
    admin: bool,
    allow: list[str] | None,
    deny: list[str] | None,
    topic: list[str] | None,
    cluster: bool,
    host: str,
) -> list[Acl]:
    from ottla.security.operations import CLUSTER_NAME, Permission, ResourceType
    from ottla.security.roles import AclRole, entry

    principal = _principal(who)
    _require_host(host)
    if not allow and not deny:
        if topic or cluster:
            raise Failure("--topic and --cluster go with --allow or --deny", USAGE)
        role = AclRole(
            produce or (), consume or (), group or (), transactional or (), observe, admin
        )
        if not (found := role.acls(principal, host)):
            raise Failure("which rights? --produce, --consume, --group, … (--help)", USAGE)
        return found
    if produce or consume or observe or admin:
        raise Failure("a role, or --allow and --deny, not both", USAGE)
    resources = [
        *((ResourceType.TOPIC, name) for name in topic or ()),
        *((ResourceType.GROUP, name) for name in group or ()),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional or ()),
        *([(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]
    if not resources:
        raise Failure("on what? --topic, --group, --transactional or --cluster", USAGE)
    return [
        entry(principal, permission, _operation(text), kind, name, host)
        for permission, texts in ((Permission.ALLOW, allow), (Permission.DENY, deny))
        for text in texts or ()
        for kind, name in resources
    ]


def _require_host(host: str) -> None:
    from ottla.security.acls import is_host

    if not is_host(host):
        raise Failure(
            f"--from: '{host}' is no address; Kafka compares single addresses, never names or networks",
            USAGE,
        )


def _warn_of_strangers(blocking: BlockingClient, acls: Iterable[Acl]) -> None:
    """Rights may be for a certificate's name, or for a user to come; more often a name is misspelt."""
    from ottla.client.security_admin import SecurityAdmin
    from ottla.security.principals import ANONYMOUS, EVERYONE, user
    from ottla.wire.errors import KafkaError

    try:
        users = {str(user(each.name)) for each in blocking.run(SecurityAdmin(blocking.client).users())}  # fmt: skip
    except KafkaError:  # who may change ACLs may not see users everywhere
        return
    for who in sorted({acl.principal for acl in acls} - users - {str(EVERYONE), str(ANONYMOUS)}):
        name = who.removeprefix("User:")
        warn(f"no user {name} has a password: only a certificate of that name can use it (ottla users add {name})")  # fmt: skip


def _warn_of_useless(acls: Iterable[Acl]) -> None:
    from ottla.security.needs import is_asked_for
    from ottla.security.roles import acl_text

    for acl in acls:
        if not is_asked_for(acl.operation, acl.resource_type):
            warn(f"{acl_text(acl)}: no request asks for this, so it changes nothing")


def _rows(acls: Iterable[Acl]) -> list[tuple[str, str, list[str], str, str]]:
    """ACLs that differ in their operation only, in one row."""
    from ottla.security.roles import resource_text

    def shared(acl: Acl) -> tuple[str, str, str, str]:
        plain = acl._replace(host="*")
        return acl.principal, acl.permission.name.lower(), resource_text(plain), acl.host

    ordered = sorted(acls, key=shared)
    return [
        (who, permission, [acl.operation.name for acl in group], resource, host)
        for (who, permission, resource, host), group in groupby(ordered, shared)
    ]


def _tell(new: list[Acl], gone: list[Acl], format: Format, dry_run: bool) -> None:
    if format is Format.json:
        print_json(
            {
                "added": [acl.as_json() for acl in new],
                "removed": [acl.as_json() for acl in gone],
                "dry_run": dry_run,
            }
        )
        return
    for sign, acls in (("+", new), ("-", gone)):
        for who, permission, operations, resource, host in _rows(acls):
            place = "" if host == "*" else f"  from {host}"
            say(f"{sign} {who}  {permission}  {','.join(operations)}  {resource}{place}")
    if not new and not gone:
        say("nothing changes")
    elif dry_run:
        say(f"would add {len(new)} and remove {count_of(len(gone), 'ACL')}; nothing was changed")
