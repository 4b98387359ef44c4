"""The console as an ASGI application: which path is served by whom."""

from __future__ import annotations

import contextlib
import hashlib
import mimetypes
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

import ottla
from ottla.client.connections import Unreachable
from ottla.console.model.tables import NOTHING
from ottla.console.web import (
    explaining,
    groups,
    lab,
    messages,
    moves,
    partitions,
    past,
    security,
    topics,
    transactions,
)
from ottla.console.web.answers import (
    Answer,
    AnswerRefused,
    answering,
    console_of,
    in_turn,
    json_response,
    refusal_response,
    viewer_of,
)
from ottla.console.web.console_settings import ConsoleSettings
from ottla.console.web.guard import Guard, shows_token
from ottla.console.web.login import (
    LoginForm,
    LoginSettings,
    cookie_of,
    log_in,
    log_out,
    login_form_of,
    visits_of,
)
from ottla.console.web.pages import content_of
from ottla.console.web.stream import NewsStream
from ottla.console.web.viewer import STREAMS_MAX, Viewer
from ottla.console.web.visits import Registered, Visits

ASSETS: Final = "/assets"
A_YEAR: Final = "public, max-age=31536000, immutable"
FIRST_PAGES: Final = ("pages/overview.js", "pages/login.js")
VERSION_DIGITS_MAX: Final = 18
LOOPBACK: Final = ("127.0.0.1", "::1")
TYPES: Final = {".js": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml"}


class Assets:
    """The files of the front end, in memory: they are few and small. Their path has a hash of all of them, so that browsers
    keep them for good, and a new version has another path."""

    def __init__(self) -> None:
        root = files("ottla.console").joinpath("static")
        self._files: dict[str, bytes] = {}
        pending = [("", root)]
        while pending:
            prefix, folder = pending.pop()
            for each in folder.iterdir():
                if each.is_dir():
                    pending.append((f"{prefix}{each.name}/", each))
                elif not each.name.endswith(".md"):
                    self._files[prefix + each.name] = each.read_bytes()
        digest = hashlib.sha256()
        for name, data in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + data)
        self.base = f"{ASSETS}/{digest.hexdigest()[:16]}"
        # Browsers find out what a module imports only when they have it. Named at once, all of them come together.
        preloads = "\n".join(
            f'<link rel="modulepreload" href="{self.base}/{name}">'
            for name in sorted(self._files)
            if name.endswith(".js") and (not name.startswith("pages/") or name in FIRST_PAGES)
        )
        self._index = (
            self._files.pop("index.html")
            .replace(b"{{assets}}", self.base.encode())
            .replace(b"{{preloads}}", preloads.encode())
        )

    async def index(self, request: Request) -> Response:
        return Response(self._index, headers={"cache-control": "no-cache"}, media_type="text/html")

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        data = self._files.get(name)
        if data is None or request.path_params["version"] != self.base.rpartition("/")[2]:
            return Response("no such file\n", 404, media_type="text/plain")
        suffix = name[name.rfind(".") :]
        kind = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(data, headers={"cache-control": A_YEAR}, media_type=kind)


def instance_of(process: str, viewer: Viewer) -> str:
    """Names the model whose versions a page counts: each viewer has one of its own, in each process another. Whoever comes back
    as somebody else must not get what is new laid over the rows of the user before."""
    return hashlib.sha256(f"{process} {viewer.token}".encode()).hexdigest()[:16]


async def _stream(request: Request) -> ASGIApp:
    viewer = viewer_of(request)
    if viewer.streams >= STREAMS_MAX:
        raise AnswerRefused(503, "Too many pages are open.")
    query = dict(request.query_params)
    try:
        content = content_of(query.get("page", ""), query)
    except (KeyError, ValueError) as error:
        raise AnswerRefused(404, f"There is no such page: {error}.") from None
    instance = instance_of(request.app.state.instance, viewer)
    known, _, version = request.headers.get("last-event-id", "").partition(":")
    is_version = version.isdecimal() and len(version) <= VERSION_DIGITS_MAX
    since = int(version) if known == instance and is_version else NOTHING
    far = request.client is not None and request.client.host not in LOOPBACK
    compressed = far and "gzip" in request.headers.get("accept-encoding", "")
    return NewsStream(viewer, content, since, instance, compressed=compressed)


async def _session(request: Request) -> Response:
    """Who looks; or, to nobody, how to log in."""
    console, viewer = console_of(request), request.scope.get("viewer")
    if not isinstance(viewer, Viewer):
        form = login_form_of(request)
        return json_response({"login": form.as_json(), "token": form.visits.token})
    return json_response(
        {
            "version": ottla.__version__,
            "token": viewer.token,
            "allow_writes": console.allow_writes,
            "bootstrap": ",".join(f"{host}:{port}" for host, port in console.bootstrap),
            "command_option": console.told_of_it(viewer.is_open)[1].option,
            "user": viewer.user,
        }
    )


READS: Final[dict[str, Answer]] = {
    "past": past.past,
    "events": past.events,
    "kinds": past.kinds,
    "explain": explaining.explain,
    "replicas": partitions.replicas,
    "messages": messages.browse,
    "messages/one": messages.one,
    "messages/tail": messages.tail,
    "messages/whole": messages.whole,
    "messages/histogram": messages.histogram,
    "topics/settings": topics.settings,
    "topics/known-settings": topics.known_settings,
    "topics/producers": topics.producers,
    "moves/plan": moves.plan,
    "moves/run": moves.run,
    "security": security.overview,
    "security/test": security.test,
    "lab": lab.scenarios,
    "lab/play": lab.play,
}
ASKS: Final[dict[str, Answer]] = {
    "groups/preview-reset": in_turn(groups.preview_reset),
    "lab/trace": lab.trace,
}
"""Questions with a body. They change nothing. A trace has turns of its own, since it is large and asks no cluster."""
WRITES: Final[dict[str, Answer]] = {
    "messages/produce": messages.produce,
    "groups/reset": groups.reset,
    "groups/delete": groups.delete,
    "topics/create": topics.create,
    "topics/alter": topics.alter,
    "topics/add-partitions": topics.add_partitions,
    "topics/delete": topics.delete,
    "topics/delete-records": topics.delete_records,
    "moves/start": moves.start,
    "moves/cancel": moves.cancel,
    "moves/elect": moves.elect,
    "transactions/abort": transactions.abort,
    "transactions/abort-hanging": transactions.abort_hanging,
    "security/add-acl": security.add_acl,
    "security/remove-acl": security.remove_acl,
    "security/set-password": security.set_password,
    "security/remove-user": security.remove_user,
}


def _writing(handler: Answer) -> Answer:
    async def answer(request: Request) -> Response:
        if not console_of(request).allow_writes:
            raise AnswerRefused(
                403, "This console only reads: it was started without --allow-writes."
            )
        return await handler(request)

    return answer


def _showing_token(handler: Answer) -> Answer:
    async def answer(request: Request) -> Response:
        if not shows_token(request.headers, viewer_of(request).token):
            raise AnswerRefused(403, "The page is older than the console: load it again.")
        return await handler(request)

    return answer


def _for_anybody(handler: Answer) -> Answer:
    """Also for who has not logged in."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except AnswerRefused as refusal:
            return refusal_response(refusal)
        except (Unreachable, OSError):
            return refusal_response(AnswerRefused(502, "The cluster does not answer."))

    return answer


def _showing_own_token(handler: Answer) -> Answer:
    async def answer(request: Request) -> Response:
        viewer = request.scope.get("viewer")
        token = viewer.token if isinstance(viewer, Viewer) else visits_of(request).token
        if not shows_token(request.headers, token):
            raise AnswerRefused(403, "The page is older than the console: load it again.")
        return await handler(request)

    return answer


class Admission:
    """Middleware: who asks, by the cookie of a visit."""

    def __init__(self, app: ASGIApp, visits: Visits, console: ConsoleSettings) -> None:
        self._app = app
        self._visits = visits
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            request = Request(scope)
            name = request.cookies.get(cookie_of(self._console, request.headers))
            scope["viewer"] = self._visits.viewer_of(name)
        await self._app(scope, receive, send)


def application(console: ConsoleSettings, visits: Visits, instance: str) -> ASGIApp:
    """SecuritySettingError if nobody could log in with these settings."""
    assets = Assets()

    def route(name: str, handler: Answer, method: str) -> Route:
        return Route(f"/api/{name}", answering(handler), methods=[method])

    def open_route(name: str, handler: Answer, method: str) -> Route:
        return Route(f"/api/{name}", _for_anybody(handler), methods=[method])

    routes: list[BaseRoute] = [
        open_route("session", _session, "GET"),
        open_route("login", _showing_own_token(log_in), "POST"),
        open_route("logout", _showing_own_token(log_out), "POST"),
        *(route(name, in_turn(handler), "GET") for name, handler in READS.items()),
        *(route(name, _showing_token(handler), "POST") for name, handler in ASKS.items()),
        *(
            route(name, _showing_token(_writing(in_turn(handler))), "POST")
            for name, handler in WRITES.items()
        ),
        Route("/api/stream", answering(_stream), methods=["GET"]),  # type: ignore[arg-type]
        Route("/api/{name:path}", answering(_no_such_thing), methods=["GET", "POST"]),
        Route(ASSETS + "/{version}/{name:path}", assets.file),
        Route("/{path:path}", assets.index),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with visits:
            yield

    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.console = console
    app.state.instance = instance
    app.state.lab = lab.LabProcesses()
    app.state.visits = visits
    app.state.form = None
    if isinstance(visits, Registered):
        app.state.form = LoginForm(
            LoginSettings(list(console.bootstrap), console.properties), visits
        )
    admitted = Admission(app, visits, console)
    return Guard(admitted, console.names, tls=console.is_reached_by_tls, origin=console.origin)


async def _no_such_thing(request: Request) -> Response:
    raise AnswerRefused(404, "There is no such thing.")
