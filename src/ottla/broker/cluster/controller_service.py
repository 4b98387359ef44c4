"""The controller on its node: asyncio around the pure `Controller`.

Commands run on the loop one at a time, are appended to the metadata log at once and answered when they are
committed and applied. An answer that needed no record still waits until everything that was decided before
it is committed, because it may depend on that.

A dead broker is noticed at once (docs/DECISIONS.md). Each broker keeps one connection for its heartbeats. When it closes, the
controller tries to connect to the broker's listener. If the connection is refused, the broker's process is gone, and it
is fenced at once. After any other outcome it has a short grace to send a heartbeat over a new connection. A new active
controller probes every unfenced broker that has not sent it a heartbeat yet in the same way; those that cannot be
judged keep their ordinary session.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from ottla.balance.load import BrokerLoad, ClusterLoads
from ottla.broker.cluster.controller_channel import ControllerChannel, LeaderInfo
from ottla.broker.cluster.controller_commands import (
    CONTROLLER_APIS,
    Fields,
    records_asked,
    refusal,
)
from ottla.broker.cluster.controller_rights import PIECEWISE, Allowed, check_cluster, pieces_of
from ottla.broker.cluster.describe_quorum import as_asked
from ottla.broker.cluster.probe import Probe, is_refused
from ottla.broker.cluster.raft_wire import (
    read_add_voter,
    read_remove_voter,
    voter_change_fields,
)
from ottla.broker.cluster.token_requests import Caller, caller_of
from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.large_requests import LARGE_BYTES, LARGE_RECORDS, Used
from ottla.broker.server.quotas import ClientQuotas, Mutations
from ottla.broker.server.registration import serves
from ottla.config import (
    TOPIC_SETTINGS,
    ConfigError,
    Settings,
    validate_group_config,
    validate_topic_config,
)
from ottla.config.client_metrics_settings import RefusedSubscription, subscription_of
from ottla.config.dynamic import NotDynamic, validate_broker_config
from ottla.controller.committed_events import KINDS, committed_events
from ottla.controller.controller import Controller
from ottla.controller.draft import ControllerConfig, ControllerResult, Draft, limit_records
from ottla.controller.elections import ChangeRule
from ottla.events.audit import Audited
from ottla.events.controller import (
    BrokerFenced,
    ControllerActivated,
    ControllerDeactivated,
    FenceCause,
)
from ottla.metadata.features import supported_ranges
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import LEADER_UNCHANGED, MetadataRecord, PartitionChangeRecord
from ottla.raft.format import load_bootstrap_records
from ottla.raft.messages import AddVoter, RemoveVoter, VoterChangeAnswer
from ottla.runtime import Runtime
from ottla.security.operations import CLUSTER_NAME, ResourceType
from ottla.security.principal_data import principal_from_bytes
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.rights import Rights
from ottla.security.tokens import TokenKeys, TokenRules
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.headers import RequestHeader, read_request_header, response_header

logger = logging.getLogger(__name__)

PROBE_PAUSE_S = 0.01
FAILED_TICK_S = 1.0
REGISTRATION_TIMEOUT_S = 5.0
REFUSED_PAUSE_S = 0.5
ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2
PLANNED = (FenceCause.ASKED, FenceCause.SHUT_DOWN, FenceCause.RESTARTED)
"""Causes of fencing that are no failure."""


VOTER_CHANGES: Mapping[ApiKey, Callable[[Any, str], AddVoter | RemoveVoter]] = {
    ApiKey.ADD_RAFT_VOTER: read_add_voter,
    ApiKey.REMOVE_RAFT_VOTER: read_remove_voter,
}
"""Requests to the leader of the quorum to change its voters, and how each is read."""


class MetadataLog(LeaderInfo, Protocol):
    """What a controller needs of its quorum (see `raft_driver`)."""

    on_leadership: list[Callable[[bool, int], None]]

    @property
    def image(self) -> MetadataImage: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def kraft_version(self) -> int: ...

    def append(self, records: Sequence[MetadataRecord]) -> tuple[int, asyncio.Future[int]]: ...

    def check_kraft_version(self, version: int) -> None: ...

    def upgrade_kraft_version(self, version: int) -> asyncio.Future[int]: ...

    def describe(self) -> Mapping[str, Any]: ...

    async def change_voters(self, request: AddVoter | RemoveVoter) -> VoterChangeAnswer: ...


class ControllerService:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        quorum: MetadataLog,
        change: ChangeRule | None = None,
        *,
        to_others: Runtime | None = None,
    ) -> None:
        """`change` is another design's rule of how partitions change. `to_others`: with the network that leads to other
        controllers, where that needs TLS or a login."""
        self._to_others = to_others or runtime
        self._settings = settings
        self._runtime = runtime
        self._quorum = quorum
        self._controller = Controller(
            replace(controller_config(settings, quorum.cluster_id), change=change),
            runtime.random,
            lambda: quorum.next_offset,
            quorum,
        )
        self._events = runtime.events
        self._quotas = ClientQuotas(
            settings, runtime.clock.monotonic, lambda: quorum.image, events=runtime.events
        )
        self._last_append: asyncio.Future[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None
        self._heartbeats: dict[int, ServerConnection] = {}
        """The connection of each broker's last heartbeat."""
        self._loads = ClusterLoads()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._incarnation = UUID(int=runtime.random.getrandbits(128), version=4)
        self.to_controller: ControllerChannel | None = None
        # At once, since a lone voter may lead before anybody calls `start`.
        quorum.on_leadership.append(self._leadership)

    async def start(self) -> None:
        self.to_controller = ControllerChannel(self._settings, self._to_others, self._quorum)
        self._spawn(self._register(self.to_controller))

    async def stop(self) -> None:
        self._quorum.on_leadership.remove(self._leadership)
        self._deactivate()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.to_controller is not None:
            await self.to_controller.stop()

    # Being the active controller, and no longer

    def _leadership(self, active: bool, epoch: int) -> None:
        self._deactivate()
        if not active:
            return
        self._controller.activate(self._quorum.image, epoch, self._now())
        self._events.emit(ControllerActivated(epoch))
        logger.info("became active controller epoch=%d", epoch)
        if not self._quorum.image.features:
            directory = self._settings.metadata_log_dir
            features = load_bootstrap_records(self._runtime.disk, directory)
            self._run(lambda: self._controller.bootstrap(features))
        for broker_id in self._controller.silent_brokers():
            self._spawn(self._probe(broker_id, self._controller.image.brokers[broker_id].epoch))
        self._set_timer()
        self._sweep_tokens_later()

    def _deactivate(self) -> None:
        if self._controller.active:
            self._events.emit(ControllerDeactivated(self._controller.epoch))
        self._controller.deactivate()
        self._heartbeats.clear()
        self._loads.clear()
        self._last_append = None
        for timer in (self._timer, self._token_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._token_timer = None

    # Commands

    def _run(
        self, command: Callable[[], ControllerResult], asked: Asked | None = None
    ) -> ControllerResult:
        """Decide and append. A controller whose records the quorum does not take is one no longer, unless it asked for
        more than a batch can hold: that is an error of the request."""
        next_offset = self._quorum.next_offset
        before = self._controller.image
        result = command()
        try:
            if result.records:
                offset, self._last_append = self._quorum.append(result.records)
                assert offset == next_offset, f"appended at {offset}, decided for {next_offset}"
            if result.kraft_version is not None:
                self._last_append = self._quorum.upgrade_kraft_version(result.kraft_version)
        except KafkaError as error:
            if error.code == ErrorCode.RECORD_LIST_TOO_LARGE:
                self._controller.withdraw(before)
            else:
                self._deactivate()
            raise
        if result.writes and self._last_append is not None:
            self._last_append.add_done_callback(partial(self._appended, result.draft, asked))
        for event in result.events:
            if isinstance(event, BrokerFenced):
                _tell_of_fenced(event, before, result.records)
            self._events.emit(event)
        if self._timer is None:
            # Otherwise the next tick comes early enough. A heartbeat only moves deadlines away, and to look for the
            # nearest of all sessions each time would make it cost as much as there are brokers.
            self._set_timer()
        return result

    def _appended(
        self, draft: Draft | None, asked: Asked | None, append: asyncio.Future[int]
    ) -> None:
        if append.cancelled():
            return
        if (error := append.exception()) is not None:
            logger.info("decisions not committed error=%s", error)
        elif draft is not None:
            if any(kind in self._events for kind in KINDS):
                for event in committed_events(draft, None if asked is None else asked.by):
                    self._events.emit(event)
            if asked is not None and Audited in self._events:
                from ottla.broker.cluster.audited_changes import audited_changes

                for change in audited_changes(asked, draft):
                    self._events.emit(change)

    def _execute(
        self,
        key: ApiKey,
        message: Any,
        caller: Caller,
        asked: Asked | None = None,
        mutations: Mutations | None = None,
    ) -> tuple[Fields, asyncio.Future[int] | None]:
        """The answer to a request, and the append that must be committed before it is given."""
        rights = caller.rights
        api = CONTROLLER_APIS[key]
        needs = PIECEWISE.get(key)
        more: dict[str, Any] = {} if mutations is None else {"permit": mutations.permit}
        if api.by_whom:
            more = {"caller": caller, "wall_ms": self._runtime.clock.wall_ms()}
        if api.by_way_of:
            more["is_forwarded"] = asked is not None and asked.listener is None
        try:
            allowed, refused = Allowed(message, ())
            limit_records(api.records(message))  # before each piece of it is looked at
            if api.by_whom:
                pass  # `decide` checks it
            elif needs is None:
                check_cluster(key, rights)
            elif rights is not None:
                allowed, refused = needs.allow(message, rights, self._controller.image)
            result = self._run(
                lambda: api.decide(self._controller, allowed, self._now(), **more), asked
            )
        except KafkaError as error:
            logger.info("request refused api=%s error=%s", key.name, error)
            is_denied = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return api.refuse(message, error), None if is_denied else self._last_append
        response = result.response
        append = self._last_append
        if needs is not None and rights is not None:
            if refused and not pieces_of(allowed):
                append = None  # a denial depends on no change: it waits for none, and nobody asks the next controller again
            rows = [*response[needs.rows], *refused]
            if needs.hide is not None:
                rows = needs.hide(rows, rights, self._runtime.random)
            response = {**response, needs.rows: rows}
        if mutations is not None and mutations.delay > 0.0:
            throttle = {"throttle_time": math.ceil(mutations.delay * 1000)}
            return {**response, **throttle}, append
        return response, append

    def _mutations(
        self, key: ApiKey, header: RequestHeader, principal: Principal
    ) -> Mutations | None:
        """The quota that a client's request is charged to, if there is one."""
        strict_from = CONTROLLER_APIS[key].strict_from if key in CONTROLLER_APIS else None
        if strict_from is None:
            return None
        return self._quotas.mutations(
            principal.name, header.client_id or "", is_strict=header.api_version >= strict_from
        )

    async def _committed(
        self, key: ApiKey, message: Any, answer: Fields, append: asyncio.Future[int]
    ) -> Fields:
        await asyncio.wait([append])
        failure = _failure_of(append)
        if failure is None:
            return answer
        api = CONTROLLER_APIS[key]
        return api.refuse(message, failure if api.is_repeatable else _maybe_done())

    @serves(*CONTROLLER_APIS)
    def _handle(self, request: Request) -> None:
        """Each API of `controller_commands`: its versions and what it does are said there, beside what decides."""
        key = ApiKey(request.header.api_key)
        message = request.message()
        connection = request.connection
        asked = Asked(
            key,
            connection.principal,
            connection.peer_host,
            connection.listener,
            request.header.client_id,
        )
        answer, append = self._execute(key, message, caller_of(request, self._settings), asked)
        if key is ApiKey.BROKER_HEARTBEAT and answer["error_code"] == ErrorCode.NONE:
            self._watch(request.connection, message.broker_id)
            text = message.ottla_load.decode(errors="replace")
            self._loads.heard(message.broker_id, text, self._now())
            if message.ottla_asks:
                loads = self._loads.as_text(self._unfenced(), self._now())
                answer["ottla_loads"] = loads.encode()
        if append is None or append.done():
            request.respond(answer)
        else:
            request.run(self._committed(key, message, answer, append))

    def _unfenced(self) -> list[int]:
        return [each.id for each in self._controller.image.brokers.values() if not each.fenced]

    def loads(self) -> dict[int, BrokerLoad]:
        """What each broker carries, as it said in its last heartbeat; empty unless this is the active controller."""
        return self._loads.of(self._unfenced()) if self._controller.active else {}

    @serves(ApiKey.ENVELOPE)
    def _handle_envelope(self, request: Request) -> None:
        """Envelope 0: a client's request that a broker passes on. It is decided by what the client may do, and charged to
        the client's quota. Its answer is passed back as bytes; that this is not the active controller is said outside,
        for the broker to try another."""
        envelope = request.message()
        large, began = request.connection.server.large, self._now()
        used: Used | None = None
        if large is not None and request.rights is not None:
            used = large.used_by(bytes(envelope.request_principal or b""))
        is_large = len(envelope.request_data) > LARGE_BYTES
        if is_large or (used is not None and used.is_much(began)):
            self._in_turn(request, envelope, lambda: self._answer_client(request, envelope))
            return
        self._answer_client(request, envelope)
        if used is not None:
            used.add(began, self._now())

    def _in_turn(self, request: Request, envelope: Any, work: Callable[[], None]) -> None:
        """With the large requests of others, one at a time."""

        def begin() -> None:
            try:
                work()
            except Exception:
                request.connection.fail(request)

        large = request.connection.server.large
        if large is None:
            work()
        else:
            owner = bytes(envelope.request_principal or b"")
            large.add(owner, len(envelope.request_data), begin)

    def _answer_client(self, request: Request, envelope: Any) -> None:
        if request.connection.closed:
            return
        try:
            check_cluster(ApiKey.ENVELOPE, request.rights)
            client = _client_of(envelope)
            if not self._controller.active:
                # Before it is read: who looks for the controller asks every node with all that it has.
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            header, message = _forwarded(bytes(envelope.request_data))
        except KafkaError as error:
            logger.log(
                logging.DEBUG if error.code is ErrorCode.NOT_CONTROLLER else logging.INFO,
                "envelope refused request=%s error=%s",
                request.describe(),
                error,
            )
            request.respond({"error_code": error.code})
            return
        rights = request.rights
        if rights is not None:
            rights = rights.on_behalf_of(*client, header.api_key)
        asked = Asked(
            ApiKey(header.api_key),
            client.principal,
            client.host,
            None,
            header.client_id,
            passed_on_by=str(request.connection.principal),
        )

        def decide() -> None:
            self._decide_for_client(request, header, message, asked, rights)

        is_short = len(envelope.request_data) <= LARGE_BYTES
        if is_short and records_asked(asked.api, message) > LARGE_RECORDS:
            self._in_turn(request, envelope, decide)
        else:
            decide()

    def _decide_for_client(
        self,
        request: Request,
        header: RequestHeader,
        message: Any,
        asked: Asked,
        rights: Rights | None,
    ) -> None:
        """At once, with the answer's bytes: what is long was given its turn for all of this work."""
        key = asked.api
        if key in VOTER_CHANGES:
            request.run(self._changed_voters(header, message, asked, rights))
            return
        append = None
        if key is ApiKey.DESCRIBE_QUORUM:
            answer = self._described_quorum(message, rights)
        else:
            mutations = self._mutations(key, header, asked.principal)
            caller = Caller(asked.principal, rights, None)
            answer, append = self._execute(key, message, caller, asked, mutations)
            if append is None and not self._controller.active:
                request.respond({"error_code": ErrorCode.NOT_CONTROLLER})
                return
        done = _passed_back(header, answer)
        if append is None:
            request.respond(done)
        else:
            request.run(self._passed_back_when_committed(header, message, done, append))

    async def _passed_back_when_committed(
        self,
        header: RequestHeader,
        message: Any,
        done: Fields,
        append: asyncio.Future[int],
    ) -> Mapping[str, Any]:
        """Once it is committed it is done, also if another controller is active by then."""
        await asyncio.wait([append])
        if _failure_of(append) is None:
            return done
        api = CONTROLLER_APIS[ApiKey(header.api_key)]
        if api.is_repeatable:
            return {"error_code": ErrorCode.NOT_CONTROLLER}
        return _passed_back(header, api.refuse(message, _maybe_done()))

    async def _changed_voters(
        self, header: RequestHeader, message: Any, asked: Asked, rights: Rights | None
    ) -> Mapping[str, Any]:
        return _passed_back(header, await self._change_voters(asked, message, rights))

    @serves(*VOTER_CHANGES)
    def _handle_voter_change(self, request: Request) -> None:
        """AddRaftVoter 0-1, RemoveRaftVoter 0: the quorum's leader decides."""
        key, connection = ApiKey(request.header.api_key), request.connection
        asked = Asked(
            key,
            connection.principal,
            connection.peer_host,
            connection.listener,
            request.header.client_id,
        )
        request.run(self._change_voters(asked, request.message(), request.rights))

    async def _change_voters(self, asked: Asked, message: Any, rights: Rights | None) -> Fields:
        try:
            check_cluster(asked.api, rights)
            wanted = VOTER_CHANGES[asked.api](message, self._quorum.cluster_id)
        except KafkaError as error:
            return refusal(asked.api, message, error)
        answer = await self._quorum.change_voters(wanted)
        voter = wanted.voter.key if isinstance(wanted, AddVoter) else wanted.key
        logger.info(
            "voters asked to change api=%s voter=%s by=%s error=%s message=%s",
            asked.api.name,
            voter,
            asked.by or "a client",
            answer.error.name,
            answer.message,
        )
        if answer.error is ErrorCode.NONE and Audited in self._events:
            from ottla.broker.cluster.audited_changes import audited_voter_change

            self._events.emit(audited_voter_change(asked, str(voter)))
        return {**voter_change_fields(answer)}

    def _described_quorum(self, message: Any, rights: Rights | None) -> Fields:
        try:
            check_cluster(ApiKey.DESCRIBE_QUORUM, rights)
        except KafkaError as error:
            return refusal(ApiKey.DESCRIBE_QUORUM, None, error)
        return dict(as_asked(message, self._quorum.describe))

    @serves(ApiKey.DESCRIBE_CLUSTER)
    def _describe_cluster(self, request: Request) -> None:
        """DescribeCluster 0-2 on a controller's listener: the controllers (KIP-919)."""
        message, rights = request.message(), request.rights
        try:
            check_cluster(ApiKey.DESCRIBE_CLUSTER, rights)
        except KafkaError as error:
            request.respond({"error_code": error.code, "error_message": error.message})
            return
        wanted = messages.field(message, "endpoint_type", ENDPOINT_BROKERS)
        if wanted != ENDPOINT_CONTROLLERS:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if request.version == 0:
                code = ErrorCode.INVALID_REQUEST  # all that it knows
            elif wanted == ENDPOINT_BROKERS:
                code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            why = "This is a controller; ask a broker for brokers."
            request.respond({"error_code": code, "error_message": why, "endpoint_type": 2})
            return
        controllers = sorted(self._quorum.image.controllers.items())
        leader = self._quorum.leader_id
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "endpoint_type": ENDPOINT_CONTROLLERS,
                "cluster_id": self._quorum.cluster_id,
                "controller_id": -1 if leader is None else leader,
                "brokers": [
                    {"broker_id": node, "host": at.host, "port": at.port, "rack": None}
                    for node, controller in controllers
                    for at in controller.endpoints[:1]
                ],
                "cluster_authorized_operations": rights.authorized_operations(
                    ResourceType.CLUSTER, CLUSTER_NAME
                )
                if rights is not None and message.include_cluster_authorized_operations
                else -(2**31),
            }
        )

    # Time

    def _now(self) -> float:
        return self._runtime.clock.monotonic()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._controller.active:
            delay = max(0.0, self._controller.next_deadline() - self._now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._controller.active:
            return
        try:
            self._decide_alone(lambda: self._controller.tick(self._now()))
        except Exception:
            # A defect of ours. Sessions must still be watched, though not in a tight loop.
            logger.exception("periodic decisions failed, trying again in_s=%g", FAILED_TICK_S)
            self._timer = asyncio.get_running_loop().call_later(FAILED_TICK_S, self._tick)

    def _sweep_tokens_later(self) -> None:
        """The wall clock says whether a token is over, so it has a timer of its own."""
        if self._controller.active and self._controller.config.tokens is not None:
            delay = self._settings.delegation_token_expiry_check_interval_ms / 1000
            self._token_timer = asyncio.get_running_loop().call_later(delay, self._sweep_tokens)

    def _sweep_tokens(self) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        try:
            self._decide_alone(lambda: self._controller.sweep_tokens(wall_ms))
        finally:
            self._sweep_tokens_later()

    def _decide_alone(self, command: Callable[[], ControllerResult]) -> None:
        """A command that nobody waits for."""
        try:
            self._run(command)
        except KafkaError as error:
            logger.info("no longer the active controller error=%s", error)

    def decide(self, command: Callable[[Draft], dict[str, Any]]) -> None:
        """A decision that another part of this node takes, if its controller is active."""
        self._decide_alone(lambda: self._controller.decide(command))

    # Who is alive

    def _watch(self, connection: ServerConnection, broker_id: int) -> None:
        if self._heartbeats.get(broker_id) is connection:
            return
        self._heartbeats[broker_id] = connection
        connection.on_close.append(lambda: self._heartbeats_lost(connection, broker_id))

    def _heartbeats_lost(self, connection: ServerConnection, broker_id: int) -> None:
        if self._heartbeats.get(broker_id) is not connection:
            return
        del self._heartbeats[broker_id]
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None:
            return
        self._controller.broker_disconnected(broker_id, broker.epoch, self._now())
        self._set_timer()
        if not broker.fenced:
            logger.info("heartbeat connection closed broker=%d", broker_id)
            self._spawn(self._probe(broker_id, broker.epoch))

    async def _probe(self, broker_id: int, epoch: int) -> None:
        """Try to connect to a silent broker for as long as its grace lasts: a process that is just dying may still
        accept."""
        end = self._now() + self._settings.ottla_broker_reconnect_grace_ms / 1000
        while self._is_silent(broker_id, epoch):
            broker = self._controller.image.brokers[broker_id]
            if not broker.endpoints:
                return
            at = broker.endpoints[0]
            if await self._is_gone(at.host, at.port, max(PROBE_PAUSE_S, end - self._now())):
                if self._is_silent(broker_id, epoch):
                    self._decide_alone(
                        lambda: self._controller.broker_unreachable(broker_id, epoch)
                    )
                return
            if self._now() >= end:
                return
            await asyncio.sleep(PROBE_PAUSE_S)

    def _is_silent(self, broker_id: int, epoch: int) -> bool:
        if not self._controller.active or broker_id not in self._controller.silent_brokers():
            return False
        return self._controller.image.brokers[broker_id].epoch == epoch

    async def _is_gone(self, host: str, port: int, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await is_refused(self._runtime.network.connect(host, port, Probe))
        except TimeoutError:
            return False

    # Registration of this controller itself

    async def _register(self, to_controller: ControllerChannel) -> None:
        names = self._settings.controller_listener_names
        fields = {
            "controller_id": self._settings.node_id,
            "incarnation_id": self._incarnation,
            "zk_migration_ready": False,
            "listeners": [
                {
                    "name": at.name,
                    "host": at.host,
                    "port": at.port,
                    "security_protocol": self._settings.security[at.name].number,
                }
                for at in self._settings.advertised_listeners
                if at.name in names
            ],
            "features": [
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_supported_version,
                    "max_supported_version": feature.max_supported_version,
                }
                for feature in supported_ranges()
            ],
        }
        is_told = False
        while True:
            try:
                answer = await to_controller.request(
                    ApiKey.CONTROLLER_REGISTRATION, fields, timeout_s=REGISTRATION_TIMEOUT_S
                )
            except TimeoutError:
                continue
            if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The active controller has not read its ACLs yet, or nobody has allowed this one to register.
                if not is_told:
                    logger.warning(
                        "controller registration refused, trying again: its principal needs an ACL for"
                        " CLUSTER_ACTION on the cluster, or must be one of super.users"
                    )
                is_told = True
                await asyncio.sleep(REFUSED_PAUSE_S)
                continue
            if answer.error_code != ErrorCode.NONE:
                logger.error("controller registration refused error=%s", answer.error_message)
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task of the controller failed", exc_info=error)


def _tell_of_fenced(
    fenced: BrokerFenced, before: MetadataImage, decided: Sequence[MetadataRecord]
) -> None:
    """One line: which broker, why, and what moved because of it."""
    moved = offline = shrunk = 0
    for record in decided:
        if not isinstance(record, PartitionChangeRecord):
            continue
        topic = before.topics_by_id.get(record.topic_id)
        if topic is None:
            continue  # created in the same batch
        was = topic.partitions[record.partition_id]
        if was.leader == fenced.broker and record.leader != LEADER_UNCHANGED:
            moved += record.leader >= 0
            offline += record.leader < 0
        shrunk += record.isr is not None and fenced.broker in was.isr
    logger.log(
        logging.INFO if fenced.cause in PLANNED else logging.WARNING,
        "broker is fenced broker=%d broker_epoch=%d cause=%s leaders_moved=%d partitions_offline=%d"
        " isr_shrunk=%d",
        fenced.broker,
        fenced.broker_epoch,
        fenced.cause.value,
        moved,
        offline,
        shrunk,
    )


def _failure_of(append: asyncio.Future[int]) -> KafkaError | None:
    """Why an append that is over was not committed; None if it was."""
    if append.cancelled():
        return KafkaError(ErrorCode.NOT_CONTROLLER, "this node is stopping")
    error = append.exception()
    if error is None or isinstance(error, KafkaError):
        return error
    raise error


def _maybe_done() -> KafkaError:
    """Records that this node did not commit may yet be committed by the next leader."""
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, "this node leads no more: it may be done, or not"
    )


def client_text(client_id: str | None, host: str, principal: Principal = ANONYMOUS) -> str:
    """For people: which client, of whom, from where."""
    name = client_id or "a client without id"
    if principal != ANONYMOUS:
        name = f"{name} of {principal}"
    return f"{name} at {host}" if host else name if client_id else ""


class Asked(NamedTuple):
    """A request that may change something, and the client that sent it."""

    api: ApiKey
    principal: Principal
    host: str
    listener: str | None
    """None: that of the broker that passed it on, which only that broker knows."""
    client_id: str | None
    passed_on_by: str | None = None
    """The principal of the broker that passed it on: the rest is what this broker says."""

    @property
    def by(self) -> str:
        return client_text(self.client_id, self.host, self.principal)


def _passed_back(header: RequestHeader, answer: Fields) -> Fields:
    """A client's answer, for the broker that has passed on the request."""
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    body = messages.write_response(header.api_key, header.api_version, answer)
    return {"error_code": ErrorCode.NONE, "response_data": head + body}


class ForwardedClient(NamedTuple):
    """Whose request is in an envelope."""

    principal: Principal
    host: str
    """Empty if its broker knew no address."""


def _client_of(envelope: Any) -> ForwardedClient:
    try:
        principal = principal_from_bytes(bytes(envelope.request_principal or b""))
    except ValueError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    address = bytes(envelope.client_host_address)
    if len(address) not in (4, 16):
        why = f"an address of {len(address)} bytes"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    return ForwardedClient(principal, str(ipaddress.ip_address(address)) if any(address) else "")


def _forwarded(data: bytes) -> tuple[RequestHeader, Any]:
    """The request in an envelope. What cannot be read is said to be of an unknown version, as in Kafka: an invalid
    request is one whose envelope is wrong."""
    frame = memoryview(data)
    try:
        header = read_request_header(frame)
        key = ApiKey(header.api_key)
        if not APIS[key].forwarded:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{APIS[key].name} is not forwarded")
        message = messages.read_request(key, header.api_version, frame, header.body)
    except (InvalidFrame, ValueError) as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unreadable request: {error}") from None
    return header, message


def controller_config(settings: Settings, cluster_id: str) -> ControllerConfig:
    return ControllerConfig(
        cluster_id=cluster_id,
        validate_topic_config=_validate_topic_config,
        validate_broker_config=_validate_broker_config,
        validate_group_config=lambda configs: _validate_group_config(settings, configs),
        validate_client_metrics_config=_validate_client_metrics_config,
        topic_defaults=settings.topic_defaults(),
        topic_defaults_given=[
            row.name for row in TOPIC_SETTINGS.values() if row.server_name in settings.given
        ],
        session_timeout=settings.broker_session_timeout_ms / 1000,
        reconnect_grace=settings.ottla_broker_reconnect_grace_ms / 1000,
        idle_interval=settings.metadata_max_idle_interval_ms / 1000,
        num_partitions=settings.num_partitions,
        replication_factor=settings.default_replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election=settings.unclean_leader_election_enable,
        unclean_election_interval=settings.unclean_leader_election_interval_ms / 1000,
        rebalance_leaders=settings.auto_leader_rebalance_enable,
        rebalance_interval=settings.leader_imbalance_check_interval_seconds,
        delete_topics=settings.delete_topic_enable,
        tokens=None
        if (secret := settings.delegation_token_secret_key) is None
        else TokenRules(
            TokenKeys(secret, settings.delegation_token_secret_key_previous),
            settings.delegation_token_max_lifetime_ms,
            settings.delegation_token_expiry_time_ms,
        ),
        has_authorizer=bool(settings.authorizer_class_name),
    )


def _validate_topic_config(configs: Mapping[str, str]) -> None:
    try:
        validate_topic_config(configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _validate_group_config(settings: Settings, configs: Mapping[str, str]) -> None:
    try:
        validate_group_config(settings, configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _validate_client_metrics_config(configs: Mapping[str, str]) -> None:
    try:
        subscription_of("any", configs)
    except RefusedSubscription as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _validate_broker_config(configs: Mapping[str, str]) -> None:
    """Only what is read from the metadata can be changed while nodes run."""
    try:
        validate_broker_config(configs)
    except NotDynamic as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
