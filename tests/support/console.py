"""A console as a process, and what browsers ask of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from ottla.console.model.tables import replay
from support.cluster import OTTLA


class ConsoleProcess:
    """`with ConsoleProcess("--bootstrap", …) as console:`"""

    def __init__(self, *options: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [OTTLA, "console", "--port", "0", "--format", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate(timeout=10)
            raise AssertionError(f"the console did not start: {errors}")
        self.url: str = json.loads(line)["console"]
        self.host = urlsplit(self.url).netloc
        self.own_url = self.url
        """Where it listens, also when `url` and `host` lead through a proxy."""
        self.errors = ""
        """What it printed there, once it has ended."""
        self.cookie: str | None = None
        """Of who has logged in."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            _, self.errors = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise AssertionError("the console did not end") from None
        assert "Traceback" not in self.errors, self.errors

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, heads in lower case, and body."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        if self.url.startswith("https"):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(self.host, timeout=30, context=context)
        sent = {} if self.cookie is None else {"cookie": self.cookie}
        try:
            connection.request(method, path, body=body, headers={**sent, **(headers or {})})
            answer = connection.getresponse()
            heads = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, heads, answer.read()
        finally:
            connection.close()

    def get(self, name: str, **parameters: object) -> Any:
        status, _, body = self.ask(f"/api/{name}?{urlencode(parameters)}")
        assert status == 200, (status, body)
        return json.loads(body)

    def post(self, name: str, /, **fields: Any) -> tuple[int, Any]:
        """As the console's own page does it."""
        status, _, answer = self.posted(name, **fields)
        return status, answer

    def posted(self, name: str, /, **fields: Any) -> tuple[int, Mapping[str, str], Any]:
        heads = {
            "origin": self.url,
            "content-type": "application/json",
            "x-ottla-token": self.get("session")["token"],
        }
        status, told, body = self.ask(
            f"/api/{name}", method="POST", headers=heads, body=json.dumps(fields).encode()
        )
        return status, told, json.loads(body)

    def log_in(self, user: str, password: str, mechanism: str | None = None) -> int:
        """The status. With 200, all further requests are of that visit."""
        fields = {"user": user, "password": password, "mechanism": mechanism}
        return self._enter(**fields, certificate=None, key=None, key_password=None)

    def log_in_with_certificate(self, certificate: str | None, key: str | None) -> int:
        fields = {"certificate": certificate, "key": key, "key_password": None}
        return self._enter(user=None, password=None, mechanism=None, **fields)

    def _enter(self, **fields: Any) -> int:
        self.cookie = None
        status, heads, _ = self.posted("login", **fields)
        if status == 200:
            self.cookie = heads["set-cookie"].partition(";")[0]
        return status

    def behind(self, origin: str) -> None:
        """All further requests go there."""
        self.url, self.host = origin, urlsplit(origin).netloc

    @contextmanager
    def page(self, page: str, **parameters: object) -> Iterator[OpenPage]:
        """A page that is open: its stream is read as it comes."""
        path = f"/api/stream?{urlencode({'page': page, **parameters})}"
        opened = OpenPage(self.host, path, cookie=self.cookie)
        try:
            yield opened
        finally:
            opened.close()


class OpenPage:
    """The tables of a page as its stream makes them, read by a thread."""

    def __init__(
        self, host: str, path: str, last_event_id: str = "", *, cookie: str | None = None
    ) -> None:
        self._connection = http.client.HTTPConnection(host, timeout=30)
        heads = {"last-event-id": last_event_id, **({} if cookie is None else {"cookie": cookie})}
        self._connection.request("GET", path, headers=heads)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        self._lines = iter(answer.readline, b"")
        self._changed = threading.Condition()
        self._state: dict[str, Any] = {}
        self.id = ""
        self.events = 0
        self.bytes = 0
        self.is_over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._lines:
                self.bytes += len(line)
                name, _, value = line.decode().rstrip("\n").partition(": ")
                with self._changed:
                    if name == "id":
                        self.id = value
                    elif name == "data":
                        self._state = replay(self._state, json.loads(value)["news"])
                        self.events += 1
                        self._changed.notify_all()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # closed
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def table(self, name: str) -> dict[str, Any]:
        rows: dict[str, Any] = self._state.get("tables", {}).get(name, {})
        return rows

    def wait(self, condition: Callable[[OpenPage], Any], timeout: float, what: str) -> Any:
        """The first true value of the condition, looked at whenever something is new."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                value = condition(self)
                if value:
                    return value
                left = deadline - time.monotonic()
                assert left > 0, (
                    f"not within {timeout} s: {what}; problems {self.table('problems')}"
                )
                self._changed.wait(left)

    def close(self) -> None:
        # Closing the socket under a reader may wait for it: shutting down does not.
        if self._connection.sock is not None:
            self._connection.sock.close()
        self._connection.close()
