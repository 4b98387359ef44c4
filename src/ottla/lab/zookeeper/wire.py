"""The messages on the wire of the simulated ZooKeeper. Integers are big-endian; the connection adds a frame's length.

    request    xid int32, opcode int32, operation
    response   xid int32, zxid int64, error int32, result (or the text of the error)
    event      xid -1, type int32, path

Strings, data and lists begin with their length as int32, booleans are one byte. This is how ZooKeeper lays out its own
messages, without ACLs, times and passwords. Leader and follower exchange requests and responses of the same form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.lab.zookeeper import model
from ottla.lab.zookeeper.errors import ZooKeeperError, error_of
from ottla.lab.zookeeper.model import EventType, Multi, OpCode, Stat, Txn, WatchEvent

EVENT_XID = -1
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_REQUEST = struct.Struct(">ii")
_RESPONSE = struct.Struct(">iqi")
_TXN = struct.Struct(">qqi")
_STAT = struct.Struct(">qqqiiqii")


class FollowRequest(NamedTuple):
    """From the leader, when it connects to the follower. The zxid of the answer is the follower's last one."""

    zxid: int
    """The leader's last one. The follower forgets what it has beyond."""


class TxnProposal(NamedTuple):
    """From the leader. The follower answers when the transaction is on its disk."""

    txn: bytes


_LAYOUTS: dict[OpCode, tuple[type[Any], str]] = {
    OpCode.CREATE: (model.CreateNode, "sdbb"),
    OpCode.DELETE: (model.DeleteNode, "si"),
    OpCode.EXISTS: (model.Exists, "sb"),
    OpCode.GET_DATA: (model.GetData, "sb"),
    OpCode.SET_DATA: (model.SetData, "sdi"),
    OpCode.GET_CHILDREN: (model.GetChildren, "sb"),
    OpCode.PING: (model.Ping, ""),
    OpCode.CHECK: (model.CheckVersion, "si"),
    OpCode.MULTI: (model.Multi, "o"),
    OpCode.SET_WATCHES: (model.SetWatches, "lvvv"),
    OpCode.CONNECT: (model.ConnectRequest, "li"),
    OpCode.CREATE_SESSION: (model.CreateSession, "i"),
    OpCode.CLOSE_SESSION: (model.CloseSession, ""),
    OpCode.FOLLOW: (FollowRequest, "l"),
    OpCode.PROPOSE: (TxnProposal, "d"),
}
"""s: string, d: data, b: boolean, i: int32, l: int64, v: list of strings, o: operations."""
_OPCODES = {kind: opcode for opcode, (kind, _) in _LAYOUTS.items()}


def opcode_of(operation: Any) -> OpCode:
    return _OPCODES[type(operation)]


# Values


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _encoded(layout: str, values: Sequence[Any]) -> bytes:
    out = []
    for kind, value in zip(layout, values, strict=True):
        match kind:
            case "s":
                out.append(_sized(value.encode()))
            case "d":
                out.append(_sized(value))
            case "b":
                out.append(b"\1" if value else b"\0")
            case "i":
                out.append(_INT.pack(value))
            case "l":
                out.append(_LONG.pack(value))
            case "v":
                out.append(_INT.pack(len(value)))
                out += [_sized(each.encode()) for each in value]
            case "t":
                out.append(_STAT.pack(*value))
            case _:
                assert kind == "o"
                out.append(_INT.pack(len(value)))
                for each in value:
                    out.append(_INT.pack(opcode_of(each)))
                    out.append(encode_operation(each))
    return b"".join(out)


class _Reader:
    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    def number(self, layout: struct.Struct = _INT) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def data(self) -> bytes:
        size = self.number()
        self._position += size
        return self._data[self._position - size : self._position]

    def values(self, layout: str) -> list[Any]:
        return [self._value(kind) for kind in layout]

    def _value(self, kind: str) -> Any:
        match kind:
            case "s":
                return self.data().decode()
            case "d":
                return self.data()
            case "b":
                self._position += 1
                return self._data[self._position - 1] != 0
            case "i":
                return self.number()
            case "l":
                return self.number(_LONG)
            case "v":
                return tuple(self.data().decode() for _ in range(self.number()))
            case "t":
                self._position += _STAT.size
                return Stat(*_STAT.unpack_from(self._data, self._position - _STAT.size))
            case _:
                assert kind == "o"
                return tuple(self.operation(OpCode(self.number())) for _ in range(self.number()))

    def operation(self, opcode: OpCode) -> Any:
        kind, layout = _LAYOUTS[opcode]
        return kind(*self.values(layout))


def encode_operation(operation: Any) -> bytes:
    return _encoded(_LAYOUTS[opcode_of(operation)][1], operation)


# Transactions, as in the logs and in proposals


def encode_txn(txn: Txn) -> bytes:
    head = _TXN.pack(txn.zxid, txn.session, opcode_of(txn.operation))
    return head + encode_operation(txn.operation)


def decode_txn(data: bytes) -> Txn:
    zxid, session, opcode = _TXN.unpack_from(data)
    return Txn(zxid, session, _Reader(data, _TXN.size).operation(OpCode(opcode)))


def txn_zxid(data: bytes) -> int:
    return int(_TXN.unpack_from(data)[0])


def txn_label(data: bytes) -> str:
    return OpCode(_TXN.unpack_from(data)[2]).label


# Requests


def framed(content: bytes) -> bytes:
    """With its length, as a connection sends it."""
    return _sized(content)


def encode_request(xid: int, operation: Any) -> bytes:
    return _REQUEST.pack(xid, opcode_of(operation)) + encode_operation(operation)


def decode_request(content: bytes) -> tuple[int, Any]:
    xid, opcode = _REQUEST.unpack_from(content)
    return xid, _Reader(content, _REQUEST.size).operation(OpCode(opcode))


# Responses. Their layout depends on the operation; "?" before a layout: there may be none.

_RESULTS: dict[OpCode, str] = {
    OpCode.CREATE: "s",
    OpCode.DELETE: "",
    OpCode.EXISTS: "?t",
    OpCode.GET_DATA: "dt",
    OpCode.SET_DATA: "t",
    OpCode.GET_CHILDREN: "v",
    OpCode.PING: "",
    OpCode.CHECK: "",
    OpCode.SET_WATCHES: "",
    OpCode.CONNECT: "l",
    OpCode.CLOSE_SESSION: "",
    OpCode.FOLLOW: "",
    OpCode.PROPOSE: "",
}


class ServerResponse(NamedTuple):
    xid: int
    zxid: int
    error: ZooKeeperError | None
    content: bytes
    position: int

    def result(self, operation: Any) -> Any:
        return _read_result(operation, _Reader(self.content, self.position))


def encode_response(xid: int, zxid: int, operation: Any, result: Any) -> bytes:
    return _RESPONSE.pack(xid, zxid, 0) + _encoded_result(operation, result)


def encode_error(xid: int, zxid: int, error: ZooKeeperError) -> bytes:
    return _RESPONSE.pack(xid, zxid, error.code) + _sized(str(error).encode())


def decode_response(content: bytes) -> ServerResponse:
    xid, zxid, code = _RESPONSE.unpack_from(content)
    error = None
    if code:
        error = error_of(code, _Reader(content, _RESPONSE.size).data().decode())
    return ServerResponse(xid, zxid, error, content, _RESPONSE.size)


def _encoded_result(operation: Any, result: Any) -> bytes:
    if isinstance(operation, Multi):
        each = zip(operation.operations, result, strict=True)
        return b"".join(_encoded_result(one, answer) for one, answer in each)
    layout = _RESULTS[opcode_of(operation)]
    if layout.startswith("?"):
        return b"\0" if result is None else b"\1" + _encoded(layout[1:], [result])
    if not layout:
        assert result is None
        return b""
    return _encoded(layout, result if len(layout) > 1 else [result])


def _read_result(operation: Any, reader: _Reader) -> Any:
    if isinstance(operation, Multi):
        return [_read_result(each, reader) for each in operation.operations]
    layout = _RESULTS[opcode_of(operation)]
    if layout.startswith("?"):
        (is_given,) = reader.values("b")
        layout = layout[1:] if is_given else ""
    values = reader.values(layout)
    if isinstance(operation, model.GetChildren):
        return list(values[0])
    return tuple(values) if len(values) > 1 else values[0] if values else None


# Events


def encode_event(event: WatchEvent) -> bytes:
    return _REQUEST.pack(EVENT_XID, event.type.value) + _sized(event.path.encode())


def decode_event(content: bytes) -> WatchEvent | None:
    """None: it is a response."""
    xid, kind = _REQUEST.unpack_from(content)
    if xid != EVENT_XID:
        return None
    return WatchEvent(EventType(kind), _Reader(content, _REQUEST.size).data().decode())


# What a counter of messages wants to know


def request_kind(frame: memoryview) -> str:
    return f"zookeeper_{OpCode(_REQUEST.unpack_from(frame)[1]).label}"


def event_kind(frame: memoryview) -> str | None:
    """None: it is a response."""
    (xid,) = _INT.unpack_from(frame)
    return "zookeeper_watch_event" if xid == EVENT_XID else None
