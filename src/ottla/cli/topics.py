"""`ottla topics …` and `ottla replicas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, warn
from ottla.cli.settings import parse_configs

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.model import Config, PartitionInfo, ReplicaInfo, Topic
    from ottla.client.unclean_election import UncleanChoice
    from ottla.wire.errors import KafkaError

app = typer.Typer(
    help="Create, show, change and delete topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--config", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option("-p", "--partitions", help="[default: the cluster's]", min=1),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option("-r", "--replication-factor", help="[default: the cluster's]", min=1),
    ] = None,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the request, create nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Create a topic.

    Settings that are allowed and often regretted are named on stderr; the topic is created all the same.
    """
    from ottla.wire.errors import KafkaError

    configs = parse_configs(config)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        client = blocking.client
        try:
            planned = blocking.run(
                client.create_topic(
                    topic, partitions or -1, factor or -1, configs, validate_only=dry_run
                )
            )
        except KafkaError as error:
            raise _with_nearest(error, configs) from None
        if dry_run:
            described = None
            if planned.factor is not None:
                own = frozenset(configs)
                _warn_of_traps(blocking, topic, planned.factor, planned.configs, own)
        else:
            described = blocking.run(client.topic(topic))
            _warn_of_created(blocking, described)
    if format is Format.json:
        print_json(
            {"topic": topic, "created": not dry_run} if described is None else as_json(described)
        )
    elif described is None:
        print(f"topic {topic} could be created")
    else:
        first = described.partitions[0]
        print(
            f"created topic {topic}: {count_of(len(described.partitions), 'partition')},"
            f" {count_of(len(first.replicas), 'replica')} each"
        )


def _with_nearest(error: KafkaError, configs: dict[str, str]) -> Exception:
    """A mistyped setting with the name that was meant; Kafka's own brokers do not say it."""
    from ottla.config.names import TOPIC_NOT_YET, TOPIC_TO_SERVER, nearest
    from ottla.wire.errors import ErrorCode

    known = [*TOPIC_TO_SERVER, *TOPIC_NOT_YET]
    for name in configs:
        advice = nearest(name, known) if name not in known else ""
        is_told = "did you mean" in error.message
        if error.code is ErrorCode.INVALID_CONFIG and advice and not is_told:
            return Failure(f"{error}{advice}", USAGE)
    return error


def _warn_of_created(blocking: BlockingClient, topic: Topic) -> None:
    configs = blocking.run(blocking.client.topic_configs(topic.name))
    _warn_of_traps(
        blocking,
        topic.name,
        min(len(each.replicas) for each in topic.partitions),
        {each.name: each.value for each in configs},
        frozenset(each.name for each in configs if not each.is_default),
    )


def _warn_of_traps(
    blocking: BlockingClient,
    topic: str,
    factor: int,
    configs: Mapping[str, str | None],
    own: frozenset[str],
) -> None:
    from ottla.config.traps import topic_traps
    from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC

    metadata = blocking.run(blocking.client.metadata())
    traps = topic_traps(
        factor,
        configs,
        len(metadata.brokers),
        transactional=any(each.name == TRANSACTION_STATE_TOPIC for each in metadata.topics),
        own=own,
    )
    for trap in traps:
        warn(f"topic {topic}: {trap.what}. {trap.why}")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """List the topics."""
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        found = blocking.run(blocking.client.metadata()).topics
    shown = sorted(
        (topic for topic in found if internal or not topic.internal), key=lambda t: t.name
    )
    if format is Format.json:
        print_json([as_json(topic) for topic in shown])
        return
    print_table(
        ("topic", "partitions", "replicas", "under-replicated", "leaderless"),
        [
            (
                topic.name,
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions), default=0),
                sum(bool(each.out_of_sync) for each in topic.partitions),
                sum(each.leader < 0 for each in topic.partitions),
            )
            for topic in shown
        ],
    )


@app.command()
def describe(
    topic: TopicArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show a topic's partitions and its own settings.

    AR: the brokers that hold a partition, the preferred leader first; ISR: those in sync; OSR: the others.
    """
    with connect(bootstrap, dir, timeout, command_config, topic=topic) as blocking:
        described = blocking.run(blocking.client.topic(topic))
        configs = blocking.run(blocking.client.topic_configs(topic))
    own = {each.name: each.value for each in configs if not each.is_default}
    if format is Format.json:
        print_json(as_json(described) | {"configs": own})
        return
    from ottla.wire.types import uuid_to_text

    identity = "" if described.id is None else f" ({uuid_to_text(described.id)})"
    print(f"topic {described.name}{identity}")
    for name, value in sorted(own.items()):
        print(f"  {name}={value}")
    print()
    print_table(
        ("partition", "leader", "epoch", "AR", "ISR", "OSR"),
        [
            (
                each.partition,
                each.leader if each.leader >= 0 else None,
                each.leader_epoch,
                each.replicas,
                each.isr,
                each.out_of_sync,
            )
            for each in by_number(described)
        ],
    )


@app.command()
def delete(
    topic: TopicArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Delete a topic with its records."""
    with connect(
        bootstrap, dir, timeout, command_config, topic=topic, by_controller=True
    ) as blocking:
        blocking.run(blocking.client.delete_topic(topic))
    if format is Format.json:
        print_json({"topic": topic, "deleted": True})
    else:
        print(f"deleted topic {topic}")


@app.command()
def alter(
    topic: TopicArgument,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Give a setting its default back."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("-p", "--partitions", help="Raise the number of partitions to this.", min=1),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Change a topic's settings or its number of partitions."""
    changes: dict[str, str | None] = {**parse_configs(config), **dict.fromkeys(unset or [])}
    if not changes and partitions is None:
        raise Failure("nothing to change: give --config, --unset or --partitions", USAGE)
    with connect(
        bootstrap, dir, timeout, command_config, topic=topic, by_controller=True
    ) as blocking:
        blocking.run(blocking.client.topic(topic))
        if unset:
            require_settings(unset, blocking.run(blocking.client.topic_configs(topic)))
        if changes:
            blocking.run(blocking.client.alter_topic_configs(topic, changes))
        if partitions is not None:
            blocking.run(blocking.client.create_partitions(topic, partitions))
    if format is Format.json:
        print_json({"topic": topic, "configs": changes, "partitions": partitions})
        return
    for name, value in changes.items():
        print(
            f"{topic}: {name} is the default again" if value is None else f"{topic}: {name}={value}"
        )
    if partitions is not None:
        print(f"{topic}: {count_of(partitions, 'partition')}")


def require_settings(names: list[str], known: list[Config]) -> None:
    """A cluster accepts the removal of any name, also of a mistyped one. So the name is compared with those it lists."""
    from ottla.config.names import nearest

    for name in names:
        if not any(each.name == name for each in known):
            advice = nearest(name, [each.name for each in known])
            raise Failure(f"Unknown topic config name: {name}{advice}", USAGE)


@app.command()
def elect(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All topics, internal ones, too.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where nobody leads, let the living replica with the longest log lead: what only the others have is lost.",
        ),
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", help="Only this one; may be repeated.", min=0),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --unclean: show what each living replica has, only."),
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Give leadership back to the preferred replicas.

    That is the first of AR, for every partition, or for those that --partition names. The cluster also does so by itself, every
    leader.imbalance.check.interval.seconds. With --unclean, the living replicas of each partition without a leader are asked
    where their logs end, this is shown, and the one with the longest log is elected.
    """
    if every == (topic is not None) or (every and partition):
        raise Failure("give a TOPIC, or --all without --partition", USAGE)
    if dry_run and not unclean:
        raise Failure("--dry-run: only with --unclean", USAGE)
    with connect(
        bootstrap, dir, timeout, command_config, topic=topic, by_controller=True
    ) as blocking:
        wanted = (
            {each.name: _numbers(each) for each in blocking.run(blocking.client.metadata()).topics}
            if topic is None
            else {topic: _chosen(blocking, topic, partition)}
        )
        if unclean:
            outcome = _elect_unclean(blocking, wanted, format, dry_run=dry_run)
            if dry_run:
                return
        else:
            outcome = blocking.run(blocking.client.elect_leaders(None if every else wanted))
    told = {
        name: {
            "topic": name,
            "elected": sorted(
                number for (of, number), why in outcome.items() if of == name and why is None
            ),
            "refused": {
                number: why
                for (of, number), why in sorted(outcome.items())
                if of == name and why is not None
            },
        }
        for name in wanted
    }
    if format is Format.json:
        print_json(list(told.values()) if topic is None else told[topic])
    else:
        elected = sum(why is None for why in outcome.values())
        whose = "all topics" if topic is None else topic
        partitions = sum(map(len, wanted.values()))
        print(f"{whose}: {elected} of {partitions} partitions have another leader now")
    refused = {place: why for place, why in sorted(outcome.items()) if why is not None}
    if refused:
        (name, number), why = next(iter(refused.items()))
        raise Failure(f"{len(refused)} could not be elected; {name}-{number}: {why}")


def _numbers(topic: Topic) -> list[int]:
    return [each.partition for each in by_number(topic)]


def _chosen(blocking: BlockingClient, topic: str, partitions: list[int] | None) -> list[int]:
    known = _numbers(blocking.run(blocking.client.topic(topic)))
    numbers = sorted(set(partitions or known))
    for number in set(numbers) - set(known):
        raise Failure(f"topic {topic} has no partition {number}", NOT_FOUND)
    return numbers


def _elect_unclean(
    blocking: BlockingClient, wanted: Mapping[str, list[int]], format: Format, *, dry_run: bool
) -> dict[tuple[str, int], str | None]:
    """What each living replica has is shown before anything is elected."""
    from ottla.client.unclean_election import elect_longest, unclean_choices

    found = {
        name: choices
        for name, numbers in wanted.items()
        if (choices := blocking.run(unclean_choices(blocking.client, name, numbers)))
    }
    if format is not Format.json:
        _show_choices(found)
    elif dry_run:
        print_json(
            [_choice_as_json(name, each) for name, choices in found.items() for each in choices]
        )
    if dry_run:
        return {}
    return {
        (name, number): why
        for name, choices in found.items()
        for number, why in blocking.run(elect_longest(blocking.client, name, choices)).items()
    }


def _show_choices(found: Mapping[str, list[UncleanChoice]]) -> None:
    if not found:
        print("every partition has a leader: there is nothing to elect")
        return
    print_table(
        ("partition", "broker", "last epoch", "log end", "lacks", "elected"),
        [
            (
                f"{name}-{choice.partition}",
                each.broker,
                each.last_epoch if each.last_epoch >= 0 else None,
                each.log_end,
                each.lacks,
                "yes" if number == 0 else None,
            )
            for name, choices in found.items()
            for choice in choices
            for number, each in enumerate(choice.candidates)
        ],
    )
    for name, choices in found.items():
        for choice in choices:
            if choice.silent:
                ids = ", ".join(map(str, choice.silent))
                warn(f"{name}-{choice.partition}: what only broker {ids} has is lost")
            if choice.moving:
                warn(
                    f"{name}-{choice.partition}: it is being moved, so the controller elects the first living replica;"
                    " ottla topics reassign --cancel first lets the longest log lead"
                )


def _choice_as_json(topic: str, choice: UncleanChoice) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": choice.partition,
        "candidates": [each._asdict() for each in choice.candidates],
        "silent": list(choice.silent),
        "moving": choice.moving,
        "dry_run": True,
    }


@app.command()
def reassign(
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", help="The partition to move.", min=0)
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", metavar="BROKER,…", help="Who shall hold it, preferred first."),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Back to the brokers that held it before.")
    ] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Only show what is under way.")] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Move a partition to other brokers.

    Or cancel a move, or show the moves under way. The command returns when the controller has decided; copying
    goes on. A move is complete when --list no longer shows it.
    """
    wishes = (replicas is not None, cancel, list_only)
    if sum(wishes) != 1:
        raise Failure("give one of --replicas, --cancel and --list", USAGE)
    if partition is None and not list_only:
        raise Failure("give the --partition to move", USAGE)
    brokers = None if replicas is None else parse_brokers(replicas)
    with connect(
        bootstrap, dir, timeout, command_config, topic=topic, by_controller=True
    ) as blocking:
        client = blocking.client
        blocking.run(client.topic(topic))
        if partition is not None and not list_only:
            blocking.run(client.reassign(topic, partition, brokers))
        under_way = [
            each
            for each in blocking.run(client.reassignments())
            if each.topic == topic and partition in (None, each.partition)
        ]
    if format is Format.json:
        print_json([each._asdict() for each in under_way])
    elif under_way:
        print_table(
            ("partition", "AR", "adding", "removing"),
            [(each.partition, each.replicas, each.adding, each.removing) for each in under_way],
        )
    else:
        which = topic if partition is None else f"{topic}-{partition}"
        print(f"{which}: nothing is being moved")


def parse_brokers(words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError as error:
        raise Failure(f"--replicas {words}: is not a list of broker ids", USAGE) from error


def replicas(
    topic: TopicArgument,
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", help="Only this one.", min=0),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show every replica of a topic, as it answers itself.

    Whether it is in the ISR or not (OSR), its log start, log end offset (LEO), high watermark (HW) and
    lag. A broker that is down leaves its columns empty.
    """
    with connect(bootstrap, dir, timeout, command_config, topic=topic) as blocking:
        found = blocking.run(blocking.client.replicas(topic))
        described = blocking.run(blocking.client.topic(topic))
    if partition is not None:
        found = [each for each in found if each.partition == partition]
        if not found:
            raise Failure(f"topic {topic} has no partition {partition}", NOT_FOUND)
    if format is Format.json:
        print_json(replicas_as_json(described, found))
        return
    print_table(
        ("partition", "broker", "role", "set", "start", "LEO", "HW", "lag"),
        [
            (
                each.partition,
                each.broker,
                "leader" if each.is_leader else "follower",
                "ISR" if each.in_sync else "OSR",
                each.log_start,
                each.log_end,
                each.high_watermark,
                each.lag,
            )
            for each in found
        ],
    )
    print("\nEach broker is asked in turn: while records arrive, these are different moments.")


def by_number(topic: Topic) -> list[PartitionInfo]:
    return sorted(topic.partitions, key=lambda each: each.partition)


def as_json(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": None if topic.id is None else _id_text(topic),
        "internal": topic.internal,
        "partitions": [partition_as_json(each) for each in by_number(topic)],
    }


def _id_text(topic: Topic) -> str:
    from ottla.wire.types import uuid_to_text

    assert topic.id is not None
    return uuid_to_text(topic.id)


def partition_as_json(partition: PartitionInfo) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "ar": list(partition.replicas),
        "isr": list(partition.isr),
        "osr": list(partition.out_of_sync),
    }


def replicas_as_json(topic: Topic, replicas: list[ReplicaInfo]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": [
            partition_as_json(each)
            | {
                "replicas": [
                    {
                        "broker": replica.broker,
                        "leader": replica.is_leader,
                        "in_sync": replica.in_sync,
                        "log_start": replica.log_start,
                        "leo": replica.log_end,
                        "hw": replica.high_watermark,
                        "lag": replica.lag,
                    }
                    for replica in replicas
                    if replica.partition == each.partition
                ]
            }
            for each in by_number(topic)
            if any(replica.partition == each.partition for replica in replicas)
        ],
    }
