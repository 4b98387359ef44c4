"""kafka-reassign-partitions: plan, start, watch and cancel moves of replicas between brokers and directories."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client import reassignment_file
from ottla.client.admin import DescribedTopic, LogDir, Place
from ottla.client.model import Reassignment
from ottla.client.reassignment_file import (
    BadReassignmentFile,
    ReassignmentFile,
    Replica,
    Targets,
    written,
)
from ottla.client.throttled_moves import (
    DIRECTORY_RATE,
    FOLLOWER_RATE,
    LEADER_RATE,
    MoveThrottle,
    copying,
)
from ottla.controller.placement import PlaceableBroker, place
from ottla.kafka_tools.ending import ended, said
from ottla.kafka_tools.java import exception_text, message_of, names_in_order, place_text
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

RETRY_PAUSE_S = 0.1
FILE = "reassignment-json-file"
NEEDS = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": (FILE,),
    "verify": (FILE,),
    "cancel": (FILE,),
    "list": (),
}
ALLOWS = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("bootstrap-controller", "preserve-throttles", "timeout"),
    "list": ("bootstrap-controller",),
}
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and"
    " create a new partition assignment in addition to the existing one. The --additional flag can also be used"
    " to change the throttle by resubmitting the current reassignment."
)
RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is"
    " removed."
)
PARSER = OptionParser(
    "This tool helps to move topic partitions between replicas.",
    [
        Option("verify", "Verify if the reassignment completed."),
        Option("generate", "Generate a candidate partition reassignment configuration."),
        Option("execute", "Kick off the reassignment."),
        Option("cancel", "Cancel an active reassignment."),
        Option("list", "List all active partition reassignments."),
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option(FILE, "The JSON file with the partition reassignment configuration.", "file"),
        Option(
            "topics-to-move-json-file", 'Topics: {"topics": [{"topic":…}], "version":1}', "file"
        ),
        Option("broker-list", "The brokers that shall have the replicas: 0,1,2", "brokerlist"),
        Option("bootstrap-controller", "The controller to use for reassignment.", "host:port"),
        Option("disable-rack-aware", "Disable rack aware replica assignment."),
        Option("throttle", "Limit of moves between brokers, B/s.", "throttle", default="-1"),
        Option(
            "replica-alter-log-dirs-throttle",
            "Limit of moves between log directories, B/s.",
            "throttle",
            default="-1",
        ),
        Option(
            "timeout",
            "How long moves of log directories may take to begin, ms.",
            "ms",
            default="10000",
        ),
        Option("additional", "Execute this reassignment in addition to any other."),
        Option("preserve-throttles", "Do not modify broker or topic throttles."),
        Option("disallow-replication-factor-change", "Keep the number of replicas."),
    ],
)


class _Terse(ToolError):
    """Printed as it is; other errors are printed after "Error: "."""


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    action = _action(options)
    settings = properties(options.value("command-config"))

    async def work(session: ToolSession) -> int:
        try:
            await _Reassignment(session, options).run(action)
        except _Terse as error:
            print(error)
        except Exception as error:
            text = exception_text(error) if isinstance(error, KafkaError) else said(error)
            if text is None:
                raise
            print(f"Error: {text}")
        else:
            return 0
        return 1

    bootstrap = options.value("bootstrap-server") or options.text("bootstrap-controller")
    return with_cluster(bootstrap, settings, "reassign-partitions-tool", work)


def _action(options: Parsed) -> str:
    given = [action for action in NEEDS if options.has(action)]
    if len(given) != 1:
        actions = ", ".join(f"--{action}" for action in NEEDS)
        PARSER.usage(f"Command must include exactly one action: {actions}")
    (action,) = given
    servers = [options.has(name) for name in ("bootstrap-server", "bootstrap-controller")]
    if all(servers):
        PARSER.usage("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not any(servers):
        PARSER.usage("Please specify either --bootstrap-server or --bootstrap-controller")
    PARSER.require(options, *NEEDS[action])
    allowed = {action, "bootstrap-server", "command-config", *NEEDS[action], *ALLOWS[action]}
    for name, _ in options.order:
        if name not in allowed:
            PARSER.usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


class _Reassignment:
    """One run of the tool."""

    def __init__(self, session: ToolSession, options: Parsed) -> None:
        self._session = session
        self._admin = session.admin
        self._throttles = MoveThrottle(session.client)
        self._options = options

    async def run(self, action: str) -> None:
        if action == "list":
            await self._list()
        elif action == "generate":
            await self._generate()
        elif action == "verify":
            await self._verify(_read_plan(self._options.text(FILE)))
        elif action == "execute":
            await self._execute(_read_plan(self._options.text(FILE)))
        else:
            await self._cancel(_read_plan(self._options.text(FILE)))

    async def _active(self) -> dict[Place, Reassignment]:
        found = await self._session.client.reassignments()
        return {(each.topic, each.partition): each for each in found}

    async def _list(self) -> None:
        lines = []
        for place_, change in sorted((await self._active()).items()):
            adding = f" adding: {_ids(change.adding)}." if change.adding else ""
            removing = f" removing: {_ids(change.removing)}." if change.removing else ""
            lines.append(
                f"{place_text(place_)}: replicas: {_ids(change.replicas)}.{adding}{removing}"
            )
        if lines:
            print("Current partition reassignments:", *lines, sep="\n")
        else:
            print("No partition reassignments found.")

    # Planning

    async def _generate(self) -> None:
        brokers = _numbers(self._options.text("broker-list"))
        _no_duplicates(brokers, "Broker list contains duplicate entries: [{}]")
        topics = _read_topics(self._options.text("topics-to-move-json-file"))
        _no_duplicates(topics, "List of topics to reassign contains duplicate entries: [{}]")
        current = await self._replicas_of(topics)
        directories = await self._directories_of(current)
        usable = await self._usable(brokers)
        proposed: Targets = {}
        # A random start, as in Kafka: many plans of small topics must not all begin with the first broker.
        start = random.randrange(max(len(usable), 1))
        for topic in names_in_order(topics):
            places = sorted(each for each in current if each[0] == topic)
            if not places:
                continue
            placed = place(usable, len(places), len(current[places[0]]), start)
            proposed |= {(topic, number): list(each) for number, each in enumerate(placed)}
        print(f"Current partition replica assignment\n{written(current, directories)}\n")
        print(f"Proposed partition reassignment configuration\n{written(proposed, {})}")

    async def _usable(self, wanted: Sequence[int]) -> list[PlaceableBroker]:
        with_racks = not self._options.has("disable-rack-aware")
        found = [
            PlaceableBroker(broker.id, broker.rack if with_racks else None, True)
            for broker in (await self._session.client.metadata([])).brokers
            if broker.id in wanted
        ]
        rackless = sum(broker.rack is None for broker in found)
        if with_racks and rackless not in (0, len(found)):
            raise ToolError(
                "Not all brokers have rack information. Add --disable-rack-aware in command line to make"
                " replica assignment without rack information."
            )
        return found

    async def _replicas_of(self, topics: Iterable[str]) -> Targets:
        found: Targets = {}
        for name, topic in (await self._admin.describe_topics(topics)).items():
            if not isinstance(topic, DescribedTopic):
                raise KafkaError(topic.code, f"Topic {name} not found.")
            found |= {
                (topic.name, each.partition): list(each.replicas) for each in topic.partitions
            }
        return found

    async def _log_dirs(self, brokers: Iterable[int]) -> dict[int, list[LogDir]]:
        """Of those brokers that live."""
        live = {broker.id for broker in (await self._session.client.metadata([])).brokers}
        return {
            broker: await self._admin.log_dirs(broker) for broker in sorted(set(brokers) & live)
        }

    async def _directories_of(self, current: Targets) -> dict[Replica, str]:
        dirs = await self._log_dirs(broker for replicas in current.values() for broker in replicas)
        return {
            (broker, *replica.place): directory.path
            for broker, directories in dirs.items()
            for directory in directories
            for replica in directory.replicas
            if replica.place in current and not replica.future
        }

    # Starting

    async def _execute(self, plan: ReassignmentFile) -> None:
        _check_plan(plan)
        active = await self._active()
        if active and not self._options.has("additional"):
            raise _Terse(EXISTING)
        targets = plan.targets
        live = {broker.id for broker in (await self._session.client.metadata([])).brokers}
        for broker in sorted({broker for replicas in targets.values() for broker in replicas}):
            if broker not in live:
                raise ToolError(f"Unknown broker id {broker}")
        everything = await self._replicas_of({topic for topic, _ in targets})
        missing = [place_text(each) for each in sorted(targets) if each not in everything]
        if missing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"Unable to find partition: {', '.join(missing)}")
        current = {each: everything[each] for each in targets}
        shown = written(current, await self._directories_of(current))
        print(
            f"Current partition replica assignment\n\n{shown}\n\n"
            "Save this to use as the --reassignment-json-file option during rollback"
        )
        await self._throttle(plan, active, current)
        keep_factor = self._options.has("disallow-replication-factor-change")
        outcomes = await self._admin.reassign(targets, keep_factor=keep_factor)
        _raise_failed("Error reassigning partition(s):", outcomes)
        print(
            f"Successfully started partition reassignment{_s(targets)} for"
            f" {','.join(map(place_text, sorted(targets)))}"
        )
        if plan.directories:
            await self._move(plan.directories)

    async def _throttle(
        self, plan: ReassignmentFile, active: Mapping[Place, Reassignment], current: Targets
    ) -> None:
        rate = self._options.number("throttle") or 0
        directory_rate = self._options.number("replica-alter-log-dirs-throttle") or 0
        if rate < 0 and directory_rate < 0:
            return
        print(RUN_VERIFY)
        if rate >= 0:
            moves = copying(plan.targets, active, current)
            await self._throttles.name_replicas(moves)
            involved = {b for move in moves.values() for b in move.sources | move.destinations}
            await self._throttles.limit(involved, rate)
            print(f"The inter-broker throttle limit was set to {rate} B/s")
        if directory_rate >= 0:
            brokers = {broker for broker, _, _ in plan.directories}
            await self._throttles.limit(brokers, directory_rate, (DIRECTORY_RATE,))
            print(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")

    async def _move(self, moves: Mapping[Replica, str]) -> None:
        """A replica that is only now being moved to a broker is there later. Until then it is asked again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._options.number("timeout") or 0) / 1000
        pending = dict(moves)
        while True:
            for replica in await self._started(pending):
                broker, topic, partition = replica
                print(
                    f"Successfully started moving log directory to {pending.pop(replica)} for replica"
                    f" {topic}-{partition} with broker {broker} "
                )
            if not pending:
                return
            if loop.time() >= deadline:
                names = ",".join(map(_replica_text, sorted(pending)))
                raise _Terse(
                    f"Timed out before log directory move{_s(pending)} could be started for: {names}"
                )
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _started(self, pending: Mapping[Replica, str]) -> list[Replica]:
        started: list[Replica] = []
        for broker in sorted({broker for broker, _, _ in pending}):
            targets = {(t, p): path for (id, t, p), path in pending.items() if id == broker}
            for place_, error in sorted(
                (await self._admin.move_to_log_dirs(broker, targets)).items()
            ):
                replica = (broker, *place_)
                if error is None:
                    started.append(replica)
                elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                    raise ToolError(f"Failed to alter dir for {_replica_text(replica)}")
        return started

    # Watching

    async def _verify(self, plan: ReassignmentFile) -> None:
        active = await self._active()
        topics = {topic for (topic, number) in plan.targets if (topic, number) not in active}
        found = await self._admin.describe_topics(topics)
        print("Status of partition reassignment:")
        for place_, wanted in sorted(plan.targets.items()):
            print(_state_of(place_, wanted, found.get(place_[0]), place_ in active))
        states = await self._move_states(plan.directories)
        print("\n".join(text for _, (text, _) in sorted(states.items())))
        moving = any(is_active for _, is_active in states.values())
        if not active and not moving and not self._options.has("preserve-throttles"):
            await self._clear_throttles(plan)

    async def _move_states(self, moves: Mapping[Replica, str]) -> dict[Replica, tuple[str, bool]]:
        """In words, and whether the move goes on."""
        dirs = await self._log_dirs(broker for broker, _, _ in moves)
        states: dict[Replica, tuple[str, bool]] = {}
        for replica, target in moves.items():
            broker, topic, partition = replica
            at = {
                each.future: directory.path
                for directory in dirs.get(broker, ())
                for each in directory.replicas
                if each.place == (topic, partition)
            }
            states[replica] = _move_state(replica, target, at.get(False), at.get(True))
        return states

    async def _clear_throttles(self, plan: ReassignmentFile) -> None:
        brokers = {broker.id for broker in (await self._session.client.metadata([])).brokers}
        brokers |= {broker for _, replicas in plan.partitions for broker in replicas}
        print(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(sorted(brokers))}")
        names = (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)
        await self._throttles.limit(brokers, None, names)
        topics = names_in_order(topic for (topic, _), _ in plan.partitions)
        print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
        await self._throttles.clear((), topics)

    # Cancelling

    async def _cancel(self, plan: ReassignmentFile) -> None:
        active = await self._active()
        moving = sorted(
            each
            for each in plan.targets
            if each in active and (active[each].adding or active[each].removing)
        )
        if moving:
            outcomes = await self._admin.reassign(dict.fromkeys(moving))
            failed = sum(error is not None for error in outcomes.values())
            plural = "" if failed == 1 else "s"
            _raise_failed(f"Error cancelling partition reassignment{plural} for:", outcomes)
            print(
                f"Successfully cancelled partition reassignment{_s(moving)} for:"
                f" {','.join(map(place_text, moving))}"
            )
        else:
            print("None of the specified partition reassignments are active.")
        states = await self._move_states(plan.directories)
        if any(is_active for _, is_active in states.values()):
            active_moves = [replica for replica, (_, is_active) in states.items() if is_active]
            current = await self._directories_of({(t, p): [b] for b, t, p in active_moves})
            await self._move({replica: current[replica] for replica in active_moves})
        else:
            # Kafka's tool, too, prints no end of this line.
            print("None of the specified partition moves are active.", end="")
        if not self._options.has("preserve-throttles"):
            await self._clear_throttles(plan)


def _s(things: Any) -> str:
    return "" if len(things) == 1 else "s"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _replica_text(replica: Replica) -> str:
    broker, topic, partition = replica
    return f"{topic}-{partition}-{broker}"


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ToolError(f'For input string: "{text}"') from None


def _no_duplicates(things: Sequence[Any], complaint: str) -> None:
    twice = [each for each in dict.fromkeys(things) if things.count(each) > 1]
    if twice:
        raise ToolError(complaint.format(", ".join(map(str, twice))))


def _raise_failed(headline: str, outcomes: Mapping[Place, KafkaError | None]) -> None:
    failed = {each: error for each, error in sorted(outcomes.items()) if error is not None}
    if failed:
        lines = (f"{place_text(each)}: {message_of(error)}" for each, error in failed.items())
        raise _Terse("\n".join([headline, *lines]))


def _state_of(
    place_: Place, wanted: Sequence[int], topic: DescribedTopic | KafkaError | None, active: bool
) -> str:
    name = place_text(place_)
    if active:
        return f"Reassignment of partition {name} is still in progress."
    if isinstance(topic, KafkaError) and topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic
    partitions = topic.partitions if isinstance(topic, DescribedTopic) else ()
    replicas = next((list(p.replicas) for p in partitions if p.partition == place_[1]), [])
    if replicas == list(wanted):
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is {_ids(replicas)}"
        f" rather than {_ids(wanted)}."
    )


def _move_state(
    replica: Replica, target: str, current: str | None, future: str | None
) -> tuple[str, bool]:
    broker, topic, partition = replica
    name = f"{topic}-{partition}"
    if current is None:
        return (
            f"Partition {name} cannot be found in any live log directory on broker {broker}.",
            False,
        )
    if future is None:
        if current == target:
            done = f"Reassignment of replica {_replica_text(replica)} completed successfully."
            return done, False
        return (
            f"Partition {name} on broker {broker} is not being moved from log dir {current} to {target}.",
            False,
        )
    if future == target:
        return f"Reassignment of replica {_replica_text(replica)} is still in progress.", True
    return (
        f"Partition {name} on broker {broker} is being moved to log dir {future} instead of {target}.",
        True,
    )


# Files


def _load(path: str) -> dict[str, Any]:
    try:
        return reassignment_file.load(path)
    except BadReassignmentFile as error:
        raise ToolError(str(error)) from None


def _read_topics(path: str) -> list[str]:
    data = _load(path)
    try:
        return [str(each["topic"]) for each in data.get("topics", ())]
    except (TypeError, KeyError):
        raise ToolError(f'{path}: "topics" is not a list of {{"topic": …}}') from None


def _read_plan(path: str) -> ReassignmentFile:
    try:
        return reassignment_file.read(path)
    except BadReassignmentFile as error:
        raise ToolError(str(error)) from None


def _check_plan(plan: ReassignmentFile) -> None:
    try:
        plan.check()
    except BadReassignmentFile as error:
        raise ToolError(str(error)) from None
