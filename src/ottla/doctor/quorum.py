"""The metadata quorum: its leader, voters that are behind, and how many there are."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.diagnosis.facts import Facts
from ottla.diagnosis.words import count
from ottla.doctor.finding import Case, FindingSeverity, HealthFinding, Rule, bootstrap, ids
from ottla.local.cluster import RUNNING

VOTER_LATE_MS = 10_000


def nobody_answers(case: Case) -> Iterator[HealthFinding]:
    why = case.facts.unknown.get("the cluster")
    if why is not None:
        yield HealthFinding(
            "nobody-answers",
            FindingSeverity.SERIOUS,
            f"no node of the cluster answers: {why}",
            "Nothing can be written or read, and only what is on this machine could be looked at.",
            case.start_all(),
        )


def quorum_has_no_leader(case: Case) -> Iterator[HealthFinding]:
    why = case.facts.unknown.get("the metadata quorum") or case.lack_of_controllers
    if "the cluster" in case.facts.unknown:
        return  # nobody answers anything: another rule says it
    # Who may not ask has no answer either: the report lists it under what could not be checked.
    if why and "AUTHORIZATION_FAILED" not in why:
        yield HealthFinding(
            "quorum-has-no-leader",
            FindingSeverity.SERIOUS,
            f"the metadata quorum does not answer: {why}",
            "Without an active controller nothing can be created or changed, and no leader is replaced"
            " when it fails.",
            case.start_all()
            if case.facts.machine is not None and case.facts.machine.nodes
            else f"kafka-metadata-quorum.sh --bootstrap-server {bootstrap(case.facts)} describe --status",
        )


def voters_behind(case: Case) -> Iterator[HealthFinding]:
    """By the leader's clock alone: its own entry is the time of the answer."""
    quorum = case.facts.quorum
    leader = _quorum_leader_time(case.facts)
    if quorum is None or leader is None:
        return
    late = [
        each.id
        for each in quorum.voters
        if each.id != quorum.leader
        and leader - each.last_caught_up_ms > VOTER_LATE_MS
        and not (each.last_caught_up_ms <= 0 and _is_alive(case, each.id))
        and not _runs_without_vote(case, each.id)
    ]
    if late:
        without = sum(_runs_without_vote(case, each.id) for each in quorum.voters)
        current = len(quorum.voters) - len(late) - without
        spare = current - (len(quorum.voters) // 2 + 1)
        yield HealthFinding(
            "voters-behind",
            FindingSeverity.SERIOUS if spare <= 0 else FindingSeverity.WARNING,
            f"{count(len(late), 'controller')} of {len(quorum.voters)} (node {ids(late)}) did not keep up"
            f" with the metadata for {VOTER_LATE_MS // 1000} s",
            f"{current} are current and {len(quorum.voters) // 2 + 1} are needed for each decision: "
            + (
                "the next failure stops all of them."
                if spare <= 0
                else f"{count(spare, 'more failure')} can be survived."
            ),
            case.start_each(late),
        )


def controller_without_vote(case: Case) -> Iterator[HealthFinding]:
    """Its disk was replaced: its vote is that of the former disk until it is given to the new one."""
    quorum = case.facts.quorum
    for each in () if quorum is None else quorum.voters:
        if _runs_without_vote(case, each.id):
            yield HealthFinding(
                "controller-without-vote",
                FindingSeverity.SERIOUS,
                f"node {each.id} runs with another disk than the one that votes in the metadata quorum, and has no vote",
                "The lost disk still counts for the majority, as a controller that is down.",
                case.ottla(f"controllers replace {each.id}"),
            )


def _runs_without_vote(case: Case, voter: int) -> bool:
    quorum = case.facts.quorum
    if quorum is None or not quorum.can_change(case.facts.features):
        return False
    found = quorum.other_disk(voter)
    silent_ms = None if found is None else quorum.silent_ms(found)
    return silent_ms is not None and silent_ms <= VOTER_LATE_MS


def _is_alive(case: Case, voter: int) -> bool:
    """Who has not caught up since the leader was elected may have started just now."""
    node = case.node(voter)
    if node is None:
        return voter in case.facts.live
    return node.state == RUNNING and not node.paused


def _quorum_leader_time(facts: Facts) -> int | None:
    quorum = facts.quorum
    times = [
        each.last_caught_up_ms
        for each in (() if quorum is None else quorum.voters)
        if quorum is not None and each.id == quorum.leader and each.last_caught_up_ms > 0
    ]
    return times[0] if times else None


def few_voters(case: Case) -> Iterator[HealthFinding]:
    quorum = case.facts.quorum
    if quorum is None or len(quorum.voters) >= 3 or len(case.facts.brokers) < 3:
        return
    yield HealthFinding(
        "few-voters",
        FindingSeverity.WARNING,
        f"{count(len(quorum.voters), 'controller')} for {len(case.facts.brokers)} brokers",
        "With one or two controllers, the failure of one stops every change of the cluster.",
        f"kafka-metadata-quorum.sh --bootstrap-server {bootstrap(case.facts)} add-controller"
        "  # or start three controllers from the beginning, as ottla up -n 3 does",
    )


RULES: tuple[Rule, ...] = (
    nobody_answers,
    quorum_has_no_leader,
    voters_behind,
    controller_without_vote,
    few_voters,
)
