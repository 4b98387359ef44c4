"""Both sides of a conversation, running: ottla's node and Apache Kafka's, with the same settings.

python -m support.differential.run FIRST_SEED NUMBER      in tests/, to look at differences by hand
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.config.values import STANDARD_AUTHORIZER
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import ProcessCluster, wait_until
from support.differential.answers import Difference, compared
from support.differential.conversations import (
    ODD_SHARE,
    At,
    Conversation,
    Step,
    versions_of_both,
)
from support.differential.known import decided
from support.differential.peer import Side
from support.kafka_server import kafka_instead

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # the records are old
    "ottla.event.log.enable": "false",
    "ottla.audit.topic": "",
    "authorizer.class.name": STANDARD_AUTHORIZER,  # whoever asks may do everything
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "differential",
}
READY_S_MAX: Final = 60
READY: Final = "d0-ready"
"""A group and a transactional id, of a conversation that nobody tells."""
LATER_S_MAX: Final = 2
LOOKS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""After a difference here the conversation goes on: nothing was changed."""
UNSETTLED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Exchange(NamedTuple):
    """One request, what each side answered, and where the answers differ."""

    seed: int
    number: int
    step: Step
    ottla: Any
    kafka: Any
    differences: list[Difference]

    @property
    def undecided(self) -> list[Difference]:
        api = self.step.key.name
        return [each for each in self.differences if decided(api, each) is None]


@contextmanager
def both(directory: Path) -> Iterator[tuple[Side, Side]]:
    """(ottla, Kafka), each alone in its cluster, with its coordinators ready."""
    ours = ProcessCluster(directory / "ottla", 1, SETTINGS)
    theirs = ProcessCluster(directory / "kafka", 1, SETTINGS)
    with ours, theirs:
        theirs.stop(1)  # our node made its directory
        with kafka_instead(theirs):
            yield from _ready(ours, theirs)


@contextmanager
def both_controllers(directory: Path) -> Iterator[tuple[Side, Side]]:
    """The same at their controllers' listeners."""
    ours = ProcessCluster(directory / "ottla", 1, SETTINGS)
    theirs = ProcessCluster(directory / "kafka", 1, SETTINGS)
    with ours, theirs:
        theirs.stop(1)
        with kafka_instead(theirs):
            ports = [each.nodes[1].controller_port for each in (ours, theirs)]
            sides = [Side(port, At.CONTROLLER) for port in ports if port is not None]
            try:
                yield sides[0], sides[1]
            finally:
                for side in sides:
                    side.close()


def _ready(ours: ProcessCluster, theirs: ProcessCluster) -> Iterator[tuple[Side, Side]]:
    sides = Side(ours.nodes[1].port), Side(theirs.nodes[1].port)
    for side in sides:
        wait_until(partial(_is_ready, side), READY_S_MAX, "coordinators")
    try:
        yield sides
    finally:
        for side in sides:
            side.close()


def _is_ready(side: Side) -> bool:
    """Both internal topics are there, and their coordinators have read them."""
    described = side.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [READY]}).groups[0]
    began = side.ask(
        ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": READY, "transaction_timeout": 1000}
    )
    for key_type in (0, 1):
        side.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": [READY]})
    return int(described.error_code) == int(began.error_code) == 0


def versions(kafka: Side, at: At = At.BROKER) -> dict[ApiKey, range]:
    fields = {"client_software_name": "differential", "client_software_version": "1"}
    answer = kafka.ask(ApiKey.API_VERSIONS, 3, fields)
    return versions_of_both(
        {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}, at
    )


def converse(ottla: Side, kafka: Side, conversation: Conversation) -> Iterator[Exchange]:
    """Until its end, or until one side has done what the other has not: everything after that would differ, too."""
    for side in (ottla, kafka):
        side.begin(conversation.is_others)
    try:
        yield from _exchanges(ottla, kafka, conversation)
    finally:
        if conversation.at is At.CONTROLLER:
            for side in (ottla, kafka):
                side.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": conversation.broker_id})


def _exchanges(ottla: Side, kafka: Side, conversation: Conversation) -> Iterator[Exchange]:
    for number, step in enumerate(conversation.steps()):
        exchange = _exchanged(ottla, kafka, conversation.seed, number, step)
        yield exchange
        if step.key not in LOOKS and any(_parts(step, each) for each in exchange.differences):
            return


def _exchanged(ottla: Side, kafka: Side, seed: int, number: int, step: Step) -> Exchange:
    """What was changed a moment ago may reach the one side's broker later than the other's: then the later one is asked again,
    and who only looks asks both."""
    say = _settled if step.is_settled else Side.tell
    # At the same time: what lasts on one side must not make the other late.
    with ThreadPoolExecutor(2) as both_at_once:
        said: list[Any] = list(both_at_once.map(lambda side: say(side, step), (ottla, kafka)))
    deadline = time.monotonic() + LATER_S_MAX
    while True:
        differences = list(compared(step.key.name, *said))
        exchange = Exchange(seed, number, step, said[0], said[1], differences)
        late = [UNSETTLED & set(_codes(each)) for each in said]
        again = [_looks(step) or bool(late[one] - late[1 - one]) for one in (0, 1)]
        if not exchange.undecided or not any(again) or time.monotonic() > deadline:
            return exchange
        time.sleep(0.02)
        for one, side in enumerate((ottla, kafka)):
            if again[one]:
                said[one] = side.tell(step)


def _looks(step: Step) -> bool:
    """Whether the request changes nothing."""
    return step.key in LOOKS or (
        step.key is ApiKey.FETCH and step.fields.get("session_epoch", -1) < 0
    )


def _parts(step: Step, difference: Difference) -> bool:
    found = decided(step.key.name, difference)
    return found is None or found.parts


def _settled(side: Side, step: Step) -> Any:
    """A topic that was made just now may need a moment until it is led, a transaction until it has ended."""
    return wait_until(lambda: _unless_unsettled(side.tell(step)), READY_S_MAX, f"{step} settled")


def _unless_unsettled(answer: Any) -> Any:
    is_ending = any(
        str(each.get("transaction_state", "")).startswith("Prepare")
        for each in (answer.get("transaction_states", ()) if isinstance(answer, dict) else ())
    )
    return None if is_ending or UNSETTLED & set(_codes(answer)) else answer


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            yield from _codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _codes(each)


def main() -> None:
    first, number = int(sys.argv[1]), int(sys.argv[2])
    odd_share = float(sys.argv[3]) if len(sys.argv) > 3 else ODD_SHARE
    exchanges = 0
    kinds: Counter[tuple[str, str, str, str]] = Counter()
    examples: dict[tuple[str, str, str, str], Exchange] = {}
    at = At.CONTROLLER if "controller" in sys.argv else At.BROKER
    begin = both_controllers if at is At.CONTROLLER else both
    with tempfile.TemporaryDirectory() as directory, begin(Path(directory)) as (ottla, kafka):
        known = versions(kafka, at)
        for seed in range(first, first + number):
            for exchange in converse(ottla, kafka, Conversation(seed, known, odd_share, at)):
                exchanges += 1
                for each in exchange.undecided:
                    kind = _kind(exchange, each)
                    kinds[kind] += 1
                    examples.setdefault(kind, exchange)
    for kind, count in sorted(kinds.items()):
        found = examples[kind]
        print(f"{count} x {' | '.join(kind)}")
        print(f"    seed {found.seed} exchange {found.number} v{found.step.version}")
        print(f"    request {found.step.fields!r:.900}")
        print(f"    ottla   {found.ottla!r:.900}")
        print(f"    kafka   {found.kafka!r:.900}")
    print(
        f"{exchanges} exchanges, {sum(kinds.values())} undecided differences of {len(kinds)} kinds"
    )


def _kind(exchange: Exchange, difference: Difference) -> tuple[str, str, str, str]:
    """Without what tells one conversation from another."""

    def common(value: Any) -> str:
        return re.sub(r"\bd\d+-", "d-", f"{value!r:.80}")

    return (
        exchange.step.key.name,
        difference.path,
        common(difference.ottla),
        common(difference.kafka),
    )


if __name__ == "__main__":
    main()
