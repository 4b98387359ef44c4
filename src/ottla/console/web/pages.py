"""What each page gets: which rows of the model, and what has to be asked often while somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.console.model.cluster_model import Selection
from ottla.console.model.rows import Place
from ottla.console.watch.asking import (
    GROUPS,
    MOVES,
    TOPICS,
    TRANSACTIONS,
    Interest,
    group_of,
    partition_of,
    topic_of,
)

GROUP_RINGS_MAX = 60
"""Groups whose history the list shows."""
ON_EVERY_PAGE = ("cluster", "totals", "brokers", "problems", "quorum")


class PageContent(NamedTuple):
    selections: tuple[Selection, ...]
    interests: tuple[Interest, ...] = ()


Query = Mapping[str, str]


def content_of(page: str, query: Query) -> PageContent:
    """KeyError if there is no such page, ValueError if its parameters are wrong."""
    content = _PAGES[page](query)
    base = tuple(Selection(name) for name in ON_EVERY_PAGE)
    return content._replace(selections=(*base, *content.selections))


def _all(*tables: str) -> tuple[Selection, ...]:
    return tuple(Selection(name) for name in tables)


def _overview(query: Query) -> PageContent:
    tables = ("topics", "partitions", "moves", "rates", "broker_rates", "disks", "losses")
    return PageContent(_all(*tables, "groups", "newest"))


def _partition(query: Query) -> PageContent:
    topic, number = query["topic"], int(query["partition"])
    place: Place = (topic, number)
    return PageContent(
        (
            Selection("topics", topic.__eq__),
            Selection("partitions", place.__eq__),
            Selection("offsets", place.__eq__),
            Selection("epochs", place.__eq__),
            Selection("settings", topic.__eq__),
            Selection("moves", place.__eq__),
            Selection("replicas", lambda key: key[0] == place),
            Selection("holds", lambda key: key[0] == place),
            *_all("losses", "newest"),
        ),
        (partition_of(place),),
    )


def _topic(query: Query) -> PageContent:
    topic = query["topic"]
    return PageContent(
        (
            Selection("topics", topic.__eq__),
            Selection("topic_sizes", topic.__eq__),
            Selection("topic_rates", topic.__eq__),
            Selection("settings", topic.__eq__),
            Selection("partitions", lambda place: place[0] == topic),
            Selection("offsets", lambda place: place[0] == topic),
            Selection("lags", lambda key: key[1][0] == topic),
            Selection("moves", lambda place: place[0] == topic),
            *_all("groups", "losses"),
        ),
        (topic_of(topic),),
    )


def _group(query: Query) -> PageContent:
    group = query["group"]
    return PageContent(
        (
            Selection("groups", group.__eq__),
            Selection("group_lags", group.__eq__),
            Selection("lags", lambda key: key[0] == group),
            Selection("members", lambda key: key[0] == group),
            *_all("newest"),
        ),
        (group_of(group),),
    )


def _messages(query: Query) -> PageContent:
    """Whoever has chosen a topic is told which of its partitions nobody can read."""
    chosen = Selection("partitions", lambda place: place[0] == query.get("topic"))
    return PageContent((*_all("topics", "topic_sizes"), chosen))


_PAGES: Mapping[str, Callable[[Query], PageContent]] = {
    "overview": _overview,
    "partition": _partition,
    "topics": lambda query: PageContent(_all("topics", "topic_sizes", "partitions"), (TOPICS,)),
    "topic": _topic,
    "timeline": lambda query: PageContent(_all("topics", "partitions", "losses", "newest")),
    "groups": lambda query: PageContent(_all("groups", "group_lags"), (GROUPS,)),
    "group": _group,
    "messages": _messages,
    "moves": lambda query: PageContent(_all("moves", "disks", "topics", "broker_rates"), (MOVES,)),
    "transactions": lambda query: PageContent(_all("transactions", "holds"), (TRANSACTIONS,)),
    "brokers": lambda query: PageContent(_all("disks", "broker_rates")),
    "plain": lambda query: PageContent(()),
}
