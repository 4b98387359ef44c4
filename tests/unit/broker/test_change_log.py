"""Many changes at once are a few lines of a log, and few changes are told one by one."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.replication.change_log import FEW, TOPICS_MAX, tell_of_isrs
from ottla.wire.types import TopicPartition

CAUGHT_UP = "it has caught up"


def told(caplog: pytest.LogCaptureFixture, *keys: TopicPartition) -> list[str]:
    caplog.set_level(logging.INFO)
    caplog.clear()
    tell_of_isrs([(key, (1, 2), CAUGHT_UP) for key in keys])
    return caplog.messages


def test_few_partitions_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    keys = [TopicPartition("t", number) for number in range(FEW)]
    assert told(caplog, *keys)[0] == f"ISR changed partition=t-0 isr=1,2 cause={CAUGHT_UP}"
    assert len(caplog.messages) == FEW


def test_many_partitions_of_a_topic_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    keys = [TopicPartition("t", number) for number in range(100)]
    (line,) = told(caplog, *keys)
    assert line == f"ISRs changed topic=t partitions=100 cause={CAUGHT_UP}: 100"


def test_many_topics_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    keys = [TopicPartition(f"t{number}", 0) for number in range(TOPICS_MAX + 1)]
    (line,) = told(caplog, *keys)
    assert line == f"ISRs changed topics=9 partitions=9 cause={CAUGHT_UP}: 9"
