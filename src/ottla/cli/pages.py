"""Reading the HTTP pages of nodes."""

from __future__ import annotations

TIMEOUT_S = 10.0


def fetch(url: str, timeout_s: float = TIMEOUT_S, *, accept_errors: bool = False) -> str:
    """The page behind an http address. An error of the server is an OSError, unless its page is wanted too."""
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    try:
        # Nodes are reached directly, whatever proxies are set for the web.
        with build_opener(ProxyHandler({})).open(url, timeout=timeout_s) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        if not accept_errors:
            raise
        return str(error.read().decode())
