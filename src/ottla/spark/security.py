"""How a connection is made safe: Kafka's `security.protocol` and what belongs to it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from ottla.spark.errors import OptionError
from ottla.spark.options import KAFKA, Options

Exchange = Callable[[bytes], bytes]


class Security(NamedTuple):
    protocol: str

    @classmethod
    def of(cls, options: Options) -> Security:
        name = KAFKA + "security.protocol"
        protocol = (options.text(name) or "PLAINTEXT").strip().upper()
        if protocol != "PLAINTEXT":
            raise OptionError(name, f"'{protocol}' is not supported, only PLAINTEXT is")
        return cls(protocol)

    def encrypted(self, plain: socket.socket, host: str) -> socket.socket:
        return plain

    def authenticate(self, exchange: Exchange) -> None:
        """Nothing to prove."""
