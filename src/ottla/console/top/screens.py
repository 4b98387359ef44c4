"""All screens by name."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.console.top.brokers import BrokerList
from ottla.console.top.events import EventList
from ottla.console.top.groups import GroupList, GroupPage
from ottla.console.top.pages import EventPage, ExplanationPage, HelpPage, ProblemPage
from ottla.console.top.partition_page import PartitionPage
from ottla.console.top.partitions import PartitionList
from ottla.console.top.screen import Screen
from ottla.console.top.topics import TopicList
from ottla.console.top.views import TopState, View
from ottla.console.top.wrong import ProblemList

TABS = ("brokers", "partitions", "groups", "topics", "events", "wrong")
SCREENS: Mapping[str, Screen] = {
    each.name: each
    for each in (
        BrokerList(),
        PartitionList(),
        GroupList(),
        TopicList(),
        EventList(),
        ProblemList(),
        GroupPage(),
        PartitionPage(),
        EventPage(),
        ProblemPage(),
        ExplanationPage(),
        HelpPage(),
    )
}


def beginning(tab: str = TABS[0]) -> TopState:
    return TopState(tuple(map(View, TABS)), TABS.index(tab))


def screen_of(state: TopState) -> Screen:
    return SCREENS[state.view.screen]
