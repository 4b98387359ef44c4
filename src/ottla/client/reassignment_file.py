"""The JSON in which Kafka's tools write reassignments: which brokers shall hold each partition, and in which directories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.admin import Place

ANY_DIRECTORY = "any"
FORMAT_VERSION = 1

Replica = tuple[int, str, int]
"""Broker, topic, partition: the order in which Kafka's tool prints them."""
Targets = dict[Place, list[int]]


class BadReassignmentFile(ValueError):
    """A file that says nothing that could be done."""


class ReassignmentFile(NamedTuple):
    """What a file asks for, as it stands there: a partition may be named twice."""

    partitions: list[tuple[Place, list[int]]]
    directories: dict[Replica, str]

    @property
    def targets(self) -> Targets:
        return dict(self.partitions)

    def check(self) -> None:
        """BadReassignmentFile unless each partition is named once, with different brokers."""
        if not self.partitions:
            raise BadReassignmentFile("Partition reassignment list cannot be empty")
        if any(not replicas for _, replicas in self.partitions):
            raise BadReassignmentFile("Partition replica list cannot be empty")
        counts: dict[Place, int] = {}
        for place, _ in self.partitions:
            counts[place] = counts.get(place, 0) + 1
        twice = [place_text(place) for place, count in counts.items() if count > 1]
        if twice:
            raise BadReassignmentFile(
                f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}"
            )
        doubled = [
            f"{place_text(place)} contains multiple entries for"
            f" {','.join(str(id) for id in sorted({id for id in replicas if replicas.count(id) > 1}))}"
            for place, replicas in self.partitions
            if len(set(replicas)) < len(replicas)
        ]
        if doubled:
            raise BadReassignmentFile(
                f"Partition replica lists may not contain duplicate entries: {'. '.join(doubled)}"
            )


def place_text(place: Place) -> str:
    topic, partition = place
    return f"{topic}-{partition}"


def written(
    targets: Mapping[Place, Sequence[int]], directories: Mapping[Replica, str] | None = None
) -> str:
    """One line of JSON. A directory that is not given is "any"."""
    known = directories or {}
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": [
                known.get((broker, topic, partition), ANY_DIRECTORY) for broker in replicas
            ],
        }
        for (topic, partition), replicas in sorted(targets.items())
    ]
    data = {"version": FORMAT_VERSION, "partitions": partitions}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def load(path: str) -> dict[str, Any]:
    """The object in a file of this format, of either kind."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except ValueError as error:
        raise BadReassignmentFile(f"{path} is not valid JSON: {error}") from None
    except OSError:
        raise BadReassignmentFile(f"Unable to read file {path}") from None
    if not isinstance(data, dict):
        raise BadReassignmentFile("The input string is not a valid JSON")
    version = data.get("version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise BadReassignmentFile(f"Not supported version field value {version}")
    return data


def read(path: str) -> ReassignmentFile:
    data = load(path)
    found = ReassignmentFile([], {})
    try:
        for each in data.get("partitions", ()):
            place = (str(each["topic"]), int(each["partition"]))
            replicas = [int(id) for id in each["replicas"]]
            directories = [
                str(path) for path in each.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
            ]
            if len(replicas) != len(directories):
                raise BadReassignmentFile(
                    f"Size of replicas list {replicas} is different from size of log dirs list"
                    f" [{', '.join(directories)}] for partition {place_text(place)}"
                )
            found.partitions.append((place, replicas))
            found.directories.update(
                ((broker, *place), directory)
                for broker, directory in zip(replicas, directories, strict=True)
                if directory != ANY_DIRECTORY
            )
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, BadReassignmentFile):
            raise
        raise BadReassignmentFile(f"{path}: cannot be read: {error!r}") from None
    return found
