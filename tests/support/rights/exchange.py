"""A request, the rights that it needs, and what is answered with all of them and without each: the words of the table in which every
row of `security.needs` is tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from ottla.security.operations import CLUSTER_NAME, ResourceType
from ottla.security.operations import AclOperation as O
from ottla.wire import schema
from ottla.wire.apis import APIS, ApiKey

Fields = Mapping[str, Any]
Given = tuple[ResourceType, str, O]
Outcome = Mapping[str, object]
"""What an answer says: by the path of a field its value, or several in order. Of error codes only those that are errors, and of
other fields those that the exchange looks at. One of several parts has its name behind the path: `topics[orders].error_code`."""


_NAMES_OF_PARTS: Final = (
    "name",
    "topic",
    "topic_id",
    "group_id",
    "key",
    "resource_name",
    "transactional_id",
)


class Listener(Enum):
    BROKER = "broker"
    CONTROLLER = "controller"


class Known(Enum):
    """What only the running cluster knows. It stands in requests, and in outcomes, for the value."""

    TOPIC_ID = "the id of TOPIC"
    OTHER_ID = "the id of OTHER_TOPIC"
    NODE = "the id of the node that is asked"
    NODE_NAME = "the same as a text"
    TOKEN = "the secret of OWNER's token"


class Lack(NamedTuple):
    right: Given
    outcome: Outcome
    """What is answered to whoever lacks this right."""
    kafka: Outcome | None = None
    """What Kafka answers, if it differs on purpose."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    key: ApiKey
    fields: Fields
    at: tuple[Listener, ...]
    when: str
    """The form of the request in `security.needs`; empty if nothing is needed."""
    lacks: tuple[Lack, ...]
    """In the order in which the rights are looked at. Who has all of them is served."""
    served: Outcome
    served_by_kafka: Outcome | None
    looks_at: tuple[str, ...]
    version: int
    client_id: str
    are_apart: bool
    """Each right is about an element of its own. What is said of one does not depend on the others."""
    user: str | None
    """Who asks, if it is not enough that they have the rights."""

    def __str__(self) -> str:
        rights = "+".join(lack.right[2].name for lack in self.lacks) or self.user or "anybody"
        return f"{self.key.name} v{self.version} {self.when} {rights}".replace("  ", " ")

    def right_sets(self) -> Iterator[tuple[frozenset[Given], Outcome, Outcome]]:
        """Each set of rights that is tried, with what is expected of ottla and of Kafka: for each right those before it, then all
        others, and at last all."""
        rights = [lack.right for lack in self.lacks]
        for number, lack in enumerate(self.lacks):
            kafka = lack.outcome if lack.kafka is None else lack.kafka
            before, others = rights[:number], rights[:number] + rights[number + 1 :]
            for held in (others,) if self.are_apart or before == others else (before, others):
                yield frozenset(held), lack.outcome, kafka
        kafka = self.served if self.served_by_kafka is None else self.served_by_kafka
        yield frozenset(rights), self.served, kafka

    def is_served_by_ottla(self, listener: Listener) -> bool:
        api = APIS.get(self.key)
        if api is None:
            return False
        return api.on_broker if listener is Listener.BROKER else api.on_controller


def outcome(answer: Any, looks_at: tuple[str, ...], known: Mapping[Known, object]) -> Outcome:
    values_of: dict[str, dict[object, None]] = {}
    names: dict[object, Known] = {
        known[each]: each for each in (Known.TOPIC_ID, Known.OTHER_ID) if each in known
    }

    def look(value: Any, path: str, path_with_names: str) -> None:
        if isinstance(value, tuple):
            for each in value:
                name = _name(each, names) if len(value) > 1 else ""
                look(each, path, f"{path_with_names}[{name}]" if name else path_with_names)
        elif dataclasses.is_dataclass(value):
            for name in (each.name for each in dataclasses.fields(value)):
                dot = "." if path else ""
                look(getattr(value, name), f"{path}{dot}{name}", f"{path_with_names}{dot}{name}")
        elif path.endswith("error_code"):
            if int(value):
                values_of.setdefault(path_with_names, {})[int(value)] = None
        elif path in looks_at:
            values_of.setdefault(path, {})[names.get(value, value) if value else value] = None

    look(answer, "", "")
    return {
        path: next(iter(values)) if len(values) == 1 else tuple(sorted(values, key=str))
        for path, values in values_of.items()
    }


def _name(part: Any, names: Mapping[object, Known]) -> str:
    """Of what a part of an answer is about."""
    for name in _NAMES_OF_PARTS:
        value = getattr(part, name, None)
        if value in names:
            return names[value].name
        if isinstance(value, str):
            return value
    return ""


def filled(value: Any, known: Mapping[Known, object]) -> Any:
    """A request, with what only the running cluster knows."""
    if isinstance(value, Known):
        return known[value]
    if isinstance(value, Mapping):
        return {name: filled(each, known) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, known) for each in value]
    return value


# `stage` makes what there is.

TOPIC, OTHER_TOPIC, ABSENT = "orders", "salaries", "absent"
GROUP: Final = "billing"
"""It has committed offsets of both topics. Whoever has no right to the other one must not see that."""
OLD_GROUPS: Final = ("over", "old")
"""The same. One is deleted, and the offsets of the other."""
MEMBERS, MEMBER = "members", "member"
"""A group with a member that reads TOPIC."""
SUBSCRIBED: Final = "subscribed"
"""Another one, for members that come."""
TXN: Final = "payments"
OPEN_TXN: Final = "open"
"""A transaction with both topics in it that has not ended."""
OWNER: Final = "owner"
"""Has a delegation token."""

T, G, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
X, U = ResourceType.TRANSACTIONAL_ID, ResourceType.USER
BROKER, CONTROLLER = (Listener.BROKER,), (Listener.CONTROLLER,)
BOTH = (*BROKER, *CONTROLLER)
STRANGE_CLUSTER = "another-cluster-000000"
_CODE: Final = {T: 29, G: 30, C: 31, X: 53, U: 65}


def on_cluster(operation: O) -> Given:
    return C, CLUSTER_NAME, operation


def on_topic(operation: O) -> Given:
    return T, TOPIC, operation


def on_group(operation: O, name: str = GROUP) -> Given:
    return G, name, operation


def on_transaction(operation: O, name: str = TXN) -> Given:
    return X, name, operation


ALTER, DESCRIBE = on_cluster(O.ALTER), on_cluster(O.DESCRIBE)
ACTION: Final = on_cluster(O.CLUSTER_ACTION)


BY_NAME, BY_ID = {"name": TOPIC}, {"topic_id": Known.TOPIC_ID}


def of_topics(key: ApiKey, *names: str, **partition: Any) -> list[Fields]:
    """The topics of a request: TOPIC if none is named, each with a partition of these fields, or with its number if there are none."""
    known = schema.names_of_all_versions(key, "request")["topics",]
    topics: list[Fields] = []
    for name in names or (TOPIC,):
        fields = {"name": name, "topic": name, "partitions": [0], "partition_indexes": [0]}
        topic: dict[str, Any] = {each: value for each, value in fields.items() if each in known}
        topics.append({**topic, "partitions": [partition]} if partition else topic)
    return topics


def exchange(
    key: ApiKey,
    fields: Fields,
    *rights: Given | Lack,
    at: tuple[Listener, ...] = BROKER,
    when: str = "always",
    codes: str | Mapping[ResourceType, str] = "error_code",
    served: Outcome | None = None,
    served_by_kafka: Outcome | None = None,
    looks_at: tuple[str, ...] = (),
    version: int | None = None,
    client_id: str = "client",
    are_apart: bool = False,
    user: str | None = None,
) -> Exchange:
    """`codes`: the path at which the code of a right's resource is said, if it is one path."""

    def lack(right: Given | Lack) -> Lack:
        if isinstance(right, Lack):
            return right
        path = codes if isinstance(codes, str) else codes[right[0]]
        return Lack(right, {path: _CODE[right[0]]})

    return Exchange(
        key=key,
        fields=fields,
        at=at,
        when=when if rights else "",
        lacks=tuple(lack(each) for each in rights),
        served=served or {},
        served_by_kafka=served_by_kafka,
        looks_at=looks_at,
        version=APIS[key].max_version if version is None else version,
        client_id=client_id,
        are_apart=are_apart,
        user=user,
    )
