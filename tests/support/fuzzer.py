"""The attacking process of the tests of fuzzed frames: many connections to one node, over loopback.

    python -m support.fuzzer < orders.json

It prints a line of JSON each second: how many frames of each stage the node has handled. A frame counts when it was answered, or when
it was the one at which the node closed the connection, or when an answer to a later one shows that it was read. What was cut off, or was
not answered in time (a fetch that waits), does not count. The last line has `over`. What must never happen is told in `wrong`, and
ends it.

A *visit* is one connection: a generator that yields what is to be sent and gets the answers. The same seed gives the same visits.
"""

from __future__ import annotations

import json
import math
import select
import socket
import ssl
import struct
import sys
import time
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.security import scram
from ottla.security.secrets import Secret
from ottla.wire import messages, produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.headers import read_response_header, request_frame
from support.damage import damaged
from support.marked_frames import (
    Frames,
    Known,
    can_be_read,
    expects_no_answer,
    names_of,
    no_ids,
)

STRANGER, NOBODY, SOMEBODY, TLS = "stranger", "nobody", "somebody", "tls"
LANES: Final = {STRANGER: 10, NOBODY: 8, SOMEBODY: 12}
PATIENCE_S: Final = 2.0
"""A visit is broken off when others that asked so much later have their answers: it waits for records or for a group."""
WAIT_S: Final = 60.0
"""Whatever a visit waits for, and however slow the machine is."""
SENTINEL: Final = 0x7FFFFFFF
LAST: Final = request_frame(ApiKey.API_VERSIONS, 0, SENTINEL, "fuzz", b"")
RESET: Final = struct.pack("ii", 1, 0)
"""Closing sends a reset. Otherwise ports would be used up by connections that linger."""
SIZE: Final = struct.Struct(">i")
BEFORE_LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE})  # fmt: skip
SELDOM: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""Somebody who may do it would do little else."""


class WrongAnswer(Exception):
    """Something that must never happen."""


@dataclass
class Orders:
    """What to do, as JSON says it."""

    host: str
    port: int
    seed: int
    frames: dict[str, int]
    """Of each stage."""
    passwords: dict[str, str]
    """Of the users NOBODY and SOMEBODY."""
    topics: list[str]
    groups: list[str]
    transactions: list[str]
    users: list[str]
    ids: list[str]
    secrets: list[str]
    """Texts that no answer may have."""
    seconds: float = 0.0
    """When it ends, whatever is left. 0: not before all is done."""
    ca: str = ""

    @property
    def known(self) -> Known:
        ids = [*(UUID(each) for each in self.ids), *no_ids()]
        return Known(self.topics, self.groups, self.transactions, self.users, ids)


class Batch(NamedTuple):
    frames: list[bytes]
    """Without their sizes."""
    free: int = 0
    """So many of them are a login, and do not count."""
    probe: bool = False
    """The last one asks whether the connection is open, and does not count either."""
    ends: bool = False
    """With a frame whose answer shows that all others were read. Only where somebody has logged in."""
    raw: bool = False
    """Tokens without a header."""
    cut: int = 0
    """So many bytes are missing at the end, and the connection breaks then."""
    size: int | None = None
    """What its one frame says to be long."""


@dataclass
class Answers:
    of: list[bytes | None]
    is_open: bool


Visit = Generator[Batch, Answers, None]


def framed(frame: bytes) -> bytes:
    return SIZE.pack(len(frame)) + frame


def handshake(mechanism: str, version: int = 1) -> bytes:
    body = messages.write_request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})
    return request_frame(ApiKey.SASL_HANDSHAKE, version, 0, "fuzz", body)[4:]


def authenticate(token: bytes, version: int = 1) -> bytes:
    body = messages.write_request(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})
    return request_frame(ApiKey.SASL_AUTHENTICATE, version, 0, "fuzz", body)[4:]


PROBE: Final = request_frame(ApiKey.METADATA, 4, 0, "fuzz", b"\xff\xff\xff\xff\x00")[4:]
"""All topics: whoever gets them has logged in."""


class Scram:
    """The client's half with remembered keys: only the server is to be kept busy."""

    _salted: dict[tuple[str, bytes], bytes] = {}  # noqa: RUF012

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self.mechanism = scram.MECHANISMS[mechanism]
        self.password = password
        self.bare = f"n={user},r={nonce}"

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        told = scram.ServerFirst.parse(challenge)
        known = self.mechanism.name + self.password, told.salt
        if known not in self._salted:
            secret = Secret(self.password)
            self._salted[known] = scram.salt_password(
                self.mechanism, secret, told.salt, told.iterations
            )
        mac = self.mechanism.mac
        key = mac(self._salted[known], b"Client Key")
        unproved = f"c=biws,r={told.nonce}"
        said = b",".join((self.bare.encode(), challenge, unproved.encode()))
        signature = mac(self.mechanism.hash(key), said)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproved},p={b64encode(proof).decode()}".encode()


def token_in(answer: bytes, version: int) -> tuple[int, bytes]:
    """Error code and token of an answer to SaslAuthenticate."""
    view = memoryview(answer)
    _, body = read_response_header(ApiKey.SASL_AUTHENTICATE, version, view)
    found = messages.read_response(ApiKey.SASL_AUTHENTICATE, version, view, body)
    return int(found.error_code), bytes(found.auth_bytes)


class Stage:
    """The visits of one kind."""

    def __init__(self, name: str, orders: Orders, counts: Counter[str]) -> None:
        self.name = name
        self.random = Random(f"{orders.seed} {name}")
        self.frames = Frames(self.random, orders.known)
        self.passwords = orders.passwords
        self.counts = counts
        self.left = orders.frames.get(name, 0)
        self._unreadable: deque[bytes] = deque()

    def visit(self) -> Visit:
        return self._stranger() if self.name == STRANGER else self._logged_in(self.name)

    # Before a login, and during one that must fail

    def _stranger(self) -> Visit:
        random = self.random
        match random.randrange(10):
            case 0 | 1 | 2:
                yield Batch([self.frames.mutated()])
            case 3:
                yield Batch([self.frames.whole().data])
            case 4 | 5:
                many = (
                    self.frames.mutated(ApiKey.API_VERSIONS) for _ in range(random.randrange(60))
                )
                served = [each for each in many if self._is_api_versions(each)]
                answers = yield Batch(served)
                if answers.is_open:
                    yield Batch([self.frames.mutated()])
            case 6 | 7:
                yield from self._wrong_order()
            case 8:
                yield from self._raw_tokens()
            case _ if random.random() < 0.2:
                yield self._wrong_size(512 * 1024)
            case _:
                yield from self._wrong_proof()

    def _wrong_size(self, largest: int) -> Batch:
        """A frame that says to be longer than any may be, or negative. Or as long as it may be, of which little comes."""
        random = self.random
        frame = self.frames.whole().data
        if random.random() < 0.5:
            return Batch([frame], size=largest - 1, cut=1)
        return Batch([frame], size=random.choice((-1, -(2**31), 2**31 - 1, largest + 1, 0x16030100)))  # fmt: skip

    def _is_api_versions(self, frame: bytes) -> bool:
        return names_of(frame)[0] == ApiKey.API_VERSIONS and can_be_read(frame)

    def _wrong_order(self) -> Visit:
        """Any steps of any logins, some of them mutated, and then a question."""
        random = self.random
        steps = [self._step() for _ in range(random.randrange(1, 6))]
        yield Batch([*steps, PROBE], probe=True)

    def _step(self) -> bytes:
        random = self.random
        choice = random.randrange(8)
        if choice < 3:
            mechanism = random.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", ""))
            step = handshake(mechanism)
        elif choice < 7:
            step = authenticate(self._wrong_token(), random.randrange(3))
        else:
            step = self.frames.whole().data
        return damaged(step, random) if random.random() < 0.2 else step

    def _wrong_token(self) -> bytes:
        """None of them is a password, or a proof."""
        random = self.random
        user = random.choice((NOBODY, SOMEBODY, "canary", "admin", "who", "ANONYMOUS"))
        tokens = (
            b"",
            f"\0{user}\0guessed".encode(),
            f"{user}\0{user}\0guessed".encode(),
            f"canary\0{NOBODY}\0{self.passwords[NOBODY]}".encode(),
            f"\0{user}\0".encode(),
            b"\0\0",
            f"n,,n={user},r=abcdef".encode(),
            f"n,a=canary,n={user},r=abcdef".encode(),
            f"n,,n={user},r=abcdef,tokenauth=true".encode(),
            f"y,,n={user},r=abcdef".encode(),
            f"p=tls-unique,,n={user},r=abcdef".encode(),
            b"c=biws,r=abcdef,p=" + b64encode(bytes(32)),
            b"v=" + b64encode(bytes(32)),
            random.randbytes(random.randrange(80)),
        )
        return random.choice(tokens)

    def _raw_tokens(self) -> Visit:
        random = self.random
        mechanism = random.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
        answers = yield Batch([handshake(mechanism, 0)])
        if answers.is_open:
            tokens = [self._wrong_token() for _ in range(random.randrange(1, 4))]
            yield Batch([*tokens, PROBE], probe=True, raw=True)

    def _wrong_proof(self) -> Visit:
        """A right login whose last message is not what it should be."""
        random = self.random
        user = random.choice((NOBODY, SOMEBODY))
        login = self._scram(user)
        version = random.randrange(3)
        answers = yield Batch([handshake(login.mechanism.name), authenticate(login.first(), version)])  # fmt: skip
        if not answers.is_open or answers.of[1] is None:
            return
        right = login.final(token_in(answers.of[1], version)[1])
        wrong = right
        while wrong == right:
            wrong = damaged(right, random)
        yield Batch([authenticate(wrong, version), PROBE], probe=True)

    def _scram(self, user: str) -> Scram:
        mechanism = self.random.choice(("SCRAM-SHA-256", "SCRAM-SHA-512"))
        nonce = f"{self.random.getrandbits(64):x}"
        return Scram(mechanism, user, self.passwords[user], nonce)

    # After a login

    def _logged_in(self, user: str) -> Visit:
        random = self.random
        if random.random() < 0.15:
            login = self._scram(user)
            answers = yield Batch([handshake(login.mechanism.name), authenticate(login.first())], 2)
            if not answers.is_open or answers.of[1] is None:
                self.counts["unfinished_logins"] += 1
                return
            begin = [authenticate(login.final(token_in(answers.of[1], 1)[1]))]
        else:
            token = f"\0{user}\0{self.passwords[user]}".encode()
            begin = [handshake("PLAIN"), authenticate(token)]
        self.counts["logins"] += 1
        for number in range(random.randrange(1, 4)):
            some = list(islice(self._readable(), random.randrange(6, 40)))
            first = [] if number else begin
            answers = yield Batch([*first, *some], free=len(first), ends=True)
            if not answers.is_open:
                return
        ending = random.random()
        if ending < 0.02:
            yield self._wrong_size(100 * 1024 * 1024)
        elif ending < 0.9 and self._unreadable:
            yield Batch([self._unreadable.popleft()])
        elif ending < 0.95:
            frame = self.frames.whole().data
            yield Batch([frame], cut=random.randrange(1, len(frame) + 4))

    def _readable(self) -> Iterator[bytes]:
        """Frames that the node reads, and that leave the connection open. Others are kept for the end of a visit."""
        random = self.random
        while True:
            is_whole = random.random() < 0.5
            frame = self.frames.whole().data if is_whole else self.frames.mutated()
            if (is_whole or can_be_read(frame)) and not expects_no_answer(frame):
                if names_of(frame)[0] not in SELDOM or random.random() < 0.1:
                    yield frame
            elif len(self._unreadable) < 20:
                self._unreadable.append(frame)


@dataclass
class Sent:
    frame: bytes
    """As it was sent, with a number of its own."""
    place: int
    counts: bool


class Checks:
    """What no answer may be."""

    def __init__(self, orders: Orders) -> None:
        self._secrets = [each.encode() for each in orders.secrets]

    def check(self, stage: str, sent: Sent, answer: bytes, *, raw: bool) -> bool:
        """Whether the answer says that the connection is over."""
        key, version = names_of(sent.frame)
        for secret in self._secrets:
            if secret in answer:
                raise self._wrong("names what it must not", stage, sent, answer)
        if stage == STRANGER:
            if raw:
                if not answer.startswith(b"r="):
                    raise self._wrong("lets a stranger in", stage, sent, answer)
                return False
            return self._is_over(stage, sent, answer, key, version)
        if stage == NOBODY and key == ApiKey.PRODUCE:
            view = memoryview(answer)
            _, body = read_response_header(key, version, view)
            if not all(each.error for each in produce.read_response(version, view, body).results):
                raise self._wrong("acknowledges records of nobody", stage, sent, answer)
        return False

    def _is_over(self, stage: str, sent: Sent, answer: bytes, key: int, version: int) -> bool:
        if key == ApiKey.API_VERSIONS:
            return False
        view = memoryview(answer)
        _, body = read_response_header(key, version, view)
        try:
            found = messages.read_response(key, version, view, body)
        except InvalidFrame:
            raise self._wrong("is no answer", stage, sent, answer) from None
        error = int(found.error_code)
        if key == ApiKey.SASL_AUTHENTICATE and error == ErrorCode.NONE:
            if not found.auth_bytes.startswith(b"r="):
                raise self._wrong("lets a stranger in", stage, sent, answer)
        elif key not in BEFORE_LOGIN and error != ErrorCode.ILLEGAL_SASL_STATE:
            raise self._wrong("serves a stranger", stage, sent, answer)
        return error != ErrorCode.NONE

    def _wrong(self, what: str, stage: str, sent: Sent, answer: bytes) -> WrongAnswer:
        return WrongAnswer(f"{what} stage={stage} sent={sent.frame.hex()} answer={answer.hex()}")


@dataclass
class Lane:
    """One connection at a time."""

    stage: Stage
    checks: Checks
    address: tuple[str, int]
    socket: socket.socket | None = None
    visit: Visit | None = None
    outbox: deque[bytes] = field(default_factory=deque)
    unread: bytearray = field(default_factory=bytearray)
    unanswered: deque[Sent] = field(default_factory=deque)
    batch: Batch = field(default_factory=lambda: Batch([]))
    answers: list[bytes | None] = field(default_factory=list)
    last_seen: bool = False
    is_over: bool = False
    since: float = 0.0
    number: int = 0
    newest: float = 0.0
    """When that of its batches was sent which was answered last."""

    def begin(self) -> None:
        self.socket = socket.create_connection(self.address, WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.setblocking(False)
        self.stage.counts["connections"] += 1
        self.unread.clear()
        self.outbox.clear()
        self.visit = self.stage.visit()
        try:
            self._start(next(self.visit))
        except StopIteration:
            self.end()

    def _start(self, batch: Batch) -> None:
        self.batch = batch
        self.answers = [None] * len(batch.frames)
        self.unanswered.clear()
        self.last_seen = self.is_over = False
        self.since = time.monotonic()
        parts = []
        last = len(batch.frames) - 1
        for place, frame in enumerate(batch.frames):
            if len(frame) >= 8 and not batch.raw:
                self.number = (self.number + 1) % SENTINEL
                frame = frame[:4] + SIZE.pack(self.number) + frame[8:]
            counts = place >= batch.free and not (batch.probe and place == last)
            self.unanswered.append(Sent(frame, place, counts))
            parts.append(framed(frame))
        if batch.ends:
            parts.append(LAST)
        data = b"".join(parts)
        if batch.size is not None:
            data = SIZE.pack(batch.size) + data[SIZE.size :]
        if batch.cut:
            data = data[: -batch.cut]
        random = self.stage.random
        if random.random() < 0.1:
            places = sorted(random.randrange(len(data) + 1) for _ in range(3))
            pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
            self.outbox.extend(piece for piece in pieces if piece)
        elif data:
            self.outbox.append(data)
        self.push()
        if batch.cut or not batch.frames:
            self.stage.counts["cut"] += bool(batch.cut)
            self._finished(is_open=not batch.cut)

    def push(self) -> None:
        """One piece, or as much of it as the system takes."""
        if not self.outbox or self.socket is None:
            return
        piece = self.outbox.popleft()
        try:
            sent = self.socket.send(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.outbox.clear()
            return  # reading tells the end
        if sent < len(piece):
            self.outbox.appendleft(piece[sent:])

    def readable(self) -> None:
        assert self.socket is not None
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.unread += data
        self._take_answers()
        if not data or self.is_over:
            self._finished(is_open=False)
        elif self.last_seen or not (self.unanswered or self.batch.ends):
            self._finished(is_open=True)

    def _take_answers(self) -> None:
        unread = self.unread
        position = 0
        while len(unread) - position >= 4:
            (size,) = SIZE.unpack_from(unread, position)
            if len(unread) - position - 4 < size:
                break
            self._answered(bytes(unread[position + 4 : position + 4 + size]))
            position += 4 + size
        del unread[:position]

    def _answered(self, answer: bytes) -> None:
        raw = self.batch.raw
        if self.batch.ends and answer[:4] == b"\x7f\xff\xff\xff":
            self.last_seen = True
            return
        while self.unanswered:
            sent = self.unanswered.popleft()
            if raw or sent.frame[4:8] == answer[:4]:
                break
            if names_of(sent.frame)[0] != ApiKey.PRODUCE:  # others are never silent
                raise WrongAnswer(f"is not answered sent={sent.frame.hex()} answer={answer.hex()}")
            self._count(sent)
        else:
            raise WrongAnswer(f"answers nothing that was asked answer={answer.hex()}")
        self._count(sent)
        self.answers[sent.place] = answer
        if self.checks.check(self.stage.name, sent, answer, raw=raw):
            self.is_over = True

    def _count(self, sent: Sent) -> None:
        if sent.counts:
            self.stage.counts[self.stage.name] += 1
            self.stage.left -= 1

    def _finished(self, *, is_open: bool) -> None:
        unanswered = self.unanswered
        if not self.batch.cut:
            self.newest = self.since
        if self.last_seen:  # those were silent, or they would have been answered before
            for sent in unanswered:
                if names_of(sent.frame)[0] != ApiKey.PRODUCE:
                    raise WrongAnswer(f"is not answered sent={sent.frame.hex()}")
                self._count(sent)
        elif not is_open and unanswered and not self.is_over and not self.batch.cut:
            self._count(unanswered[0])
            self.stage.counts["closed"] += 1
            self.stage.counts["lost"] += len(unanswered) - 1
        assert self.visit is not None
        if not is_open:
            with suppress(StopIteration):
                self.visit.send(Answers(self.answers, False))
            self.end()
            return
        try:
            self._start(self.visit.send(Answers(self.answers, True)))
        except StopIteration:
            self.end()

    def end(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        if self.visit is not None:
            self.visit.close()
            self.visit = None

    def too_late(self) -> None:
        self.stage.counts["broken_off"] += 1
        self.end()


def attack(orders: Orders) -> None:
    counts: Counter[str] = Counter()
    checks = Checks(orders)
    stages = [Stage(name, orders, counts) for name in LANES if orders.frames.get(name)]
    lanes = [
        Lane(stage, checks, (orders.host, orders.port))
        for stage in stages
        for _ in range(LANES[stage.name])
    ]
    print(json.dumps({"ready": True}), flush=True)
    told = began = now = time.monotonic()
    until = began + (orders.seconds or math.inf)
    try:
        while any(stage.left > 0 for stage in stages) and time.monotonic() < until:
            for lane in lanes:
                if lane.socket is None and lane.stage.left > 0:
                    lane.begin()
            _turn(lanes)
            now = time.monotonic()
            newest = max(lane.newest for lane in lanes)
            for lane in lanes:
                if lane.socket is not None and lane.since < max(newest - PATIENCE_S, now - WAIT_S):
                    lane.too_late()
            if now - told >= 1.0:
                told = now
                print(json.dumps(counts), flush=True)
    except WrongAnswer as error:
        counts["over"] = 1
        print(json.dumps({**counts, "wrong": str(error)}), flush=True)
        return
    for lane in lanes:
        lane.end()
    print(json.dumps({**counts, "seconds": now - began, "over": 1}), flush=True)


def _turn(lanes: list[Lane]) -> None:
    """Whatever has come is read, and what waits is sent."""
    poll = select.poll()
    by_number = {}
    waits = False
    for lane in lanes:
        if lane.socket is not None:
            by_number[lane.socket.fileno()] = lane
            poll.register(lane.socket, select.POLLIN)
            waits = waits or bool(lane.outbox)
    for number, _ in poll.poll(0 if waits else 20):
        by_number[number].readable()
    for lane in by_number.values():
        lane.push()


# TLS


class TlsVisits:
    """One after the other, over blocking sockets: handshakes that are none, and frames inside of those that are."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.random = Random(f"{orders.seed} {TLS}")
        self.counts: Counter[str] = Counter()
        self.stranger, self.nobody = (Stage(name, orders, self.counts) for name in (STRANGER, NOBODY))  # fmt: skip
        self.checks = Checks(orders)
        self.context = ssl.create_default_context(cafile=orders.ca)

    def run(self) -> None:
        wanted = self.orders.frames[TLS]
        print(json.dumps({"ready": True}), flush=True)
        told = began = time.monotonic()
        until = began + (self.orders.seconds or math.inf)
        try:
            while self._done() < wanted and time.monotonic() < until:
                self._visit()
                if time.monotonic() - told >= 1.0:
                    told = time.monotonic()
                    print(json.dumps({**self.counts, TLS: self._done()}), flush=True)
        except WrongAnswer as error:
            print(json.dumps({**self.counts, "over": 1, "wrong": str(error)}), flush=True)
            return
        seconds = time.monotonic() - began
        done = {**self.counts, TLS: self._done(), "seconds": seconds, "over": 1}
        print(json.dumps(done), flush=True)

    def _done(self) -> int:
        return self.counts["handshakes"] + self.counts["inside"]

    def _visit(self) -> None:
        plain = socket.create_connection((self.orders.host, self.orders.port), WAIT_S)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        plain.settimeout(WAIT_S)
        try:
            # A visit with frames inside has dozens of them.
            is_due = 4 * self.counts["handshakes"] <= self.counts["inside"]
            match self.random.randrange(2) if is_due else 2:
                case 0:
                    self._instead(plain)
                case 1:
                    self._inside_of_the_handshake(plain)
                case _:
                    with self.context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                        self._frames(secured)
                        if self.random.random() < 0.2:
                            self._broken_records(secured)
        except OSError:
            self.counts["ended_early"] += 1
        finally:
            plain.close()

    def _instead(self, plain: socket.socket) -> None:
        random = self.random
        hello = self._hello()[1]
        kinds = (
            random.randbytes(random.randrange(1, 600)),
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            framed(self.stranger.frames.whole().data),
            damaged(hello, random),
            damaged(hello, random),
            hello[: random.randrange(1, len(hello))],
            b"\x16\x03\x01\xff\xff" + random.randbytes(100),
            b"\x15\x03\x03\x00\x02\x02\x28",
        )
        plain.sendall(random.choice(kinds))
        self._hear(plain)

    def _hello(self) -> tuple[tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO], bytes]:
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context.wrap_bio(came, goes, server_hostname="127.0.0.1")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        return (client, came, goes), goes.read()

    def _inside_of_the_handshake(self, plain: socket.socket) -> None:
        """The second flight is mutated, or is sent twice, or frames come in its place."""
        random = self.random
        (client, came, goes), hello = self._hello()
        plain.sendall(hello)
        flight = b""
        while not flight:
            data = plain.recv(1 << 16)
            if not data:
                return
            came.write(data)
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            flight = goes.read()
        frame = framed(self.nobody.frames.whole().data)
        kinds = (damaged(flight, random), flight + flight, flight + frame, frame, hello)
        plain.sendall(random.choice(kinds))
        self._hear(plain)

    def _broken_records(self, secured: ssl.SSLSocket) -> None:
        """Bytes that are no records of this session, past its cipher."""
        random = self.random
        record = b"\x17\x03\x03" + struct.pack(">H", random.choice((0, 1, 40, 16_384, 65_535)))
        with socket.socket(fileno=secured.detach()) as plain:
            plain.sendall(record + random.randbytes(random.randrange(100)))
            self._hear(plain)

    def _hear(self, plain: socket.socket) -> None:
        self.counts["handshakes"] += 1
        plain.settimeout(0.02)
        with suppress(OSError):
            while plain.recv(1 << 16):
                pass

    def _frames(self, secured: ssl.SSLSocket) -> None:
        stage = self.nobody if self.random.random() < 0.7 else self.stranger
        visit = stage.visit()
        number = 0
        answers: Answers | None = None
        while True:
            try:
                batch = next(visit) if answers is None else visit.send(answers)
            except StopIteration:
                return
            if batch.cut:
                secured.sendall(b"".join(map(framed, batch.frames))[: -batch.cut])
                return
            sent: deque[Sent] = deque()
            parts = []
            for place, frame in enumerate(batch.frames):
                if len(frame) >= 8 and not batch.raw:
                    number += 1
                    frame = frame[:4] + SIZE.pack(number) + frame[8:]
                sent.append(Sent(frame, place, counts=place >= batch.free))
                parts.append(framed(frame))
            if batch.ends:
                parts.append(LAST)
            if parts:
                secured.sendall(b"".join(parts))
            answers = self._answers(secured, stage, batch, sent)

    def _answers(
        self, secured: ssl.SSLSocket, stage: Stage, batch: Batch, sent: deque[Sent]
    ) -> Answers:
        found: list[bytes | None] = [None] * len(batch.frames)
        secured.settimeout(WAIT_S)
        while sent or batch.ends:
            answer = self._answer(secured)
            if answer is None:
                self.counts["inside"] += bool(sent and sent[0].counts)
                return Answers(found, False)
            if batch.ends and answer[:4] == b"\x7f\xff\xff\xff":
                self.counts["inside"] += len(sent)
                return Answers(found, True)
            while sent:
                first = sent.popleft()
                self.counts["inside"] += first.counts
                if batch.raw or first.frame[4:8] == answer[:4]:
                    found[first.place] = answer
                    if self.checks.check(stage.name, first, answer, raw=batch.raw):
                        return Answers(found, False)
                    break
        return Answers(found, True)

    def _answer(self, secured: ssl.SSLSocket) -> bytes | None:
        data = bytearray()
        wanted = 4
        while len(data) < wanted:
            try:
                piece = secured.recv(wanted - len(data))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
            if len(data) == 4 and wanted == 4:
                wanted += SIZE.unpack(data)[0]
        return bytes(data[4:])


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    orders = Orders(**given)
    if TLS in orders.frames:
        TlsVisits(orders).run()
    else:
        attack(orders)


if __name__ == "__main__":
    main()
