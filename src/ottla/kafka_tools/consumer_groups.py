"""kafka-consumer-groups: list, describe and delete groups, and reset or delete their offsets.

Kafka's tool exits with 0 also where it prints "Error: …", and so does this one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.client.admin import DescribedTopic, Place
from ottla.client.client import EARLIEST, LATEST
from ottla.client.group_admin import GroupAdmin, ListedGroup, classic_assignment
from ottla.kafka_tools.ending import ended, said
from ottla.kafka_tools.java import (
    EXCEPTIONS,
    exception_text,
    message_of,
    names_in_order,
    place_text,
    places_in_order,
)
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    Parsed,
    ToolError,
)
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.errors import ErrorCode, KafkaError

MISSING = "-"
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
RESETS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
STATES = (
    "PreparingRebalance",
    "Assigning",
    "Empty",
    "Reconciling",
    "Stable",
    "CompletingRebalance",
    "Dead",
)
REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
TYPES = {"classic": "Classic", "consumer": "Consumer"}
TIMEOUT_MS = 30_000
CSV_CHECKED_LENGTH = 24
PARSER = OptionParser(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset"
    " consumer group offsets.",
    [
        BOOTSTRAP,
        Option("group", "The consumer group we wish to act on.", "consumer group"),
        Option("topic", "The topic, or topic:0,1,2 for some of its partitions.", "topic"),
        Option("all-topics", "Consider all topics assigned to a group."),
        Option("list", "List all consumer groups."),
        Option("describe", "Describe consumer group and list offset lag related to given group."),
        Option("all-groups", "Apply to all consumer groups."),
        Option("delete", "Delete consumer groups."),
        Option("timeout", "The timeout in ms.", "timeout (ms)", default=str(TIMEOUT_MS)),
        COMMAND_CONFIG,
        Option("reset-offsets", "Reset offsets of consumer group."),
        Option("delete-offsets", "Delete offsets of consumer group."),
        Option("dry-run", "Only show results without executing changes."),
        Option("execute", "Execute operation."),
        Option("export", "Export operation execution to a CSV file."),
        Option("to-offset", "Reset offsets to a specific offset.", "offset"),
        Option("from-file", "Reset offsets to values defined in CSV file.", "path to CSV file"),
        Option("to-datetime", "Reset offsets to offset from datetime.", "YYYY-MM-DDThh:mm:ss.sss"),
        Option("by-duration", "Reset offsets to offset by duration from now.", "PnDTnHnMnS"),
        Option("to-earliest", "Reset offsets to earliest offset."),
        Option("to-latest", "Reset offsets to latest offset."),
        Option("to-current", "Reset offsets to current offset."),
        Option("shift-by", "Reset offsets shifting current offset by 'n'.", "number-of-offsets"),
        Option("members", "Describe members of the group."),
        Option("verbose", "Provide additional information when describing the group."),
        Option(
            "offsets", "Describe the group and list all topic partitions with their offset lag."
        ),
        Option(
            "state", "Describe the state of the group, or list states.", "states", optional=True
        ),
        Option("type", "List the types of groups.", "types", optional=True),
        Option(
            "validate-regex", "Validate that the syntax of a regular expression is valid.", "regex"
        ),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    _check(options)
    if options.has("validate-regex"):
        _validate_regex(options.text("validate-regex"))
        return 0
    settings = properties(options.value("command-config"))
    timeout_ms = options.number("timeout") or TIMEOUT_MS

    async def work(session: ToolSession) -> int:
        try:
            await _Groups(session, options).run()
        except _WrongUse as error:
            PARSER.usage(str(error))
        except Exception as error:
            text = exception_text(error) if isinstance(error, KafkaError) else said(error)
            if text is None:
                raise
            _print_error(f"Executing consumer group command failed due to {text}")
        return 0

    bootstrap = options.text("bootstrap-server")
    return with_cluster(bootstrap, settings, "kafka-consumer-groups", work, timeout_ms)


class _WrongUse(ToolError):
    """Options that turn out to be wrong while they are followed."""


def _print_error(message: str) -> None:
    print(f"\nError: {message}")


def _validate_regex(regex: str) -> None:
    try:
        re.compile(regex)
        print(f"The regular expression `{regex}` is valid.")
    except re.error as error:
        print(f"The regular expression `{regex}` is invalid: {error.msg}.")


def _check(options: Parsed) -> None:
    if not options.has("validate-regex"):
        PARSER.require(options, "bootstrap-server")
    scope = "[group], [all-groups]"
    has_scope = options.has("group") or options.has("all-groups")
    if options.has("describe"):
        if not has_scope:
            PARSER.usage(f"Option [describe] takes one of these options: {scope}")
        if sum(options.has(name) for name in ("members", "offsets", "state")) > 1:
            PARSER.usage(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if options.value("state") is not None:
            PARSER.usage("Option [describe] does not take a value for [state]")
    if options.has("delete"):
        if not has_scope:
            PARSER.usage(f"Option [delete] takes one of these options: {scope}")
        if options.has("topic"):
            PARSER.usage(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        PARSER.usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options, has_scope, scope)
    PARSER.forbid(options, "group", "all-groups", "list")
    PARSER.forbid(options, "topic", "list", "describe")
    if sum(options.has(action) for action in ACTIONS) != 1:
        actions = ", ".join(f"--{action}" for action in ACTIONS)
        PARSER.usage(f"Command must include exactly one action: {actions}")


def _check_reset(options: Parsed, has_scope: bool, scope: str) -> None:
    if options.has("dry-run") and options.has("execute"):
        PARSER.usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        print(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this"
            " command will require either --dry-run or --execute to be specified. You should add the"
            " --dry-run option explicitly if you are scripting this command and want to keep the current"
            " default behavior without prompting.",
            file=sys.stderr,
        )
    if not has_scope:
        PARSER.usage(f"Option [reset-offsets] takes one of these options: {scope}")
    for reset in RESETS:
        PARSER.forbid(options, reset, *(other for other in RESETS if other != reset))


class _Committed(NamedTuple):
    offset: int
    leader_epoch: int | None


class _Member(NamedTuple):
    id: str
    instance_id: str
    host: str
    client_id: str
    assigned: tuple[Place, ...]
    target: tuple[Place, ...]
    epoch: int | None
    upgraded: bool | None


class _Group(NamedTuple):
    id: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[_Member, ...]
    epoch: int | None
    target_epoch: int | None


class _Row(NamedTuple):
    """A line about one partition."""

    place: Place
    committed: _Committed | None
    end: int | None
    member: str
    host: str
    client_id: str


Offsets = dict[Place, int]


class _Groups:
    """One run of the tool."""

    def __init__(self, session: ToolSession, options: Parsed) -> None:
        self._session = session
        self._options = options
        self._groups = GroupAdmin(session.client)

    async def run(self) -> None:
        options = self._options
        if options.has("list"):
            await self._list()
        elif options.has("describe"):
            await self._describe()
        elif options.has("delete"):
            await self._delete()
        elif options.has("reset-offsets"):
            await self._reset()
        else:
            await self._delete_offsets()

    # Listing

    async def _listed(self) -> list[ListedGroup]:
        """Consumer groups, also those that only commit offsets."""
        by_id = {
            group.id: group
            for group in (await self._groups.all()).answers
            if group.protocol in ("", "consumer")
            and group.type.lower() in ("", "classic", "consumer")
        }
        return [by_id[name] for name in names_in_order(by_id)]

    async def _named(self) -> list[str]:
        if self._options.has("all-groups"):
            return [group.id for group in await self._listed()]
        return list(dict.fromkeys(self._options.values("group")))

    async def _list(self) -> None:
        with_type, with_state = self._options.has("type"), self._options.has("state")
        if not with_type and not with_state:
            for group in await self._listed():
                print(group.id)
            return
        types = _chosen(self._options.value("type"), tuple(TYPES.values()), "types")
        states = _chosen(self._options.value("state"), STATES, "state")
        groups = [
            group
            for group in await self._listed()
            if (not types or group.type.lower() in types)
            and (not states or group.state.lower() in states)
        ]
        width = max([15, *(len(group.id) for group in groups)]) + 10
        rows = [("GROUP", "TYPE", "STATE")]
        rows += [
            (group.id, TYPES.get(group.type.lower(), "Unknown"), group.state) for group in groups
        ]
        for id, kind, state in rows:
            line = f"{id:<{width}}"
            line += f" {kind:<20}" if with_type else ""
            print(line + (f" {state:<20}" if with_state else ""))

    # Describing

    async def _described(self, name: str) -> _Group:
        kind, found, coordinator = await self._groups.answer(name)
        if kind == "consumer":
            return _consumer_group(found, coordinator)
        if found.protocol_type not in ("", "consumer"):
            raise ToolError(f"GroupId {name} is not a consumer group ({found.protocol_type}).")
        return _classic_group(found, coordinator)

    async def _describe(self) -> None:
        options = self._options
        groups = [await self._described(name) for name in await self._named()]
        for group in sorted(groups, key=lambda group: group.id):
            if options.has("members"):
                _print_members(group, options.has("verbose"))
            elif options.has("state"):
                self._print_state(group, options.has("verbose"))
            else:
                rows = await self._rows(group)
                if _is_worth_printing(group, len(rows)):
                    _print_offsets(group.id, rows, options.has("verbose"))

    async def _rows(self, group: _Group) -> list[_Row]:
        committed = await self._committed(group.id)
        assigned = {place for member in group.members for place in member.assigned}
        ends = await self._ends({*committed, *assigned})
        rows: list[_Row] = []
        holders = [member for member in group.members if member.assigned]
        for member in sorted(holders, key=lambda member: -len(member.assigned)):
            rows += (
                _Row(
                    place,
                    committed.get(place),
                    ends[place],
                    member.id,
                    member.host,
                    member.client_id,
                )
                for place in sorted(member.assigned)
            )
        rows += (
            _Row(place, committed[place], ends[place], MISSING, MISSING, MISSING)
            for place in sorted(committed)
            if place not in assigned
        )
        return rows

    async def _ends(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """None: the partition has no leader."""
        leaders = await self._leaders(places)
        found = await self._offsets_at([p for p in leaders if leaders[p] >= 0], LATEST)
        return {place: found.get(place) for place in leaders}

    async def _leaders(self, places: Iterable[Place]) -> dict[Place, int]:
        """Of those that exist. KafkaError if a topic does not."""
        wanted = list(places)
        topics = await self._session.admin.describe_topics({topic for topic, _ in wanted})
        known: dict[Place, int] = {}
        for topic in topics.values():
            if not isinstance(topic, DescribedTopic):
                raise topic
            known |= {(topic.name, each.partition): each.leader for each in topic.partitions}
        return {place: known[place] for place in wanted if place in known}

    async def _offsets_at(self, places: Sequence[Place], time: int) -> Offsets:
        """-1: there is none at this time."""
        found = await self._session.admin.list_offsets(dict.fromkeys(places, time))
        offsets: Offsets = {}
        for place, outcome in found.items():
            if isinstance(outcome, KafkaError):
                raise outcome
            offsets[place] = outcome.offset
        return offsets

    async def _committed(self, name: str) -> dict[Place, _Committed]:
        return {
            place: _Committed(offset, epoch if epoch >= 0 else None)
            for place, (offset, epoch) in (await self._groups.committed(name)).items()
        }

    def _print_state(self, group: _Group, verbose: bool) -> None:
        if not _is_worth_printing(group, 1):
            return
        host, port = self._session.client.connections.addresses[group.coordinator]
        coordinator = f"{host}:{port}  ({group.coordinator})"
        widths = (max(15, len(group.id)), max(25, len(coordinator)))
        epochs = (
            ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"),
            (_dash(group.epoch), _dash(group.target_epoch)),
        )
        rows = (
            ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
            (
                group.id,
                coordinator,
                group.assignor or MISSING,
                group.state,
                str(len(group.members)),
            ),
        )
        for (id, where, strategy, state, members), (epoch, target) in zip(
            rows, epochs, strict=True
        ):
            more = f"{epoch:<15} {target:<25} " if verbose else ""
            print(
                f"\n{id:<{widths[0]}} {where:<{widths[1]}} {strategy:<20} {state:<20} {more}{members}",
                end="",
            )
        print()

    # Deleting

    async def _delete(self) -> None:
        names = await self._named()
        outcomes = await self._session.admin.each_of(self._groups.delete, names)
        order = names_in_order(outcomes)
        failed = {name: error for name in order if (error := outcomes[name]) is not None}
        deleted = ", ".join(f"'{name}'" for name in order if name not in failed)
        if not failed:
            print(f"Deletion of requested consumer groups ({deleted}) was successful.")
            return
        _print_error("Deletion of some consumer groups failed:")
        for name, error in failed.items():
            # The broker sends no text for this error.
            text = exception_text(KafkaError(error.code))
            print(f"* Group '{name}' could not be deleted due to: {text}")
        if deleted:
            print(f"\nThese consumer groups were deleted successfully: {deleted}")

    async def _delete_offsets(self) -> None:
        group = self._options.text("group")
        outcomes: dict[Place, KafkaError | None] = {}
        places: list[Place] = []
        for text in self._options.values("topic"):
            if ":" in text:
                places += _partitions_of(text)
                continue
            topic = (await self._session.admin.describe_topics([text]))[text]
            if isinstance(topic, KafkaError):
                outcomes[text, -1] = topic
            else:
                places += ((text, each.partition) for each in topic.partitions)
        places = list(dict.fromkeys(places))
        top: ErrorCode = ErrorCode.NONE
        try:
            found = await self._groups.delete_offsets(group, places)
            outcomes |= found
            top = next((e.code for e in found.values() if e is not None), ErrorCode.NONE)
        except KafkaError as error:
            top = error.code
            outcomes |= dict.fromkeys(places, KafkaError(error.code))
        _print_deleted_offsets(group, top, outcomes)

    # Resetting

    async def _reset(self) -> None:
        names = await self._named()
        plan: dict[str, Offsets] = {}
        for name in names:
            try:
                state = (await self._described(name)).state
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                state = "Dead"
            if state not in ("Empty", "Dead"):
                _print_error(
                    f"Assignments can only be reset if the group '{name}' is inactive,"
                    f" but the current state is {state}."
                )
                plan[name] = {}
                continue
            try:
                plan[name] = await self._reset_one(name)
            except KafkaError as error:
                raise ToolError(message_of(error)) from None
        if self._options.has("export"):
            _export(plan, single=len(self._options.values("group")) == 1)
        else:
            _print_resets(plan)

    async def _reset_one(self, group: str) -> Offsets:
        places = await self._places_to_reset(group)
        leaders = await self._leaders(places)
        _refuse(places, leaders.keys(), "do not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        led = {place for place, leader in leaders.items() if leader >= 0}
        _refuse(places, led, "have no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        offsets = await self._new_offsets(group, places)
        if self._options.has("execute") and offsets:
            await self._groups.commit(group, offsets)
        return {place: offsets[place] for place in places_in_order(offsets)}

    async def _places_to_reset(self, group: str) -> list[Place]:
        if self._options.has("all-topics"):
            return places_in_order(await self._committed(group))
        if not self._options.has("topic"):
            if not self._options.has("from-file"):
                raise _WrongUse("One of the reset scopes should be defined: --all-topics, --topic.")
            return []
        places: list[Place] = []
        for text in self._options.values("topic"):
            if ":" in text:
                places += _partitions_of(text)
                continue
            topic = (await self._session.admin.describe_topics([text]))[text]
            if isinstance(topic, KafkaError):
                raise topic
            places += ((text, each.partition) for each in topic.partitions)
        return list(dict.fromkeys(places))

    async def _new_offsets(self, group: str, places: list[Place]) -> Offsets:
        options = self._options
        if options.has("to-offset"):
            return await self._in_range(dict.fromkeys(places, options.number("to-offset") or 0))
        if options.has("to-earliest"):
            return await self._offsets_at(places, EARLIEST)
        if options.has("to-latest"):
            return await self._offsets_at(places, LATEST)
        if options.has("shift-by"):
            return await self._shifted(group, places, options.number("shift-by") or 0)
        if options.has("to-datetime"):
            return await self._at_time(places, _datetime_ms(options.text("to-datetime")))
        if options.has("by-duration"):
            import time

            now_ms = int(time.time() * 1000)
            return await self._at_time(places, now_ms - _duration_ms(options.text("by-duration")))
        if options.has("from-file"):
            return await self._from_file(group, options.text("from-file"))
        if options.has("to-current"):
            committed = await self._committed(group)
            ends = await self._offsets_at([p for p in places if p not in committed], LATEST)
            return {p: committed[p].offset for p in places if p in committed} | ends
        shown = ", ".join(f"[{name}]" for name in RESETS)
        raise _WrongUse(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{shown}]"
        )

    async def _shifted(self, group: str, places: list[Place], by: int) -> Offsets:
        committed = await self._committed(group)
        for place in places:
            if place not in committed:
                raise _WrongUse(
                    f"Cannot shift offset for partition {place_text(place)}"
                    " since there is no current committed offset"
                )
        return await self._in_range({place: committed[place].offset + by for place in places})

    async def _in_range(self, wanted: Offsets) -> Offsets:
        starts = await self._offsets_at(list(wanted), EARLIEST)
        ends = await self._offsets_at(list(wanted), LATEST)
        for place, offset in wanted.items():
            side = "higher than latest" if offset > ends[place] else "lower than earliest"
            if not starts[place] <= offset <= ends[place]:
                limit = min(max(offset, starts[place]), ends[place])
                print(
                    f"WARN New offset ({offset}) is {side} offset for topic partition"
                    f" {place_text(place)}. Value will be set to {limit}",
                    file=sys.stderr,
                )
        return {p: min(max(offset, starts[p]), ends[p]) for p, offset in wanted.items()}

    async def _at_time(self, places: list[Place], time_ms: int) -> Offsets:
        found = await self._offsets_at(places, time_ms)
        late = [place for place in places_in_order(places) if found[place] < 0]
        for topic, partition in late:
            print(
                f"\nWarn: Partition {partition} from topic {topic} is empty."
                " Falling back to latest known offset."
            )
        return found | await self._offsets_at(late, LATEST)

    async def _from_file(self, group: str, path: str) -> Offsets:
        plan = _plan_in(path, group)
        if group not in plan:
            _print_error(f"No reset plan for group {group} found")
            return {}
        return await self._in_range(plan[group])


def _plan_in(path: str, group: str) -> dict[str, Offsets]:
    """Lines without a group are of this one."""
    import csv

    plan: dict[str, Offsets] = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in filter(None, csv.reader(file)):
                owner, topic, partition, offset = row if len(row) == 4 else (group, *row)
                plan.setdefault(owner, {})[topic, int(partition)] = int(offset)
    except ValueError:
        raise ToolError(f"{path}: every line must be [group,]topic,partition,offset") from None
    return plan


def _chosen(text: str | None, allowed: Sequence[str], what: str) -> set[str]:
    """In lower case; empty: all."""
    if not text:
        return set()
    chosen = {part.strip().lower() for part in text.split(",")}
    if not chosen <= {each.lower() for each in allowed}:
        raise _WrongUse(
            f"Invalid {what} list '{text}'. Valid {what if what == 'types' else 'states'} are:"
            f" {', '.join(allowed)}"
        )
    return chosen


def _dash(value: int | None) -> str:
    return MISSING if value is None else str(value)


def _consumer_group(found: Any, coordinator: int) -> _Group:
    def places(assignment: Any) -> tuple[Place, ...]:
        return tuple(
            (topic.topic_name, int(number))
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )

    def member(each: Any) -> _Member:
        kind = getattr(each, "member_type", -1)
        return _Member(
            each.member_id,
            each.instance_id or "",
            each.client_host,
            each.client_id,
            places(each.assignment),
            places(each.target_assignment),
            int(each.member_epoch),
            None if kind < 0 else bool(kind),
        )

    return _Group(
        found.group_id,
        found.group_state,
        found.assignor_name,
        coordinator,
        tuple(member(each) for each in found.members),
        int(found.group_epoch),
        int(found.assignment_epoch),
    )


def _classic_group(found: Any, coordinator: int) -> _Group:
    members = tuple(
        _Member(
            each.member_id,
            getattr(each, "group_instance_id", None) or "",
            each.client_host,
            each.client_id,
            classic_assignment(bytes(each.member_assignment)),
            (),
            None,
            None,
        )
        for each in found.members
    )
    return _Group(
        found.group_id, found.group_state, found.protocol_data, coordinator, members, None, None
    )


def _is_worth_printing(group: _Group, rows: int) -> bool:
    if group.state == "Dead":
        _print_error(f"Consumer group '{group.id}' does not exist.")
        return False
    if group.state == "Empty":
        print(f"\nConsumer group '{group.id}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.id}' is rebalancing.", file=sys.stderr)
    return rows > 0


def _print_offsets(group: str, rows: Sequence[_Row], verbose: bool) -> None:
    topics = max([15, *(len(row.place[0]) for row in rows)])
    members = max([15, *(len(row.member) for row in rows)])
    hosts = max([15, *(len(row.host) for row in rows)])
    lines = [
        (
            (
                "GROUP",
                "TOPIC",
                "PARTITION",
                "LEADER-EPOCH",
                "CURRENT-OFFSET",
                "LOG-END-OFFSET",
                "LAG",
            ),
            ("CONSUMER-ID", "HOST", "CLIENT-ID"),
        )
    ]
    for row in rows:
        done = row.committed
        lag = None if done is None or row.end is None else row.end - done.offset
        numbers = (
            group,
            row.place[0],
            str(row.place[1]),
            _dash(None if done is None else done.leader_epoch),
            _dash(None if done is None else done.offset),
            _dash(row.end),
            _dash(lag),
        )
        lines.append((numbers, (row.member, row.host, row.client_id)))
    for (id, topic, partition, epoch, offset, end, lag_text), (member, host, client) in lines:
        epochs = f"{epoch:<15} " if verbose else ""
        print(
            f"\n{id:<{max(15, len(group))}} {topic:<{topics}} {partition:<10} {epochs}{offset:<15}"
            f" {end:<15} {lag_text:<15} {member:<{members}} {host:<{hosts}} {client}",
            end="",
        )
    print()


def _print_members(group: _Group, verbose: bool) -> None:
    members = group.members if _is_worth_printing(group, len(group.members)) else ()
    with_instance = any(member.instance_id for member in members)
    mixed = {True, False} <= {member.upgraded for member in members}

    def width(least: int, texts: Iterable[str]) -> int:
        return max([least, *map(len, texts)])

    groups = width(15, [group.id] if members else [])
    ids = width(15, (member.id for member in members))
    instances = width(17, (member.instance_id for member in members))
    hosts = width(15, (member.host for member in members))
    clients = width(15, (member.client_id for member in members))
    current = width(20, (_assignment(member.assigned) for member in members))
    target = width(20, (_assignment(member.target) for member in members))

    def line(cells: Sequence[str], more: Sequence[str]) -> str:
        id, member, instance, host, client, count = cells
        shown = f" {instance:<{instances}}" if with_instance else ""
        text = f"{id:<{groups}} {member:<{ids}}{shown} {host:<{hosts}} {client:<{clients}} {count:<15} "
        if verbose:
            text += f"{more[0]:<15} {more[1]:<{current}} {more[2]:<15} {more[3]:<{target}}"
            text += f" {more[4]}" if mixed else ""
        return text

    headers = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
    details = (
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
        "UPGRADED",
    )
    print("\n" + line(headers, details))
    for member in group.members:
        count = str(len(member.assigned))
        cells = (group.id, member.id, member.instance_id, member.host, member.client_id, count)
        more = (
            _dash(member.epoch),
            _assignment(member.assigned),
            _dash(group.target_epoch),
            _assignment(member.target),
            MISSING if member.upgraded is None else str(member.upgraded).lower(),
        )
        print(line(cells, more))


def _assignment(places: Sequence[Place]) -> str:
    """`a:0,1;b:0`"""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    parts = (f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())
    return ";".join(sorted(parts)) or MISSING


def _partitions_of(text: str) -> list[Place]:
    """`topic:0,1`"""
    parts = text.split(":")
    if len(parts) != 2:
        raise _WrongUse(f"Invalid topic arg '{text}', expected topic name and partitions")
    places: list[Place] = []
    for partition in parts[1].split(","):
        if not partition.isdigit():
            raise _WrongUse(f"Invalid partition '{partition}' specified in topic arg '{text}''")
        places.append((parts[0], int(partition)))
    return places


def _refuse(places: Sequence[Place], good: Iterable[Place], why: str, code: ErrorCode) -> None:
    allowed = set(good)
    bad = [place for place in places if place not in allowed]
    if bad:
        raise KafkaError(code, f'The partitions "{",".join(map(place_text, bad))}" {why}')


def _print_deleted_offsets(
    group: str, top: ErrorCode, outcomes: dict[Place, KafkaError | None]
) -> None:
    if top is ErrorCode.NONE:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif top in (
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    ):
        _print_error(EXCEPTIONS[top][1])
    elif top in (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        _print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        _print_error(f"Encountered some unknown error: {top.name}")
    width = max([15, *(len(topic) for topic, _ in outcomes)])
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", end="")
    for place in sorted(outcomes, key=lambda place: f"{place[0]}{place[1]}"):
        error = outcomes[place]
        status = "Successful" if error is None else f"Error: {exception_text(error)}"
        number = str(place[1]) if place[1] >= 0 else MISSING
        print(f"\n{place[0]:<{width}} {number:<10} {status:<15}", end="")
    print()


def _print_resets(plan: dict[str, Offsets]) -> None:
    groups = max([15, *map(len, plan)])
    topics = max([15, *(len(topic) for offsets in plan.values() for topic, _ in offsets)])
    if plan:
        print(f"\n{'GROUP':<{groups}} {'TOPIC':<{topics}} {'PARTITION':<10} NEW-OFFSET", end="")
    for group in names_in_order(plan):
        for (topic, partition), offset in plan[group].items():
            print(f"\n{group:<{groups}} {topic:<{topics}} {partition:<10} {offset}", end="")
    print()


def _export(plan: dict[str, Offsets], *, single: bool) -> None:
    for group in names_in_order(plan):
        for (topic, partition), offset in plan[group].items():
            owner = "" if single else f"{_csv(group)},"
            print(f"{owner}{_csv(topic)},{partition},{offset}")
    print()


def _csv(text: str) -> str:
    """Quoted as Jackson quotes: whatever is long, or has a character that comes before the minus."""
    if len(text) <= CSV_CHECKED_LENGTH and all(character >= "-" for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _datetime_ms(text: str) -> int:
    from datetime import UTC, datetime

    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d(:?\d\d)?)?", text) is None:
        raise ToolError(f'java.text.ParseException: Unparseable date: "{text}"')
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ToolError(f'java.text.ParseException: Unparseable date: "{text}"') from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _duration_ms(text: str) -> int:
    match = re.fullmatch(
        r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d+)?)S)?)?",
        text.upper(),
    )
    if match is None or not any(match.groups()[1:]):
        raise ToolError("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds = match.groups()
    total = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    milliseconds = total * 1000 + round(float(seconds or 0) * 1000)
    return -milliseconds if sign == "-" else milliseconds
