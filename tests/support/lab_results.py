"""Results as experiments make them, for tests of the report: every kind of table, chart and timeline."""

from __future__ import annotations

from ottla.lab.results import (
    Chart,
    ExperimentResult,
    LogEntry,
    ReplicaMoment,
    Step,
    Table,
    Timeline,
)

PARTITIONS = (10, 100, 1000, 10000)


def all_kinds() -> list[ExperimentResult]:
    return [truncation(), broker_dies(), trade(), latency()]


def truncation() -> ExperimentResult:
    """Two timelines of one scenario: one loses m1, one does not."""
    return ExperimentResult(
        "lost-records",
        "What does each truncation rule lose when a leader dies before it tells its high watermark?",
        ["leader-epochs", "a-design-of-another-version"],
        "Truncating to the high watermark lost 1 acknowledged record; `leader-epochs` lost none.",
        "0..199",
        "ottla lab run lost-records --seeds 200",
        tables=[
            Table(
                "Records lost, of 200 seeds",
                ["design", "acknowledged", "lost", "share lost", "first bad seed"],
                [
                    ["hw-truncation", 123456, 1042, 0.00844, 3],
                    ["leader-epochs", 123460, 0, 0.0, None],
                ],
            )
        ],
        timelines=[_loses(), _keeps()],
        contradictions=["Document 001 says `acks=all` is enough: 1,042 records say otherwise."],
    )


def broker_dies() -> ExperimentResult:
    return ExperimentResult(
        "requests",
        "How many requests does it take to tell everybody about new leaders?",
        ["leader-epochs"],
        "v2 took 6 requests for each notification, v3 took 1, and KRaft 0.0012.",
        "0..4",
        "ottla lab run requests --seeds 5",
        tables=[
            Table(
                "Requests and time",
                ["design", "partitions", "requests", "to the last leader", "split views"],
                [
                    [name, count, count * factor, f"{0.1 + count * factor / 1000:.1f} s", split]
                    for name, factor, split in (("v1", 7, 3), ("v2", 6, 0), ("v3", 1, 0))
                    for count in PARTITIONS
                ],
            )
        ],
        charts=[
            Chart(
                "Requests after a broker died",
                "line",
                "partitions",
                "requests",
                {
                    "v1: ephemeral node": [(n, 7.0 * n) for n in PARTITIONS],
                    "v2: queue": [(n, 6.0 * n) for n in PARTITIONS],
                    "v3: direct": [(n, 1.0 * n) for n in PARTITIONS],
                    "KRaft": [(n, 3.0) for n in PARTITIONS],
                },
                log_x=True,
                log_y=True,
            ),
            Chart(
                "Requests for each notification",
                "bar",
                "",
                "requests",
                {"measured": [("v2", 6.0), ("v3", 1.0), ("KRaft", 0.0012)]},
            ),
        ],
    )


def trade() -> ExperimentResult:
    combinations = {
        f"acks={acks}, min {least}{', unclean' if unclean else ''}": [
            (88.0 + 4 * unclean - 3 * least + 5 * (acks == 1), 40.0 * unclean + 20 * (acks == 1))
        ]
        for acks in ("all", 1)
        for least in (1, 2, 3)
        for unclean in (False, True)
    }
    return ExperimentResult(
        "trade",
        "What does durability cost in availability?",
        ["leader-epochs"],
        "No combination was both always writable and without loss.",
        "0..49",
        "ottla lab run trade --seeds 50",
        charts=[
            Chart(
                "Availability against durability",
                "scatter",
                "share of time writable (%)",
                "committed records lost",
                combinations,
            ),
            Chart(
                "Lost with each combination",
                "bar",
                "combination",
                "records",
                {
                    "lost": [(name, points[0][1]) for name, points in combinations.items()],
                },
            ),
        ],
    )


def latency() -> ExperimentResult:
    return ExperimentResult(
        "latency",
        "How long does a commit take?",
        ["leader-epochs"],
        "With one slow replica the majority commits in 1.8 ms, and the ISR in 41 ms.",
        "0..19",
        "ottla lab run latency --seeds 20",
        charts=[
            Chart(
                "Commit latency",
                "line",
                "milliseconds",
                "share of commits",
                {
                    "isr": [(0.8 + at * 0.4, at / 100) for at in range(101)],
                    "majority": [(0.8 + at * 0.02, at / 100) for at in range(101)],
                },
                log_x=True,
            ),
            Chart(
                "Copies",
                "bar",
                "failures to survive",
                "replicas",
                {
                    "isr": [("1", 2.0), ("2", 3.0), ("3", 4.0)],
                    "majority": [("1", 3.0), ("2", 5.0), ("3", 7.0)],
                },
            ),
        ],
        failed_expectations=["a majority of 3 goes on after 1 failure"],
    )


M0, M1 = LogEntry(0, 0, "m0"), LogEntry(1, 0, "m1")
LOST = LogEntry(1, 0, "m1", is_lost=True)
M2 = LogEntry(1, 2, "m2")


def _loses() -> Timeline:
    steps = [
        Step(
            0.0,
            "m0 is on both replicas",
            [],
            [_leads(2, 0, [M0], 1, 1), _follows(1, 0, [M0], 1, 1)],
        ),
        Step(
            0.5,
            "a client writes m1",
            ["2 acknowledges m1 at offset 1"],
            [_leads(2, 0, [M0, M1], 2, 2, True), _follows(1, 0, [M0, M1], 1, 2, True)],
        ),
        Step(
            1.0,
            "1 restarts",
            ["1 truncates its log to its high watermark, offset 1"],
            [_leads(2, 0, [M0, M1], 2, 2), _follows(1, 0, [M0], 1, 1, True)],
        ),
        Step(
            1.25,
            "2 dies",
            ["the controller elects 1 in epoch 1"],
            [
                ReplicaMoment(2, "down", 0, [M0, M1], None, 2, True),
                _leads(1, 1, [M0, LOST], 1, 1, True),
            ],
        ),
        Step(
            2.0,
            "2 returns and a client writes m2",
            ["2 truncates to offset 1", "1 acknowledges m2 at offset 1"],
            [_follows(2, 2, [M0, M2, LOST], 2, 2, True), _leads(1, 2, [M0, M2, LOST], 2, 2, True)],
        ),
    ]
    return Timeline(
        "A leader dies <at once>",
        "hw-truncation",
        steps,
        "m1 was acknowledged, and is lost.",
        is_broken=True,
    )


def _keeps() -> Timeline:
    steps = [
        Step(
            0.0,
            "m0 is on both replicas",
            [],
            [_leads(2, 0, [M0], 1, 1), _follows(1, 0, [M0], 1, 1)],
        ),
        Step(
            0.5,
            "a client writes m1",
            ["2 acknowledges m1 at offset 1"],
            [_leads(2, 0, [M0, M1], 2, 2, True), _follows(1, 0, [M0, M1], 1, 2, True)],
        ),
        Step(
            1.25,
            "2 dies",
            ["the controller elects 1 in epoch 1"],
            [
                ReplicaMoment(2, "down", 0, [M0, M1], None, 2, True),
                _leads(1, 1, [M0, M1], 2, 2, True),
            ],
        ),
    ]
    return Timeline("A leader dies <at once>", "leader-epochs", steps, "Nothing was lost.")


def _leads(
    broker: int, epoch: int, log: list[LogEntry], watermark: int, end: int, changed: bool = False
) -> ReplicaMoment:
    return ReplicaMoment(broker, "leader", epoch, log, watermark, end, changed)


def _follows(
    broker: int, epoch: int, log: list[LogEntry], watermark: int, end: int, changed: bool = False
) -> ReplicaMoment:
    return ReplicaMoment(broker, "follower", epoch, log, watermark, end, changed)
