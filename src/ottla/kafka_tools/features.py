"""kafka-features: feature levels that the cluster has agreed on, and changing them by level."""

from __future__ import annotations

from argparse import Namespace

from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import message_of
from ottla.kafka_tools.options import ToolError
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.kafka_tools.subcommands import SubcommandParser, add_connection
from ottla.wire.apis import ApiKey
from ottla.wire.errors import KafkaError

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_VERSION = "metadata.version"
FIRST_LEVEL = 7
VERSIONS = [
    "3.3-IV3",
    "3.4-IV0",
    "3.5-IV0",
    "3.5-IV1",
    "3.5-IV2",
    "3.6-IV0",
    "3.6-IV1",
    "3.6-IV2",
    "3.7-IV0",
    "3.7-IV1",
    "3.7-IV2",
    "3.7-IV3",
    "3.7-IV4",
    "3.8-IV0",
    "3.9-IV0",
    "4.0-IV0",
    "4.0-IV1",
    "4.0-IV2",
    "4.0-IV3",
    "4.1-IV0",
    "4.1-IV1",
    "4.2-IV0",
    "4.2-IV1",
    "4.3-IV0",
    "4.4-IV0",
]
"""Names of the levels of metadata.version, from FIRST_LEVEL on."""


def _parser() -> SubcommandParser:
    parser = SubcommandParser(
        "kafka-features", description="This tool manages feature flags in Kafka."
    )
    add_connection(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Describes the current active feature flags.")
    describe.add_argument("--node-id", type=int)
    for name, text in (("upgrade", "Upgrade"), ("downgrade", "Downgrade"), ("disable", "Disable")):
        change = commands.add_parser(name, help=f"{text} one or more feature flags.")
        change.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL")
        change.add_argument("--dry-run", action="store_true")
        if name != "disable":
            change.add_argument("--metadata", metavar="VERSION")
        if name != "upgrade":
            change.add_argument("--unsafe", action="store_true")
    return parser


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    updates = {} if given.command == "describe" else _updates(given)

    async def work(session: ToolSession) -> int:
        if given.command == "describe":
            await _describe(session, given.node_id)
        else:
            await _change(session, given, updates)
        return 0

    bootstrap = given.bootstrap_server or given.bootstrap_controller
    return with_cluster(bootstrap, properties(given.command_config), "kafka-features", work)


async def _describe(session: ToolSession, node: int | None) -> None:
    if node is not None and node < 0:
        raise ToolError(f"Invalid node id {node}: must be non-negative.")
    fields = {"client_software_name": "ottla", "client_software_version": "1"}
    answer = await session.admin.ask(ApiKey.API_VERSIONS, fields, node)
    finalized = {each.name: int(each.max_version_level) for each in answer.finalized_features}
    epoch = int(answer.finalized_features_epoch)
    for feature in sorted(answer.supported_features, key=lambda each: str(each.name)):
        name = feature.name
        low, high, level = (
            _shown(name, each)
            for each in (int(feature.min_version), int(feature.max_version), finalized.get(name, 0))
        )
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}"
            f"  FinalizedVersionLevel: {level:<15}  Epoch: {epoch if epoch >= 0 else '-'}"
        )


def _shown(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    position = level - FIRST_LEVEL
    return VERSIONS[position] if 0 <= position < len(VERSIONS) else f"UNKNOWN {level}"


def _updates(given: Namespace) -> dict[str, int]:
    updates: dict[str, int] = {}
    if given.command != "disable" and given.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        updates[METADATA_VERSION] = _level_of(given.metadata)
    for text in given.feature:
        name, level = (text, 0) if given.command == "disable" else _name_and_level(text)
        if name in updates:
            raise ToolError(f"Feature {name} was specified more than once.")
        updates[name] = level
    if not updates:
        raise ToolError(f"You must specify at least one feature to {given.command}")
    return updates


def _level_of(version: str) -> int:
    """`4.3-IV0`, or `4.3`: its last level."""
    found = [number for number, name in enumerate(VERSIONS) if f"{name}-".startswith(f"{version}-")]
    if not found:
        raise ToolError(f"Unknown metadata.version '{version}'")
    return FIRST_LEVEL + found[-1]


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name, int(level)
    except ValueError:
        raise ToolError(
            f"Can't parse feature=level string {text}: unable to parse {level} as a short."
        ) from None


async def _change(session: ToolSession, given: Namespace, updates: dict[str, int]) -> None:
    """All or none: one error is the error of each."""
    kind = UPGRADE
    if given.command != "upgrade":
        kind = UNSAFE_DOWNGRADE if given.unsafe else SAFE_DOWNGRADE
    fields = {
        "timeout": int(session.client.connections.timeout_s * 1000),
        "validate_only": given.dry_run,
        "feature_updates": [
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level in updates.items()
        ],
    }
    try:
        await session.admin.ask(ApiKey.UPDATE_FEATURES, fields)
        why = None
    except KafkaError as error:
        why = message_of(error)
    for name, level in sorted(updates.items()):
        to = "" if given.command == "disable" else f" to {level}"
        if why is not None:
            verb = "Can not" if given.dry_run else "Could not"
            print(f"{verb} {given.command} {name}{to}. {why}")
        else:
            done = "disabled" if given.command == "disable" else f"{given.command}d"
            print(f"{name} {'can be' if given.dry_run else 'was'} {done}{to}.")
    if why is not None:
        raise ToolError(f"{len(updates)} out of {len(updates)} operation(s) failed.")
