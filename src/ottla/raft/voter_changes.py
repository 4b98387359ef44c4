"""Changes of the voters (KIP-853), as their leader makes them.

A change is a control record with the whole new set. A set counts as soon as it is in a log, committed or not, and counts no
longer if it is truncated (see `Journal.voters`). That is safe as long as every majority of a set has a member in every
majority of the next one. So

- a change adds one voter, or removes one; to replace a voter is two changes;
- it begins only when the one before it is committed, and a record of the leader's own epoch too. Otherwise a former leader
  might still commit a set that differs from ours by two voters.

A voter is added only when it has nearly all of the log, because the next commits may need it. A leader that is removed leads
until its removal is committed (`LeaderState.is_removed`).
"""

from __future__ import annotations

import math
from typing import Final

from ottla.raft.journal import Journal
from ottla.raft.kraft_version_upgrade import KRaftVersionUpgrade
from ottla.raft.messages import (
    AddVoter,
    AskVersions,
    RemoveVoter,
    UpdateVoter,
    VersionsAnswer,
    VoterChangeAnswer,
)
from ottla.raft.outputs import Outputs, Send
from ottla.raft.replication import LeaderState
from ottla.raft.roles import Timing
from ottla.raft.voters import QuorumEndpoint, Voter
from ottla.wire.errors import ErrorCode

RECONFIGURABLE_FROM: Final = 1
"""The kraft.version from which voters can change."""


class VoterChange:
    """A change that somebody waits for."""

    def __init__(self, request: AddVoter | RemoveVoter, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.answer: VoterChangeAnswer | None = None
        """None until it is known."""
        self.newcomer: Voter | None = None
        """The voter to add, once it has said which versions it supports."""
        self.offset: int | None = None
        """Where the new voters are in the log."""

    def finish(self, error: ErrorCode, message: str | None = None) -> None:
        if self.answer is None:
            self.answer = VoterChangeAnswer(error, message)


def refused(request: AddVoter | RemoveVoter, error: ErrorCode, message: str) -> VoterChange:
    change = VoterChange(request, math.inf)
    change.finish(error, message)
    return change


class VoterChanges:
    """They exist while a node leads. At most one is under way."""

    def __init__(
        self,
        leader: LeaderState,
        journal: Journal,
        upgrade: KRaftVersionUpgrade,
        timing: Timing,
        outputs: Outputs,
    ) -> None:
        self._leader = leader
        self._journal = journal
        self._upgrade = upgrade
        self._timing = timing
        self._outputs = outputs
        self._pending: VoterChange | None = None
        self._asked: Send | None = None
        """The question to the voter that is to be added."""

    # Requests

    def add(self, request: AddVoter, now: float) -> VoterChange:
        voters, voter = self._journal.voters, request.voter
        if voter.directory is None or voter.id < 0 or not voter.endpoints:
            return refused(
                request, ErrorCode.INVALID_REQUEST, "a voter has an id, a directory and an endpoint"
            )
        if (error := self._not_now()) is not None:
            return refused(request, *error)
        if voter.id in voters.ids:
            return refused(
                request,
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {voter.key} is already part of the set of voters"
                f" {_keys(voters.voters)}.",
            )
        self._pending = change = self._begun(request, now, request.timeout_s)
        self._asked = Send(voter.id, AskVersions())
        self._outputs.outbox.append(self._asked)
        return change

    def remove(self, request: RemoveVoter, now: float) -> VoterChange:
        voters, key = self._journal.voters, request.key
        if key.directory is None or key.id < 0:
            return refused(request, ErrorCode.INVALID_REQUEST, "a voter has an id and a directory")
        if (error := self._not_now()) is not None:
            return refused(request, *error)
        if not any(voter.key == key for voter in voters.voters) or len(voters.voters) == 1:
            return refused(
                request,
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key} from the set of voters {_keys(voters.voters)}",
            )
        left = voters.without(key)
        following = self._leader.count_following(left, now - self._timing.fetch_timeout)
        if following < left.majority:
            # They count as soon as they are in the log, and would never commit that: there would be no leader for ever.
            return refused(
                request,
                ErrorCode.INVALID_REQUEST,
                f"Of the {len(left.voters)} voters that would be left only {following} would follow,"
                f" and {left.majority} must: remove those first that do not, or start them",
            )
        self._pending = change = self._begun(request, now, math.inf)
        change.offset = self._leader.append_voters(left, now)
        return change

    def update(self, request: UpdateVoter, now: float) -> ErrorCode:
        """Answered when it is in the log. What a static voter says is only remembered."""
        voters, voter = self._journal.voters, request.voter
        lowest, highest = voter.kraft_versions
        if voter.directory is None or not voter.endpoints or not 0 <= lowest <= highest:
            return ErrorCode.INVALID_REQUEST
        are_static = self._journal.kraft_version < RECONFIGURABLE_FROM
        error = self._not_yet() if are_static else self._not_now()
        if error is not None:
            return error[0]
        if not voter.supports(self._journal.kraft_version):
            return ErrorCode.INVALID_REQUEST
        if are_static:
            return self._upgrade.told(voter)
        known = voters.get(voter.id)
        if known is None or known.key != voter.key:
            return ErrorCode.VOTER_NOT_FOUND
        if known != voter:
            self._leader.append_voters(voters.with_voter(voter), now)
        return ErrorCode.NONE

    def _begun(self, request: AddVoter | RemoveVoter, now: float, timeout_s: float) -> VoterChange:
        return VoterChange(request, now + min(timeout_s, self._timing.change_timeout))

    # kraft.version

    def check_upgrade(self, version: int) -> None:
        """Raises why kraft.version cannot become `version`."""
        if version > self._journal.kraft_version:
            self._upgrade.check(version)

    def upgrade(self, version: int, now: float) -> None:
        """The new version is in the log then, not committed."""
        if version > self._journal.kraft_version:
            self._upgrade.write(version, now)

    # When

    def _not_yet(self) -> tuple[ErrorCode, str] | None:
        """Why no change could begin, whatever the kraft.version. The codes are Kafka's."""
        if self._pending is not None:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        if not self._leader.is_established:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter changes",
            )
        return None

    def _not_now(self) -> tuple[ErrorCode, str] | None:
        """Why no change can begin now."""
        if (error := self._not_yet()) is not None:
            return error
        if self._journal.kraft_version < RECONFIGURABLE_FROM:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                "Cluster doesn't support changing voters because the kraft.version feature is"
                f" {self._journal.kraft_version}",
            )
        if not self._journal.voters_are_committed:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for voters to commit the latest voter change",
            )
        return None

    def _supports(self, kraft_versions: tuple[int, int]) -> bool:
        lowest, highest = kraft_versions
        return lowest <= self._journal.kraft_version <= highest

    # The voter that is to be added

    def address(self, peer: int) -> QuorumEndpoint | None:
        """Where the voter that is to be added listens, if it is `peer`."""
        change = self._pending
        if change is not None and isinstance(change.request, AddVoter):
            voter = change.request.voter
            if voter.id == peer:
                return voter.endpoints[0]
        return None

    def versions_answered(self, send: Send, answer: VersionsAnswer) -> None:
        change = self._pending
        if send is not self._asked or change is None:
            return
        assert isinstance(change.request, AddVoter)
        self._asked = None
        voter, versions = change.request.voter, answer.kraft_versions
        if versions is None or not self._supports(versions):
            lowest, highest = versions or (0, 0)
            self._end(
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {voter.key} since the kraft.version range"
                f" (min: {lowest}, max: {highest}) doesn't support the finalized version"
                f" {self._journal.kraft_version}",
            )
        else:
            change.newcomer = Voter(voter.id, voter.directory, voter.endpoints, versions)
            if not change.request.ack_when_committed and not self._has_caught_up(change):
                # It asks for itself. Kafka's controllers send one request at a time, so it does not fetch while it waits.
                self._end(ErrorCode.REQUEST_TIMED_OUT, self._waits_for(change))

    def versions_unknown(self, send: Send) -> None:
        """The question got no answer."""
        change = self._pending
        if send is not self._asked or change is None:
            return
        assert isinstance(change.request, AddVoter)
        _, host, port = change.request.voter.endpoints[0]
        self._end(
            ErrorCode.REQUEST_TIMED_OUT,
            f"New voter {change.request.voter.key} does not answer at {host}:{port}",
        )

    # Progress

    def advance(self, now: float) -> None:
        change = self._pending
        if change is None:
            return
        if self._can_append(change):
            assert change.newcomer is not None
            voters = self._journal.voters.with_voter(change.newcomer)
            change.offset = self._leader.append_voters(voters, now)
            if isinstance(change.request, AddVoter) and not change.request.ack_when_committed:
                change.finish(ErrorCode.NONE)
        if self._is_committed(change):
            self._end(ErrorCode.NONE)
        elif now >= change.deadline:
            # If it is in the log, it may yet be committed. Until it is, no other change begins.
            self._end(ErrorCode.REQUEST_TIMED_OUT, self._waits_for(change))

    def next_time(self) -> float:
        """When `advance` has something to do."""
        change = self._pending
        if change is None:
            return math.inf
        if self._can_append(change) or self._is_committed(change):
            return -math.inf
        return change.deadline

    def end(self) -> None:
        """The node leads no more. Another leader decides whether what is in the log counts."""
        self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, error: ErrorCode, message: str | None = None) -> None:
        change, self._pending, self._asked = self._pending, None, None
        if change is not None:
            change.finish(error, message)

    def _can_append(self, change: VoterChange) -> bool:
        return change.offset is None and change.newcomer is not None and self._has_caught_up(change)

    def _has_caught_up(self, change: VoterChange) -> bool:
        """With its last fetch it was no further behind than a voter may be silent."""
        assert change.newcomer is not None
        replica = self._leader.observers.get(change.newcomer.key)
        return (
            replica is not None
            and replica.last_fetch - replica.last_caught_up <= self._timing.fetch_timeout
        )

    def _is_committed(self, change: VoterChange) -> bool:
        return change.offset is not None and change.offset < self._journal.high_watermark

    def _waits_for(self, change: VoterChange) -> str:
        if change.offset is not None:
            return "The new voters are in the leader's log, and no majority of them has them yet"
        if change.newcomer is None:
            return "The new voter has not said yet which kraft.version it supports"
        return f"Aborted add voter operation for {change.newcomer.key} since it is lagging behind"


def _keys(voters: tuple[Voter, ...]) -> str:
    return "[" + ", ".join(str(voter.key) for voter in voters) + "]"
