"""What `scripts/suites` reads from the output of others' test runners, and how it compares two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites import librdkafka, python_clients
from suites.outcomes import Outcome, Said, compared, summary, table

PASSED = Outcome(Said.PASSED)
FAILED = Outcome(Said.FAILED, "it broke")
SKIPPED = Outcome(Said.SKIPPED, "not here")

SUMMARY = """\
[<MAIN>                      /  0.001s] 0 test(s) running
TEST 20261118040000 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[32m <MAIN>                                   |     PASSED |   1.200s \x1b[0m|
|\x1b[36m 0045_subscribe_update                    |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Cluster authentication required\x1b[0m
|\x1b[32m 0045_resubscribe_with_regex              |     PASSED |   3.201s \x1b[0m|
|\x1b[31m 0045_subscribe_many_updates              |     FAILED |  10.000s \x1b[0m|\x1b[31m test_x():12: no assignment\x1b[0m
|\x1b[36m 0045_subscribe_update_mock               |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Filtered due to negative test flags\x1b[0m
|\x1b[36m 0046_rkt_cache                           |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Filtered due to negative test flags\x1b[0m
#==================================================================#
"""


def test_librdkafkas_summary_is_read_without_the_tests_that_need_no_broker() -> None:
    assert librdkafka.outcomes_of("0045", SUMMARY) == {
        "0045_subscribe_update": Outcome(Said.SKIPPED, "Cluster authentication required"),
        "0045_resubscribe_with_regex": PASSED,
        "0045_subscribe_many_updates": Outcome(Said.FAILED, "test_x():12: no assignment"),
    }


def test_a_runner_that_ends_without_a_summary_failed() -> None:
    found = librdkafka.outcomes_of("0045", "Assertion failed\n")
    assert found["0045"].said is Said.FAILED


def test_pytests_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="test.integration.test_consumer" name="test_a[1]"/>
        <testcase classname="test.integration.test_consumer" name="test_b"><failure message="it&#10;broke"/></testcase>
        <testcase classname="test.integration.test_consumer" name="test_c"><error message="it broke"/></testcase>
        <testcase classname="test.integration.test_consumer" name="test_d"><skipped message="not here"/></testcase>
        </testsuite></testsuites>"""
    )
    assert python_clients.outcomes_of(report) == {
        "test_consumer.test_a[1]": PASSED,
        "test_consumer.test_b": FAILED,
        "test_consumer.test_c": FAILED,
        "test_consumer.test_d": SKIPPED,
    }


@pytest.mark.parametrize(
    ("plain", "secured", "differs"),
    [
        (PASSED, PASSED, False),
        (FAILED, FAILED, False),
        (PASSED, FAILED, True),
        (FAILED, PASSED, True),
        (PASSED, SKIPPED, False),
        (SKIPPED, SKIPPED, False),
        (SKIPPED, FAILED, True),
    ],
)
def test_two_runs_differ_if_one_failed_and_the_other_did_not(
    plain: Outcome, secured: Outcome, differs: bool
) -> None:
    (pair,) = compared({"a": plain}, {"a": secured})
    assert pair.differs is differs


def test_a_test_that_ran_only_once_is_left_out_and_everything_is_counted() -> None:
    pairs = compared({"a": PASSED, "b": PASSED, "c": FAILED, "d": PASSED}, {"a": PASSED, "b": FAILED, "c": FAILED})  # fmt: skip
    assert summary(pairs) == "4 tests: 1 passed in both, 1 differ, 1 failed in both, 1 left out in one or both"  # fmt: skip
    lines = table(pairs).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["a", "passed", "passed"],
        ["b", "passed", "failed"],
        ["c", "failed", "failed"],
        ["d", "passed", "skipped"],
    ]
    assert lines[2].endswith("it broke")
