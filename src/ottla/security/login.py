"""What a mechanism says about a message of somebody who logs in. The mechanisms (`plain`, `scram`) and the table of states
(`sasl`) share these words, and a node without SASL imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

NAME_BYTES_MAX: Final = 1000
"""Of a user's name. Longer ones are refused before anything is done with them."""


MESSAGE_BYTES_MAX: Final = 8 * 1024
"""Of PLAIN and SCRAM: a name twice, with every character escaped, and a long password. Clients send a few hundred bytes. What a
stranger sends is kept until his login is over, and there may be a thousand strangers. Tokens of OAUTHBEARER are longer."""


class LoginRefused(Exception):
    """Nobody is let in. The reason is for the operator's log: a stranger is told nothing of it."""


def is_too_long(name: str) -> bool:
    return len(name) > NAME_BYTES_MAX or len(name.encode(errors="replace")) > NAME_BYTES_MAX


def check_length(message: bytes) -> None:
    """Before anything is made of it. LoginRefused if no client would send it."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes")


class Challenge(NamedTuple):
    """The client has to send another message."""

    message: bytes


class Accepted(NamedTuple):
    """The client has shown that it is this user."""

    user: str
    message: bytes = b""
    rests_on: tuple[str, int] | None = None
    """The stored credential (user, number of the SCRAM mechanism) without which the login would have failed. Of a
    delegation token: its id, and TOKEN."""
    expires_ms: int | None = None
    """Wall-clock milliseconds at which the credential ends; None: it does not."""
    by_token: bool = False
    """By a delegation token of this user."""


class Work(NamedTuple):
    """A computation that takes milliseconds: it belongs into a thread. It uses nothing that changes."""

    run: Callable[[], Accepted | None]
    """None: refused."""


Outcome: TypeAlias = Challenge | Accepted | Work


class Conversation(Protocol):
    """The server's half of one login by one mechanism."""

    claimed: str | None
    """Who the client says that it is, as soon as it has."""

    def evaluate(self, message: bytes) -> Outcome:
        """The answer to one message. LoginRefused ends the conversation."""
