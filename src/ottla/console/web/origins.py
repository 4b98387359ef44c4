"""Where browsers reach the console, and from where: with a proxy before it neither is what its own connections say."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

USUAL_PORTS: Final = {"http": 80, "https": 443}
IPV6_NETWORK: Final = 64
"""Bits of an IPv6 address that say whose it is: the others each machine may choose as it likes."""


def origin_of(url: str) -> str:
    """As browsers write it in `Origin`: `https://console.example`. ValueError if it is no scheme with a host."""
    parts = urlsplit(url)
    usual = USUAL_PORTS.get(parts.scheme)
    if usual is None or not parts.hostname or not parts.netloc.isascii():
        raise ValueError("it is like https://console.example")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("it has a scheme, a host and a port, and nothing else")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port
    return f"{parts.scheme}://{host}" + ("" if port in (None, usual) else f":{port}")


def port_of(origin: str) -> int:
    """ValueError if it is none."""
    parts = urlsplit(origin)
    return parts.port or USUAL_PORTS[parts.scheme]


def address_of(scope: Scope, proxies: Collection[str]) -> str:
    """From where somebody asks: of X-Forwarded-For only that is believed which our own proxies have written, each at its end."""
    client = scope.get("client")
    found = plain_address(client[0]) if client else ""
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    while found in proxies and forwarded:
        try:
            found = plain_address(forwarded.pop().strip())
        except ValueError:
            break
    return found


def plain_address(text: str) -> str:
    """Written in one way only. ValueError if it is none."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def network_of(address: str) -> str:
    """Whose an address is, as far as that can be told."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], IPV6_NETWORK), strict=False))
