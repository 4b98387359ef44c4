"""A node's connection to the active controller, wherever that is (Kafka's NodeToControllerChannelManager).

It is opened when first needed and follows the quorum's leader. A request is tried again on NOT_CONTROLLER and on a lost
connection until its time is over. If an answer was lost and the request is repeated, the second one finds everything as
it shall be, or the controller refuses it (partition epochs, names that exist already). The few of which that is not so
(`ControllerApi.is_repeatable`) are not repeated once they were sent. Kafka repeats these, too. Two controllers at most are
asked for a large one: perhaps the first has lost its leadership by the work.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from ottla.broker.cluster.controller_commands import CONTROLLER_APIS, records_asked, refusal
from ottla.broker.cluster.controller_rights import WhollyDenied, check_some
from ottla.broker.cluster.node_channels import DialledNode, open_channel
from ottla.broker.server.connections import Request
from ottla.broker.server.deadlines import is_set_within
from ottla.broker.server.large_requests import LARGE_BYTES, LARGE_RECORDS
from ottla.broker.server.registration import serves
from ottla.config import Settings
from ottla.controller.draft import limit_records
from ottla.metadata.image import MetadataImage
from ottla.runtime import Runtime
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import Principal
from ottla.security.rights import Rights
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.headers import read_response_header, request_frame

logger = logging.getLogger(__name__)

MUTATING = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""What the controller has quotas for; their answers begin with the time to wait."""
RETRY_S = 0.02
RETRY_DOUBLINGS = 3
NO_LEADER_S = 1.0
FORWARD_TIMEOUT_S = 30.0
MAYBE_DONE = (
    "the connection to the controller was lost before it answered: it may have done this, or not"
)
MANY_ASKED = "the controllers that were asked lost their leadership meanwhile: they may have done this, or not"
UNDER_WAY_MAX = 8
"""So many requests of one principal are with the controller, beside a large one, where rights count."""
CONTROLLERS_MAX = 2
"""So many may be asked for one large request."""
FRAME_SIZE_BYTES = 4
"""A request within an Envelope has no size before it."""

HERE = {
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
"""A broker looks at them before it forwards them. It answers what is about its own loggers (see `LoggerHandlers`), refuses
settings of its listeners that cannot be (see `ListenerConfigsHandler`), and refuses requests about tokens that come over a connection where nobody has proved who he is (see `TokenHandlers`)."""
FORWARDED = tuple(
    api.key for api in APIS.values() if api.on_broker and api.forwarded and api.key not in HERE
)


class LeaderInfo(Protocol):
    """What finding the active controller needs of the quorum."""

    on_leader: list[Callable[[int | None, int], None]]

    @property
    def image(self) -> MetadataImage: ...

    def leader_endpoint(self) -> DialledNode | None: ...


class _Line:
    """What one principal asks of the controller. Of the large requests one is with it, of the others a few."""

    def __init__(self, owner: Principal) -> None:
        self.owner = owner
        self.large = asyncio.Semaphore(1)
        self.others = asyncio.Semaphore(UNDER_WAY_MAX)
        self.length = 0
        """Of those that are with the controller, and those that wait."""


class ControllerChannel:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        quorum: LeaderInfo,
        *,
        for_large: ControllerChannel | None = None,
    ) -> None:
        """`for_large`: what carries large requests in its place."""
        self._for_large = for_large or self
        self._clock = runtime.clock
        self._network = runtime.network
        self._quorum = quorum
        self._client_id = str(settings.node_id)
        self._channel: Channel | None = None
        self._connected_to: DialledNode | None = None
        self._opening = asyncio.Lock()
        self._lines: dict[Principal, _Line] = {}
        self._leader_changed = asyncio.Event()
        self._epoch = -1
        """Of the leader that was heard of last."""
        self.on_lost: list[Callable[[], None]] = []
        """Called when the connection is lost or the leader is another one."""
        quorum.on_leader.append(self._leader_moved)

    async def stop(self) -> None:
        if self._leader_moved in self._quorum.on_leader:
            self._quorum.on_leader.remove(self._leader_moved)
        if self._channel is not None:
            self._channel.close()
        if self._for_large is not self:
            await self._for_large.stop()

    async def request(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        timeout_s: float,
        may_repeat: bool = True,
        is_large: bool = False,
    ) -> Any:
        """The answer of an active controller. TimeoutError when none could be had in time, or if the request was sent, its
        answer is lost, and it must not be repeated (again)."""
        end = self._clock.monotonic() + timeout_s
        tries = lost = 0
        asked: set[int] = set()  # the epochs of the controllers
        while (remaining := end - self._clock.monotonic()) > 0:
            self._leader_changed.clear()
            epoch, is_sent = self._epoch, False
            if is_large and (lost >= CONTROLLERS_MAX or len({*asked, epoch}) > CONTROLLERS_MAX):
                raise TimeoutError(MANY_ASKED)
            try:
                channel = await self._open_channel(remaining)
                remaining = max(0.001, end - self._clock.monotonic())
                if epoch != self._epoch:
                    raise ConnectionError("the leader is another one now")
                asked.add(epoch)
                is_sent = True
                answer = await channel.request(
                    api_key, fields, version=version, timeout_s=remaining
                )
            except (OSError, InvalidFrame) as error:  # after a TimeoutError the loop ends
                lost += is_sent
                logger.debug(
                    "request to the controller failed api=%s error=%s", api_key.name, error
                )
                if is_sent and not may_repeat:
                    raise TimeoutError(MAYBE_DONE) from error
            else:
                if not _says_not_controller(answer):
                    return answer
            await self._pause(tries, end)
            tries += 1
        raise TimeoutError(f"no active controller answered {api_key.name} in {timeout_s} s")

    async def request_for(
        self, request: Request, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float
    ) -> Any:
        """As `request`, but in the name of the client whose request needs it: the controller decides by what the client may
        do. KafkaError if the controller refuses the envelope."""
        version = APIS[api_key].max_version
        body = messages.write_request(api_key, version, fields)
        frame = request_frame(api_key, version, 0, request.client_id, body)[FRAME_SIZE_BYTES:]
        answer = await self._passed_on(api_key, _envelope(request, frame), timeout_s)
        _, start = read_response_header(api_key, version, answer)
        return messages.read_response(api_key, version, answer, start)

    async def _passed_on(
        self,
        inner: ApiKey,
        envelope: Mapping[str, Any],
        timeout_s: float,
        *,
        is_large: bool = False,
    ) -> memoryview:
        """The controller's answer to the request in an envelope."""
        api = CONTROLLER_APIS.get(inner)
        may_repeat = api is None or api.is_repeatable
        way = self._for_large if is_large else self
        answer = await way.request(
            ApiKey.ENVELOPE,
            envelope,
            timeout_s=timeout_s,
            may_repeat=may_repeat,
            is_large=is_large,
        )
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            raise KafkaError(ErrorCode(int(answer.error_code)), "the controller refused it")
        return memoryview(answer.response_data)

    @serves(*FORWARDED)
    def forward(self, request: Request) -> None:
        """Each API that the controller decides for clients: answer with what the active controller makes of the request
        (Envelope 0). Versions are said where it is decided, in `controller_commands`."""
        key = ApiKey(request.header.api_key)
        assert APIS[key].forwarded
        message = request.message()
        records = records_asked(key, message)
        try:
            limit_records(records)
        except KafkaError as error:
            request.respond(refusal(key, message, error))
            return
        is_large = len(request.frame) > LARGE_BYTES or records > LARGE_RECORDS
        rights, owner = request.rights, request.connection.principal
        is_checked = rights is not None and (is_large or owner in self._lines)
        if rights is not None and is_checked and self._is_denied(request, message, rights):
            return
        fields = _envelope(request, bytes(request.frame))
        work = self._forward(request, message, fields, is_large)
        if is_large or rights is not None:
            work = self._in_line(request, work, is_large)
        request.connection.server.spawn(work)

    def _is_denied(self, request: Request, message: Any, rights: Rights) -> bool:
        """Of a large request, or of one who has others with the controller: answer it, if its client has no right to any of it.
        The controller would say the same, but it has the work of all brokers. A single one is left to it: it may have ACLs that
        this broker has not heard of yet."""
        key = ApiKey(request.header.api_key)
        try:
            check_some(key, message, rights, self._quorum.image)
        except WhollyDenied as denial:
            request.respond(denial.answer)
        except KafkaError as error:
            request.respond(refusal(key, message, error))
        else:
            return False
        return True

    def _in_line(
        self, request: Request, work: Coroutine[Any, Any, None], is_large: bool
    ) -> Coroutine[Any, Any, None]:
        """Of one principal, one large request is with the controller, and a few others. They are answered in order there, and what
        is behind them may be of somebody else. A new controller is not asked for all of them at once."""
        owner = request.connection.principal
        line = self._lines.setdefault(owner, _Line(owner))
        line.length += 1
        waits = is_large or line.length > UNDER_WAY_MAX
        if waits:
            request.connection.hold()
        return self._when_its_turn_comes(request, line, work, is_large=is_large, waits=waits)

    async def _when_its_turn_comes(
        self,
        request: Request,
        line: _Line,
        work: Coroutine[Any, Any, None],
        *,
        is_large: bool,
        waits: bool,
    ) -> None:
        connection = request.connection
        try:
            async with line.large if is_large else line.others:
                if waits and not is_large:
                    waits = False
                    connection.release()
                await work
        finally:
            work.close()  # it may not have begun
            if waits:
                connection.release()
            line.length -= 1
            if not line.length:
                del self._lines[line.owner]

    async def _forward(
        self, request: Request, message: Any, fields: Mapping[str, Any], is_large: bool
    ) -> None:
        header = request.header
        try:
            inner = await self._passed_on(
                ApiKey(header.api_key), fields, FORWARD_TIMEOUT_S, is_large=is_large
            )
            _, body = read_response_header(header.api_key, header.api_version, inner)
            if header.api_key in MUTATING:
                request.throttle(int.from_bytes(inner[body : body + 4]) / 1000)
        except (TimeoutError, InvalidFrame) as error:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            request.respond(refusal(ApiKey(header.api_key), message, late))
        except KafkaError as error:
            request.respond(refusal(ApiKey(header.api_key), message, error))
        except Exception:
            request.connection.fail(request)
        else:
            request.respond_chunks([inner[body:]])

    async def _open_channel(self, timeout_s: float) -> Channel:
        async with self._opening:
            target = self._quorum.leader_endpoint()
            if target is None:
                raise ConnectionError("the quorum has no leader now")
            if self._channel is not None and not self._channel.closed:
                if target == self._connected_to:
                    return self._channel
                self._channel.abort("the leader is another one now")
            async with asyncio.timeout(timeout_s):
                channel = await open_channel(self._network, *target, self._client_id)
                channel.on_close.append(lambda reason: self._lost(channel))
                self._channel, self._connected_to = channel, target
                await channel.negotiate(timeout_s)
            return channel

    def _lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._channel = None
            for callback in list(self.on_lost):
                callback()

    def _leader_moved(self, leader: int | None, epoch: int) -> None:
        """Requests at a former leader, which may never be answered if it is paused, begin again at the new one."""
        self._leader_changed.set()
        self._epoch = epoch
        target = self._quorum.leader_endpoint()
        if self._channel is not None and target is not None and target != self._connected_to:
            self._channel.abort("the leader is another one now")

    async def _pause(self, tries: int, end: float) -> None:
        """Wait a while, longer each time, or until there is another leader. Without any leader there is nobody to ask, and
        the quorum reports the next one."""
        wait = RETRY_S * 2 ** min(tries, RETRY_DOUBLINGS)
        if self._quorum.leader_endpoint() is None:
            wait = NO_LEADER_S
        await is_set_within(
            self._leader_changed, min(wait, max(0.0, end - self._clock.monotonic()))
        )


def _says_not_controller(answer: Any) -> bool:
    if messages.field(answer, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
        return True
    topics = messages.field(answer, "topics", ())
    return any(
        messages.field(topic, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
        for topic in topics
    )


def _envelope(request: Request, data: bytes) -> dict[str, Any]:
    """A request for the client that sent `request`, who is named in it with its address: the controller decides by what
    that client may do."""
    connection = request.connection
    return {
        "request_data": data,
        "request_principal": principal_to_bytes(connection.principal),
        "client_host_address": _address_bytes(connection.peer_host),
    }


def _address_bytes(host: str) -> bytes:
    """4 or 16 raw bytes; a host that is no address (a simulated one) counts as unspecified."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes(4)
