"""Who may ask at all, and what every answer tells the browser about itself.

- A name that is not ours in `Host` is refused: a page of another site could have that name resolve to this address, and read
  what it gets (DNS rebinding). An IP address cannot be rebound.
- A request that another site causes is refused: browsers say so in `Sec-Fetch-Site`.
- Whoever changes something must come from our own page (`Origin`), and show a token that only our own page can read.
- Every answer carries the headers that OWASP lists for a page that shows nothing of others and is shown by no others.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER: Final = "x-ottla-token"
SAFE: Final = ("GET", "HEAD")
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "x-permitted-cross-domain-policies": "none",
}
STRICT_TRANSPORT: Final = "max-age=31536000"


class Guard:
    """Middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, names: Collection[str], *, tls: bool, origin: str | None = None
    ) -> None:
        """`names`: of this machine, under which the console is reached, beside its addresses. `tls`: browsers reach it over TLS,
        its own or that of a proxy. `origin`: where they do so, if it is not where it listens."""
        self._app = app
        self._names = {name.lower() for name in (*names, "localhost")}
        self._tls = tls
        self._origin = origin
        if origin is not None:
            self._names.add(urlsplit(origin).hostname or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._tls:
                    headers.setdefault("strict-transport-security", STRICT_TRANSPORT)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            answer = PlainTextResponse(f"{refusal}\n", 403)
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return (
                f"The console does not answer to the name {hosts[0] if hosts else '(none)'}."
                " Use an address of its machine, or the machine's own name."
            )
        site = headers.get("sec-fetch-site", "same-origin")
        navigates = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in SAFE
        if site not in ("same-origin", "none") and not (navigates and scope["path"][:5] != "/api/"):
            return "Another site asked for this."
        if scope["method"] not in SAFE and not self._is_own_origin(headers, hosts[0]):
            return "Only the console's own pages may change something."
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None:
            return False
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_own_origin(self, headers: Headers, host: str) -> bool:
        own = self._origin or f"{'https' if self._tls else 'http'}://{host}"
        return headers.get("origin") == own


def shows_token(headers: Headers, token: str) -> bool:
    """Whether a request shows the token of its viewer."""
    shown = headers.get(TOKEN_HEADER, "")
    return hmac.compare_digest(shown.encode(), token.encode())


Chance = Callable[[], str]
"""Makes text that nobody can guess."""
