"""`ottla top` of a cluster with 5,000 topics of three partitions, three replicas each: soon there, fluent, and cheap at rest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.cluster import OTTLA, ProcessCluster
from support.scheduling import processor_s
from support.terminal import TerminalProgram

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

TOPICS, AT_ONCE = 5_000, 500
KEYS = 200
KEY_S_MAX = 0.02
"""Of processor time, with all that goes on beside the keys."""
AT_REST_MAX = 0.15
SETTLING_S, RESTING_S = 20.0, 30.0
PAGE_DOWN = "\x1b[6~"


def test_15_000_partitions_are_scrolled_as_few_are(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "cluster", 3) as cluster:
        for first in range(0, TOPICS, AT_ONCE):
            topics = [NewTopic(f"topic-{n:04d}", 3, 3) for n in range(first, first + AT_ONCE)]
            for done in cluster.admin.create_topics(topics, request_timeout=120).values():
                done.result(120)
        cluster.wait_whole(f"topic-{TOPICS - 1:04d}", 120)
        words = (OTTLA, "top", "partitions", "-b", cluster.bootstrap)
        with TerminalProgram(*words, columns=120, rows=40) as program:
            program.wait_for("of 15,000", 60)
            time.sleep(SETTLING_S)  # it reads the event log, which has much to tell
            before = processor_s(program.pid)
            time.sleep(RESTING_S)
            at_rest = (processor_s(program.pid) - before) / RESTING_S
            print(f"at rest: {at_rest:.1%} of a core")
            before, began = processor_s(program.pid), time.monotonic()
            for number in range(KEYS):
                program.press(PAGE_DOWN)
                program.wait_for(f"to {36 + 35 * number:,} of 15,000")
            seconds = time.monotonic() - began
            key_s = (processor_s(program.pid) - before) / KEYS
            print(
                f"a key: {key_s * 1000:.1f} ms of a core, {seconds / KEYS * 1000:.1f} ms until it is seen"
            )
            program.press("/4999-2")
            assert "topic-4999-2" in program.wait_for(">topic-4999-2")
            program.press("q\x1bq")
            assert program.wait_end() == 0
        assert key_s < KEY_S_MAX, key_s
        assert at_rest < AT_REST_MAX, at_rest
