"""Who may ask at all: hosts, sites, origins; and what every answer tells the browser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.datastructures import Headers

from ottla.console.web.console_settings import ConsoleSettings
from ottla.console.web.guard import Guard
from ottla.console.web.login import cookie_of
from ottla.console.web.origins import address_of, origin_of


def answered(
    path: str = "/api/session",
    *,
    method: str = "GET",
    tls: bool = False,
    public: str | None = None,
    **headers: Any,
) -> tuple[int, Mapping[str, str]]:
    """Status and heads, with the heads of a request as keywords: `sec_fetch_site`."""
    return _ask([(n.replace("_", "-"), v) for n, v in headers.items()], path, method, tls, public)


def _ask(
    headers: list[tuple[str, str]],
    path: str = "/",
    method: str = "GET",
    tls: bool = False,
    public: str | None = None,
) -> tuple[int, Mapping[str, str]]:
    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "query_string": b"",
    }
    guard = Guard(inner, ["console.example"], tls=tls, origin=public)
    asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]
    head = sent[0]
    return head["status"], {n.decode(): v.decode() for n, v in head["headers"]}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:8080", "10.1.2.3:1", "CONSOLE.example:8080"],
)  # fmt: skip
def test_it_answers_to_its_addresses_and_its_names(host: str) -> None:
    assert answered(host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "console.example.evil.example", "a b", "[::1"],
)  # fmt: skip
def test_it_does_not_answer_to_names_that_anybody_may_point_at_it(host: str) -> None:
    status, heads = answered(host=host)
    assert status == 403
    assert "content-security-policy" in heads


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    assert _ask([])[0] == 403
    assert _ask([("host", "localhost"), ("host", "evil.example")])[0] == 403


def test_another_site_may_link_to_it_and_read_nothing() -> None:
    local: dict[str, Any] = {"host": "localhost"}
    assert (
        answered("/timeline", sec_fetch_site="cross-site", sec_fetch_mode="navigate", **local)[0]
        == 200
    )
    assert (
        answered("/timeline", sec_fetch_site="cross-site", sec_fetch_mode="no-cors", **local)[0]
        == 403
    )
    assert (
        answered("/api/events", sec_fetch_site="cross-site", sec_fetch_mode="navigate", **local)[0]
        == 403
    )
    assert answered("/api/events", sec_fetch_site="same-site", **local)[0] == 403
    assert answered("/api/events", sec_fetch_site="same-origin", **local)[0] == 200
    assert answered("/api/events", sec_fetch_site="none", **local)[0] == 200


@pytest.mark.parametrize(
    ("origin", "tls", "status"),
    [
        ("http://localhost:8080", False, 200),
        ("https://localhost:8080", True, 200),
        ("https://localhost:8080", False, 403),
        ("http://localhost:8080", True, 403),
        ("http://localhost:9090", False, 403),
        ("http://evil.example", False, 403),
        ("null", False, 403),
        (None, False, 403),
    ],
)
def test_only_its_own_pages_change_something(origin: str | None, tls: bool, status: int) -> None:
    heads: dict[str, Any] = {} if origin is None else {"origin": origin}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        found, _ = answered("/api/x", method=method, tls=tls, host="localhost:8080", **heads)
        assert found == status


PUBLIC = "https://public.example"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("public.example", PUBLIC, 200),
        # A proxy may put the address to which it sends in the place of the name that it was asked for.
        ("127.0.0.1:8080", PUBLIC, 200),
        ("public.example", "http://public.example", 403),
        ("public.example", "https://public.example:8443", 403),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 403),
        ("127.0.0.1:8080", "https://127.0.0.1:8080", 403),
        ("elsewhere.example", PUBLIC, 403),
    ],
)
def test_behind_a_proxy_its_own_pages_are_those_of_the_proxy(
    host: str, origin: str, status: int
) -> None:
    found, heads = answered(
        "/api/x", method="POST", tls=True, public=PUBLIC, host=host, origin=origin
    )
    assert found == status
    assert "strict-transport-security" in heads


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Console.example", "https://console.example"),
        ("https://console.example:443/", "https://console.example"),
        ("http://console.example:8080", "http://console.example:8080"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_an_origin_is_kept_as_browsers_write_it(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("client", "forwarded", "found"),
    [
        ("10.9.9.9", ["1.2.3.4"], "10.9.9.9"),  # no proxy of ours: it may say what it likes
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6", "1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6, 1.2.3.4, 10.0.0.2"], "1.2.3.4"),
        ("::ffff:10.0.0.1", ["2001:DB8::1"], "2001:db8::1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
    ],
)
def test_of_a_proxy_only_what_it_added_itself_is_believed(
    client: str, forwarded: list[str], found: str
) -> None:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    scope = {"type": "http", "client": (client, 1), "headers": headers}
    assert address_of(scope, {"10.0.0.1", "10.0.0.2"}) == found


@pytest.mark.parametrize(
    ("host", "tls", "origin", "name"),
    [
        ("localhost:8081", False, None, "ottla-8081"),
        ("localhost", False, None, "ottla-80"),
        ("[::1]:8081", False, None, "ottla-8081"),
        ("localhost:x", False, None, "ottla-8080"),
        ("console.example:8443", True, None, "__Host-ottla-8443"),
        ("console.example", True, None, "__Host-ottla-443"),
        ("127.0.0.1:8080", False, PUBLIC, "__Host-ottla-443"),
        ("127.0.0.1:8080", False, "https://public.example:8443", "__Host-ottla-8443"),
        ("127.0.0.1:8080", False, "http://public.example", "ottla-80"),
    ],
)
def test_a_cookie_has_the_port_that_browsers_know(
    host: str, tls: bool, origin: str | None, name: str
) -> None:
    console = ConsoleSettings([], tls_certificate="file" if tls else None, origin=origin)
    assert cookie_of(console, Headers({"host": host})) == name


def test_every_answer_carries_what_owasp_lists() -> None:
    _, heads = answered(host="localhost")
    assert heads["x-content-type-options"] == "nosniff"
    assert heads["x-frame-options"] == "DENY"
    assert heads["referrer-policy"] == "no-referrer"
    assert heads["cross-origin-opener-policy"] == "same-origin"
    assert heads["cross-origin-resource-policy"] == "same-origin"
    assert "strict-transport-security" not in heads
    assert "strict-transport-security" in answered(host="localhost", tls=True)[1]


def test_the_policy_takes_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = dict(
        part.split(" ", 1) for part in answered(host="localhost")[1]["content-security-policy"].split("; ")
    )  # fmt: skip
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in policy if name.endswith("-src") and name != "default-src"} == {
        "'self'"
    }
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
