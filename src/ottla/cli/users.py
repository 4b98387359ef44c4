"""`ottla users`: who may log in, with a password that is never an argument."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
    local_cluster,
)
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, say, warn

if TYPE_CHECKING:
    from ottla.client.security_admin import SecurityAdmin
    from ottla.local.cluster import LocalCluster
    from ottla.security.secrets import Secret

OPEN_HINT = "; this is an open cluster, where passwords protect nothing (ottla up --secure makes a secure one)"

app = typer.Typer(
    help="Users with passwords (SCRAM), of any Kafka.", no_args_is_help=True, rich_markup_mode=None
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Take the password from the first line of a file; - is standard input. [default: a new random one]",
        show_default=False,
    ),
]
ShowOption = Annotated[bool, typer.Option("--show", help="Print the password.")]


@app.command()
def add(
    name: NameArgument,
    password_file: PasswordFileOption = None,
    show: ShowOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Add a user, who may then log in and do nothing: ottla acls add gives rights.

    For a secure cluster on this machine, settings for all kinds of clients are written to
    DIR/clients/NAME, with the password.
    """
    _set(name, password_file, show, bootstrap, dir, command_config, timeout, format, new=True)


@app.command()
def rotate(
    name: NameArgument,
    password_file: PasswordFileOption = None,
    show: ShowOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Give a user another password. The old one is good for nothing afterwards."""
    _set(name, password_file, show, bootstrap, dir, command_config, timeout, format, new=False)


def _set(
    name: str,
    password_file: Path | None,
    show: bool,
    bootstrap: str | None,
    dir: Path | None,
    command_config: Path | None,
    timeout_s: float,
    format: Format,
    *,
    new: bool,
) -> None:
    from ottla.client.security_admin import ITERATIONS, SecurityAdmin
    from ottla.local.client_files import require_usable
    from ottla.security.secrets import Secret

    cluster = _secure_here(bootstrap, dir)
    if cluster is None and password_file is None and not show:
        raise Failure(
            "a new password would be lost: give --password-file, or --show to print it"
            + OPEN_HINT * (local_cluster(bootstrap, dir) is not None),
            USAGE,
        )
    password = Secret(_given(password_file) if password_file is not None else _random())
    require_usable(password.reveal())
    with connect(bootstrap, dir, timeout_s, command_config, by_controller=True) as blocking:
        admin = SecurityAdmin(blocking.client)
        known = {user.name for user in blocking.run(admin.users())}
        if new and name in known:
            raise Failure(f"user {name} exists (ottla users rotate {name})", CONFLICT)
        if not new and name not in known:
            raise _no_user(name, known)
        if cluster is None:
            files = None
            blocking.run(admin.set_password(name, password))
        else:
            files = blocking.run(change_password(cluster, admin, name, password))
    if format is Format.json:
        told = {"user": name, "clients": None if files is None else str(files)}
        print_json(told | ({"password": password.reveal()} if show else {}))
        return
    say(
        f"user {name}: SCRAM-SHA-512 and SCRAM-SHA-256, {ITERATIONS} iterations"
        if new
        else f"user {name}: has another password"
    )
    if show:
        print(f"password: {password.reveal()}")
    if files is not None:
        say(f"settings for clients, with the password, are in {files}")
    if not new:
        say(f"running clients of {name} are cut off at once: restart them with the new password")
    if new:
        say(f"{name} may do nothing yet: ottla acls add {name} --consume TOPIC --group GROUP")


def _random() -> str:
    from ottla.local.secure import new_password

    return new_password()


def _given(file: Path) -> str:
    try:
        text = sys.stdin.readline() if str(file) == "-" else file.read_text().split("\n")[0]
    except OSError as error:
        raise Failure(f"--password-file: {file}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"--password-file: {file}: is not text", USAGE) from None
    if str(file) != "-" and file.stat().st_mode & 0o077:
        warn(f"{file}: others may read it (chmod 600)")
    return text.rstrip("\r\n")


def _secure_here(bootstrap: str | None, dir: Path | None) -> LocalCluster | None:
    """The secure cluster in the directory, whose clients' files are ours to write."""
    cluster = local_cluster(bootstrap, dir)
    return cluster if cluster is not None and cluster.secure else None


async def change_password(
    cluster: LocalCluster, admin: SecurityAdmin, name: str, password: Secret
) -> Path:
    """In the cluster, then in the files of the user's clients. Between the two the new one lies beside the old, so that
    neither is lost if this process dies."""
    from ottla.local.client_files import clients_directory, user_directory
    from ottla.local.private_files import private_directory, write_private
    from ottla.local.secure import write_login

    private_directory(clients_directory(cluster.directory))
    directory = private_directory(user_directory(cluster.directory, name))
    write_private(directory / "password.next", password.reveal() + "\n")
    await admin.set_password(name, password)
    write_login(cluster, name, password.reveal())
    (directory / "password.next").unlink()
    return directory


def _no_user(name: str, known: set[str]) -> Failure:
    from ottla.config.names import nearest

    return Failure(f"no user {name}{nearest(name, known)} (ottla users list)", NOT_FOUND)


@app.command("list")
def list_users(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """List users, how they log in, and how many ACLs are theirs."""
    from ottla.client.security_admin import SecurityAdmin
    from ottla.security.principals import user as principal_of

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        admin = SecurityAdmin(blocking.client)
        users = blocking.run(admin.users())
        authorizer, are_known = blocking.run(admin.authorizer())
    rows = []
    for user in users:
        who = str(principal_of(user.name))
        acls = sum(acl.principal == who for acl in authorizer.acls)
        is_super = who in authorizer.super_users
        idle = "no ACLs: may do nothing of its own" + ("" if are_known else ", unless a super user")
        note = "super user" if is_super else "" if acls else idle
        rows.append(
            {
                "user": user.name,
                "mechanisms": [mechanism for mechanism, _ in user.credentials],
                "iterations": min((count for _, count in user.credentials), default=0),
                "acls": acls,
                "note": note,
            }
        )
    if format is Format.json:
        print_json(rows)
        return
    print_table(
        ("user", "mechanisms", "iterations", "acls", "note"),
        [[row[each] for each in ("user", "mechanisms", "iterations", "acls", "note")] for row in rows],
    )  # fmt: skip


@app.command()
def remove(
    name: NameArgument,
    keep_acls: Annotated[
        bool, typer.Option("--keep-acls", help="Leave the ACLs: a new user of this name has them.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Remove a user, the ACLs that are its own, and the settings of its clients."""
    from ottla.client.security_admin import SecurityAdmin
    from ottla.local.client_files import ADMIN, remove_client_files
    from ottla.security.acls import AclFilter
    from ottla.security.principals import user as principal_of

    cluster = _secure_here(bootstrap, dir)
    if cluster is not None and name == ADMIN:
        raise Failure(f"{ADMIN}: the commands log in with it; without it nobody could", CONFLICT)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        admin = SecurityAdmin(blocking.client)
        users = {user.name: user for user in blocking.run(admin.users())}
        if name not in users:
            raise _no_user(name, set(users))
        blocking.run(admin.remove_user(users[name]))
        own = AclFilter(principal=str(principal_of(name)))
        gone = [] if keep_acls else blocking.run(admin.remove_acls([own]))
    if cluster is not None:
        remove_client_files(cluster.directory, name)
    if format is Format.json:
        print_json({"removed": name, "acls": len(gone)})
    else:
        say(f"user {name} is removed, with {count_of(len(gone), 'ACL')}")
