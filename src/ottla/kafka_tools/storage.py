"""kafka-storage: the directories of a node before its first start, with the first users of a new cluster.

A cluster in which everybody has to log in needs somebody who can: `format --add-scram` writes a user among the records with which the
first controller begins the metadata. A password in an argument is visible to all users of the machine, so
`--add-scram-from` takes the same texts from a file.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import uuid
from argparse import Namespace
from typing import NamedTuple

from ottla.config.node_settings import Settings
from ottla.config.values import ConfigError
from ottla.controller.credentials import scram_record, scram_record_of_salted
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.features import FIRST_LEVEL, VERSIONS
from ottla.kafka_tools.java import uuid_of
from ottla.kafka_tools.options import ToolError
from ottla.kafka_tools.subcommands import SubcommandParser
from ottla.metadata.features import DEFAULT_LEVELS, METADATA_VERSION
from ottla.metadata.records import UserScramCredentialRecord
from ottla.raft.format import format_directory, is_formatted
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.runtime.files import RealDisk
from ottla.security.secrets import Secret

ITERATIONS = 4096
SALT_BYTES = 24
READABLE_BY_OTHERS = 0o077


def _parser() -> SubcommandParser:
    parser = SubcommandParser("kafka-storage", description="The Kafka storage tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    format = commands.add_parser("format", help="Format the Kafka log directories.")
    format.add_argument("--config", "-c", required=True, metavar="FILE")
    format.add_argument("--cluster-id", "-t", required=True, metavar="ID")
    format.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="TEXT",
        help="A user, as 'SCRAM-SHA-512=[name=alice,password=alice-secret]' or "
        '\'SCRAM-SHA-512=[name=alice,iterations=8192,salt="base64",saltedpassword="base64"]\'.',
    )
    format.add_argument(
        "--add-scram-from",
        action="append",
        default=[],
        metavar="FILE",
        help="A file with such users, one on each line. Nobody else may be able to read it.",
    )
    format.add_argument("--ignore-formatted", "-g", action="store_true")
    first = format.add_mutually_exclusive_group()
    first.add_argument(
        "--standalone",
        "-s",
        action="store_true",
        help="The controller is the only voter of a new cluster. Others are added later.",
    )
    first.add_argument(
        "--initial-controllers",
        "-I",
        metavar="VOTERS",
        help="The voters of a new cluster, separated by commas, each as id@host:port:directory-id.",
    )
    first.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="The node joins a cluster that has its voters already.",
    )
    commands.add_parser("random-uuid", help="Print a random UUID.")
    return parser


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    if given.command == "random-uuid":
        print(_random_id())
        return 0
    return _format(given)


def _random_id() -> str:
    """Kafka's: base64 for names, without the dash at its beginning that would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _format(given: Namespace) -> int:
    try:
        settings = Settings.load(given.config, os.environ)
    except ConfigError as error:
        raise ToolError(str(error)) from None
    users = [text for path in given.add_scram_from for text in _lines(path)]
    records = [first_user(text) for text in (*given.add_scram, *users)]
    voters = _first_voters(given, settings)
    disk = RealDisk()
    places = list(dict.fromkeys((settings.metadata_log_dir, *settings.log_dirs)))
    done = [place for place in places if is_formatted(disk, place)]
    if done and not given.ignore_formatted:
        raise ToolError(
            f"Log directory {done[0]} is already formatted. Use --ignore-formatted to ignore this"
            " directory and format the others."
        )
    if done == places:
        print("All of the log directories are already formatted.")
    version = VERSIONS[DEFAULT_LEVELS[METADATA_VERSION] - FIRST_LEVEL]
    for place in places:
        if place in done:
            continue
        kind = "metadata" if place == settings.metadata_log_dir else "data"
        print(f"Formatting {kind} directory {place} with {METADATA_VERSION} {version}.")
        is_metadata = place == settings.metadata_log_dir
        myself = voters.get(settings.node_id) if is_metadata and voters is not None else None
        format_directory(
            disk,
            place,
            cluster_id=given.cluster_id,
            node_id=settings.node_id,
            directory_id=uuid.uuid4() if myself is None else _directory_of(myself),
            voters=None if myself is None else voters,
            records=records,
        )
    return 0


def _directory_of(voter: Voter) -> uuid.UUID:
    assert voter.directory is not None
    return voter.directory


def _first_voters(given: Namespace, settings: Settings) -> VoterSet | None:
    """The voters that the options name; None if they are static, or known to other nodes."""
    is_dynamic = not settings.controller_quorum_voters
    if given.standalone or given.initial_controllers is not None:
        option = "--standalone" if given.standalone else "--initial-controllers"
        if not settings.is_controller:
            raise ToolError(f"You can only use {option} on a controller.")
        if not is_dynamic:
            raise ToolError(
                f"{option} is for voters that may change: use controller.quorum.bootstrap.servers in"
                " place of controller.quorum.voters."
            )
        if given.standalone:
            return VoterSet.of([_alone(settings)])
        return initial_controllers(given.initial_controllers, settings)
    if settings.is_controller and is_dynamic and not given.no_initial_controllers:
        raise ToolError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of"
            " the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return None


def _alone(settings: Settings) -> Voter:
    name = settings.controller_listener_names[0]
    for at in settings.advertised_listeners:
        if at.name == name:
            endpoint = QuorumEndpoint(name, at.host or "localhost", at.port)
            return Voter(settings.node_id, uuid.uuid4(), (endpoint,))
    raise ToolError("No controller listeners found.")


_VOTER = re.compile(
    r"(?P<id>\d+)@(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:@]+)):(?P<port>\d+):(?P<dir>[\w-]+)"
)


def initial_controllers(text: str, settings: Settings) -> VoterSet:
    """`1@host1:9093:directory,2@…`. The directory of this node is the one that it is formatted with."""
    name, voters = settings.controller_listener_names[0], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _VOTER.fullmatch(part)
        if found is None or not 0 < int(found["port"]) < 1 << 16:
            raise ToolError(f"Failed to parse {part}: a voter is id@host:port:directory-id")
        try:
            directory = uuid_of(found["dir"])
        except ValueError as error:
            raise ToolError(f"Failed to parse the directory id in {part}: {error}") from None
        endpoint = QuorumEndpoint(name, found["v6"] or found["host"], int(found["port"]))
        voters.append(Voter(int(found["id"]), directory, (endpoint,)))
    ids = [voter.id for voter in voters]
    if len(set(ids)) < len(ids):
        raise ToolError("Node id is duplicated in the initial controllers.")
    if settings.node_id not in ids:
        raise ToolError(
            f"The initial controllers do not name this one, node {settings.node_id}. A controller that"
            " joins later is formatted with --no-initial-controllers."
        )
    return VoterSet.of(voters)


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        if os.fstat(file.fileno()).st_mode & READABLE_BY_OTHERS:
            raise ToolError(f"{path}: others may read it; chmod 600 {path}")
        lines = [line.strip() for line in file]
    return [line for line in lines if line and not line.startswith("#")]


class _Pair(NamedTuple):
    name: str
    value: str


_PAIR = re.compile(r'\s*(?P<name>\w+)=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^,]*))(?:,|$)')


def first_user(text: str) -> UserScramCredentialRecord:
    """`SCRAM-SHA-512=[name=alice,password=alice-secret]`. What is refused is not shown: it has a password."""
    mechanism, equals, config = text.strip().partition("=")
    if not equals:
        raise ToolError("Failed to find equals sign in SCRAM argument")
    if not config.startswith("[") or not config.endswith("]"):
        raise ToolError("Expected configuration string to start with [ and to end with ]")
    values = dict(_pairs(config[1:-1]))
    name = values.pop("name", None)
    password, salted = values.pop("password", None), values.pop("saltedpassword", None)
    salt, iterations = values.pop("salt", None), values.pop("iterations", str(ITERATIONS))
    if name is None:
        raise ToolError("You must supply 'name' to add-scram")
    if (password is None) == (salted is None):
        raise ToolError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if salted is not None and salt is None:
        raise ToolError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if values:
        raise ToolError(f"Unknown SCRAM configurations: {', '.join(sorted(values))}")
    if not re.fullmatch("[0-9]{1,9}", iterations):
        raise ToolError("Failed to parse iterations count")
    chosen = secrets.token_bytes(SALT_BYTES) if salt is None else _decoded(salt, "salt")
    try:
        if salted is not None:
            key = _decoded(salted, "saltedPassword")
            return scram_record_of_salted(mechanism, name, key, chosen, int(iterations))
        return scram_record(mechanism, name, Secret(password or ""), chosen, int(iterations))
    except ValueError as error:
        raise ToolError(f"add-scram: {error}") from None


def _pairs(text: str) -> list[_Pair]:
    pairs, position = [], 0
    while position < len(text):
        found = _PAIR.match(text, position)
        if found is None:
            raise ToolError("No equals sign found in SCRAM component")
        quoted = found["quoted"]
        pairs.append(_Pair(found["name"], found["bare"] if quoted is None else quoted))
        position = found.end()
    if len({pair.name for pair in pairs}) != len(pairs):
        raise ToolError("A SCRAM component is given twice")
    return pairs


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ToolError(f"Failed to decode given {what}") from None
