"""Logging in with the cluster's own users: what the cluster accepts, the console accepts, and nothing else.

A password, or a certificate with its key, is used for the connections of that visit and is nowhere else. It is neither logged
nor written. What a refusal says does not depend on whether the user exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from ottla.client.client import Client
from ottla.client.connections import Address, SecurityRefused, Unreachable
from ottla.client.secured import SecuredNetwork
from ottla.client.security import ClientTls, Sasl, Security, SecuritySettingError
from ottla.console.web.answers import AnswerRefused, console_of, fields_of, json_response
from ottla.console.web.console_settings import TIMEOUT_S, ConsoleSettings
from ottla.console.web.login_throttle import LoginThrottle
from ottla.console.web.origins import address_of, network_of, port_of
from ottla.console.web.visits import Registered, TooManyVisits, Visits

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
AT_ONCE_MAX: Final = 4
"""Logins that are tried at the same time: each costs a processor some milliseconds."""
NAME_MAX: Final = 256
PASSWORD_BODY_MAX, CERTIFICATE_BODY_MAX = 16 << 10, 64 << 10
"""Bytes of a whole form: anybody may send one, and all that are under way are kept."""
TRUST: Final = ("ssl.truststore.", "ssl.endpoint.identification.algorithm")
"""Settings of whom the console trusts. Its own certificate, if it has one, is nobody else's."""
REFUSED: Final = "The cluster does not let you in with that."


class LoginSettings:
    """What logging in needs, from the properties of Kafka's clients. Whose credentials may stand there does not matter: the
    console has no rights of its own."""

    def __init__(self, bootstrap: list[Address], properties: Mapping[str, str]) -> None:
        """SecuritySettingError if the properties cannot be followed."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        self.by_password = protocol.startswith("SASL")
        self.bootstrap = bootstrap
        stated = properties.get("sasl.mechanism", MECHANISMS[0]).strip().upper()
        self.mechanism = stated if stated in MECHANISMS else MECHANISMS[0]
        # Only how the cluster is known and trusted is taken from there.
        trust = {name: value for name, value in properties.items() if name.startswith(TRUST)}
        tls = protocol.endswith("SSL")
        self._tls = Security.of({**trust, "security.protocol": "SSL"}).tls if tls else None

    def by_name(self, user: str, password: str, mechanism: str) -> Security:
        return Security(self._tls, Sasl(mechanism, user, password))

    def by_certificate(
        self, certificate: str | None, key: str | None, key_password: str | None
    ) -> Security:
        assert self._tls is not None, "without TLS there are no certificates"
        return Security(
            ClientTls(self._tls.truststore, certificate, key, key_password, self._tls.check_host)
        )

    def connecting(self, security: Security) -> Callable[[], Client]:
        """SecuritySettingError if a certificate or a key cannot be read."""
        loop = asyncio.get_running_loop()
        network = SecuredNetwork(loop, security)
        return lambda: Client(
            network, self.bootstrap, client_id="ottla-console", timeout_s=TIMEOUT_S
        )


class LoginForm:
    """Lets people in. One for each console of a secured cluster."""

    def __init__(self, settings: LoginSettings, visits: Registered) -> None:
        self.settings = settings
        self.visits = visits
        self.throttle = LoginThrottle()
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def as_json(self) -> dict[str, Any]:
        """What a page needs to show a form."""
        return {
            "by": "password" if self.settings.by_password else "certificate",
            "mechanisms": MECHANISMS,
            "mechanism": self.settings.mechanism,
        }

    async def enter(self, address: str, user: str, security: Callable[[], Security]) -> str:
        """The name of the visit. AnswerRefused if the cluster does not let them in, or if it is too soon."""
        self._require_patience(address, user)
        async with self._turns:
            # Others may have been refused meanwhile.
            self._require_patience(address, user)
            self.throttle.tries(address, user, self.visits.clock.monotonic())
            try:
                connect = self.settings.connecting(security())
                client = connect()
                try:
                    await client.metadata([])
                finally:
                    client.connections.close()
            except (SecurityRefused, SecuritySettingError):
                raise AnswerRefused(401, REFUSED) from None
            except (Unreachable, OSError):
                if self.settings.by_password:
                    self.throttle.not_tried(address, user)
                    # Where its brokers are is not for everybody.
                    raise AnswerRefused(502, "The cluster does not answer.") from None
                # With TLS 1.3 a broker refuses a certificate by closing the connection: nobody can tell that from a failure.
                raise AnswerRefused(401, f"{REFUSED} Or it does not answer.") from None
            self.throttle.let_in(address, user)
        try:
            return await self.visits.begin(connect, user)
        except TooManyVisits:
            raise AnswerRefused(503, "Too many people are logged in.") from None

    def _require_patience(self, address: str, user: str) -> None:
        wait_s = self.throttle.wait_s(address, user, self.visits.clock.monotonic())
        if wait_s > 0:
            raise AnswerRefused(
                429, f"Too many refusals. Try again in {max(1, round(wait_s))} s.", wait_s
            )


def login_form_of(request: Request) -> LoginForm:
    form = request.app.state.form
    if not isinstance(form, LoginForm):
        raise AnswerRefused(404, "This cluster is open: nobody logs in.")
    return form


TEXT: Final = (str, type(None))


async def log_in(request: Request) -> Response:
    """Either `user`, `password` and `mechanism`, or `certificate`, `key` and `key_password` (PEM)."""
    form = login_form_of(request)
    settings = form.settings
    names = ("user", "password", "mechanism", "certificate", "key", "key_password")
    bytes_max = PASSWORD_BODY_MAX if settings.by_password else CERTIFICATE_BODY_MAX
    given = await fields_of(request, bytes_max, **dict.fromkeys(names, TEXT))
    address = network_of(address_of(request.scope, console_of(request).proxies))
    if settings.by_password:
        user, password = given["user"] or "", given["password"] or ""
        mechanism = given["mechanism"] or settings.mechanism
        if not user or not password or len(user) > NAME_MAX or mechanism not in MECHANISMS:
            raise AnswerRefused(400, "A name and a password are wanted.")
        name = await form.enter(address, user, lambda: settings.by_name(user, password, mechanism))
    else:
        certificate, key = given["certificate"], given["key"]
        user = _subject(certificate)
        name = await form.enter(
            address,
            user,
            lambda: settings.by_certificate(certificate, key, given["key_password"]),
        )
    answer = json_response({"user": user})
    _set_cookie(request, answer, name)
    return answer


def _subject(certificate: str | None) -> str:
    """Who the certificate says it is, to show it. Whether that is so, the cluster decides."""
    if not certificate:
        return "nobody in particular"
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(certificate.encode()).subject.rfc4514_string()
    except ValueError:
        raise AnswerRefused(400, "The certificate is no PEM text.") from None


async def log_out(request: Request) -> Response:
    form = login_form_of(request)
    name = request.cookies.get(cookie_of(console_of(request), request.headers))
    if name is not None:
        await form.visits.end(name)
    answer = json_response({"done": True})
    answer.delete_cookie(
        cookie_of(console_of(request), request.headers),
        path="/",
        secure=console_of(request).is_reached_by_tls,
        httponly=True,
        samesite="strict",
    )
    answer.headers["clear-site-data"] = '"cache", "storage"'
    return answer


def cookie_of(console: ConsoleSettings, headers: Headers) -> str:
    """With TLS, a name that browsers take only from this very host, over TLS, for all of its paths. Browsers give cookies to all
    ports of a host: the name has the port, as they know it, so that two consoles do not log each other out."""
    scheme = "https" if console.is_reached_by_tls else "http"
    try:
        port = port_of(console.origin or f"{scheme}://{headers.get('host', '')}")
    except ValueError:
        port = console.port
    return f"{'__Host-' if console.is_reached_by_tls else ''}ottla-{port}"


def _set_cookie(request: Request, answer: Response, name: str) -> None:
    """It ends with the browser; the console ends it earlier."""
    answer.set_cookie(
        cookie_of(console_of(request), request.headers),
        name,
        path="/",
        secure=console_of(request).is_reached_by_tls,
        httponly=True,
        samesite="strict",
    )


def visits_of(request: Request) -> Visits:
    visits: Visits = request.app.state.visits
    return visits
