"""`ottla console`: a cluster in a browser; of any Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    addresses,
    client_settings,
)
from ottla.cli.errors import CONFLICT, UNREACHABLE, USAGE, Failure
from ottla.cli.explain import looking_around
from ottla.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from ottla.console.web.console_settings import ConsoleSettings

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MISSING = (
    "the console needs starlette and uvicorn: pip install 'ottla[console]' (in ottla's own sources scripts/setup"
    " installs them)"
)


def console(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    port: Annotated[
        int, typer.Option(help="Where browsers reach it; 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on. On another than a loopback address it is reached from other machines."
        ),
    ] = "127.0.0.1",
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Not only look: create, change, produce, delete.")
    ] = False,
    command_config: CommandConfigOption = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (PEM)."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")
    ] = None,
    login_without_tls: Annotated[
        bool,
        typer.Option(
            "--login-without-tls",
            help="Take passwords over plain HTTP from other machines; only where nobody else listens.",
        ),
    ] = False,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="URL",
            help="Where browsers reach it through a proxy, as https://console.example: only pages from there may log in or"
            " change anything.",
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="Of a proxy before it, whose X-Forwarded-For says who asks; may be repeated.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Another name of this machine, under which browsers reach it; may be repeated.",
        ),
    ] = None,
    listen_fd: Annotated[
        int | None,
        typer.Option("--listen-fd", hidden=True, help="A socket of ottla up that listens already."),
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """Show a cluster in a browser: what it does, and why.

    Works with any Kafka; a cluster of ottla tells more. On a secured cluster people log in with the cluster's own users, and
    see what these may see; of --command-config only how to reach and trust the cluster is used. It runs until Ctrl-C.
    """
    import secrets

    require_server()
    from ottla.client.security import SecuritySettingError
    from ottla.console.web.server import PortTaken, listen, serve, take_over
    from ottla.runtime.real import RealClock, run

    settings = _settings(
        bootstrap, dir, port, host, allow_writes, command_config, tls_cert, tls_key, name or []
    )
    settings = replace(
        settings,
        origin=None if origin is None else _origin(origin),
        proxies=frozenset(map(_proxy, proxy or ())),
    )
    may_be_heard = host not in LOOPBACK and not settings.is_reached_by_tls
    if settings.wants_login and may_be_heard and not login_without_tls:
        raise Failure(
            f"--host {host}: passwords would go over plain HTTP; give --tls-cert and --tls-key, or --origin https://NAME"
            " behind a proxy that does TLS, or --login-without-tls where nobody else listens",
            USAGE,
        )
    try:
        listening, settings = (
            listen(settings) if listen_fd is None else take_over(listen_fd, settings)
        )
    except PortTaken as error:
        raise Failure(f"--port: {error}; choose another one, or 0", CONFLICT) from None
    _announce(settings, format)
    try:
        run(serve(settings, listening, RealClock(), lambda: secrets.token_urlsafe(24)))
    except SecuritySettingError as error:
        raise Failure(f"--command-config: {error}", USAGE) from None


def require_server() -> None:
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise Failure(MISSING, USAGE)


def _settings(
    bootstrap: str | None,
    dir: Path | None,
    port: int,
    host: str,
    allow_writes: bool,
    command_config: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    names: list[str],
) -> ConsoleSettings:
    import socket

    from ottla.client.wanted import missing_security
    from ottla.console.web.console_settings import ConsoleSettings

    if (tls_cert is None) != (tls_key is None):
        raise Failure("--tls-cert and --tls-key go together", USAGE)
    reached = addresses(bootstrap, dir, command_config)
    properties = client_settings(bootstrap, dir, command_config)
    wanted = missing_security(reached, properties)
    if wanted is not None:
        raise Failure(wanted, UNREACHABLE)
    return ConsoleSettings(
        reached,
        properties,
        allow_writes,
        looking_around(bootstrap, dir),
        host,
        port,
        (socket.gethostname(), socket.getfqdn(), *names, *_certificate_names(tls_cert)),
        None if tls_cert is None else str(tls_cert),
        None if tls_key is None else str(tls_key),
    )


def _origin(url: str) -> str:
    from ottla.console.web.origins import origin_of

    try:
        return origin_of(url)
    except ValueError as error:
        raise Failure(f"--origin {url}: {error}", USAGE) from None


def _proxy(address: str) -> str:
    from ottla.console.web.origins import plain_address

    try:
        return plain_address(address)
    except ValueError as error:
        raise Failure(f"--proxy: {error}", USAGE) from None


def _certificate_names(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    from ottla.console.web.certificate_names import names_in

    try:
        return names_in(path)
    except (OSError, ValueError) as error:
        raise Failure(f"--tls-cert {path}: {error}", USAGE) from None


def _announce(settings: ConsoleSettings, format: Format) -> None:
    if format is Format.json:
        print_json(
            {
                "console": settings.url,
                "allow_writes": settings.allow_writes,
                "login": settings.wants_login,
                **({} if settings.origin is None else {"origin": settings.origin}),
            }
        )
        return
    may = "may change things" if settings.allow_writes else "may only look (--allow-writes)"
    through = "" if settings.origin is None else f", which browsers reach as {settings.origin}"
    print(f"console: {settings.url}{through}")
    if settings.wants_login:
        print(f"The cluster's own users log in there; they {may}, as far as their rights go.")
    elif settings.host in LOOPBACK:
        print(f"The cluster is open: everybody on this machine {may}.")
    else:
        print(f"The cluster is open: everybody who reaches {settings.host} {may}.")
    print("Ctrl-C ends it.", flush=True)
