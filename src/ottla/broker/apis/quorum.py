"""The APIs of the quorum on a controller's listener: read the request, pass it to Raft, write the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.cluster import raft_wire
from ottla.broker.cluster.controller_rights import check_cluster
from ottla.broker.cluster.describe_quorum import as_asked
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.raft.messages import Park
from ottla.wire.apis import ApiKey
from ottla.wire.errors import KafkaError


class QuorumHandlers:
    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver

    @serves(ApiKey.VOTE)
    def vote(self, request: Request) -> None:
        """Vote 0-2. Before version 2 there is no pre-vote, before 1 no directory id."""
        self._answer(
            request,
            raft_wire.read_vote,
            self._driver.raft.handle_vote,
            raft_wire.vote_fields,
        )

    @serves(ApiKey.BEGIN_QUORUM_EPOCH)
    def begin_quorum_epoch(self, request: Request) -> None:
        """BeginQuorumEpoch 0-1."""
        self._answer(
            request,
            raft_wire.read_begin_quorum_epoch,
            self._driver.raft.handle_begin_quorum_epoch,
            raft_wire.epoch_fields,
        )

    @serves(ApiKey.END_QUORUM_EPOCH)
    def end_quorum_epoch(self, request: Request) -> None:
        """EndQuorumEpoch 0-1."""
        self._answer(
            request,
            raft_wire.read_end_quorum_epoch,
            self._driver.raft.handle_end_quorum_epoch,
            raft_wire.epoch_fields,
        )

    @serves(ApiKey.FETCH_SNAPSHOT)
    def fetch_snapshot(self, request: Request) -> None:
        """FetchSnapshot 0-1."""
        self._answer(
            request,
            raft_wire.read_fetch_snapshot,
            self._driver.raft.handle_fetch_snapshot,
            raft_wire.fetch_snapshot_fields,
        )

    @serves(ApiKey.UPDATE_RAFT_VOTER)
    def update_voter(self, request: Request) -> None:
        """UpdateRaftVoter 0: a voter says where it listens."""
        self._answer(
            request,
            raft_wire.read_update_voter,
            self._driver.raft.handle_update_voter,
            raft_wire.update_voter_fields,
        )

    def _answer(
        self,
        request: Request,
        read: Callable[[Any, str], Any],
        handle: Callable[[Any, float], Any],
        write: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        driver = self._driver
        try:
            check_cluster(ApiKey(request.header.api_key), request.rights)
            asked = read(request.message(), driver.cluster_id)
        except KafkaError as error:
            request.respond({"error_code": error.code})
            return
        answer = driver.step(lambda: handle(asked, driver.now()))
        if answer is None:
            request.connection.abort()  # this node has left the quorum
        else:
            request.respond(write(answer))

    @serves(ApiKey.FETCH)
    def fetch(self, request: Request) -> None:
        """Fetch 4-18 of the metadata log, from version 13 on (by topic id), as Kafka's controllers do."""
        driver, version = self._driver, request.version
        try:
            check_cluster(ApiKey.FETCH, request.rights)
            request.connection.is_follower = True
            asked = raft_wire.read_fetch(
                version, request.frame, request.header.body, driver.cluster_id
            )
        except KafkaError as error:
            request.respond_chunks(raft_wire.fetch_error_chunks(version, error.code))
            return
        if (previous := request.connection.parked_fetch) is not None:
            previous.complete()
        answer = driver.step(lambda: driver.raft.handle_fetch(asked, driver.now()))
        if answer is None:
            request.connection.abort()
        elif isinstance(answer, Park):
            driver.parked.park(request, asked, answer, driver.now())
        else:
            request.respond_chunks(raft_wire.fetch_chunks(version, answer))

    @serves(ApiKey.DESCRIBE_QUORUM)
    def describe_quorum(self, request: Request) -> None:
        """DescribeQuorum 0-2."""
        asked = request.message()
        try:
            check_cluster(ApiKey.DESCRIBE_QUORUM, request.rights)
        except KafkaError as error:
            request.respond({"error_code": error.code, "error_message": error.message})
            return
        request.respond(as_asked(asked, self._driver.describe))
