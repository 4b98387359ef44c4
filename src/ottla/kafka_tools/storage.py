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
from ottla.kafka_tools.options import ToolError
from ottla.kafka_tools.subcommands import SubcommandParser
from ottla.metadata.features import DEFAULT_LEVELS, METADATA_VERSION
from ottla.metadata.records import UserScramCredentialRecord
from ottla.raft.format import format_directory, is_formatted
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
        format_directory(
            disk,
            place,
            cluster_id=given.cluster_id,
            node_id=settings.node_id,
            directory_id=uuid.uuid4(),
            voters=None,
            records=records,
        )
    return 0


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
