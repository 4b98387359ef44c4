"""Channels to other nodes, each to the node that was meant.

What a node shows of itself is checked here, whichever way it is reached: a network without security, or a `NodeDialer`.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ottla.runtime.seams import Network
from ottla.wire.channel import Channel

logger = logging.getLogger(__name__)


class DialledNode(NamedTuple):
    node: int
    host: str
    port: int


async def open_channel(
    network: Network, node: int, host: str, port: int, client_id: str
) -> Channel:
    """A channel to this node; below zero, its id is not known yet. ConnectionError if the certificate of who answers is bound to
    other nodes: whoever has taken the key of node 2 could vote as node 3 as well, by answering at its address."""
    channel = await Channel.open(network, host, port, client_id)
    identity = channel.identity
    if node >= 0 and identity is not None and identity.certificate is not None:
        from ottla.security.node_claims import certified_nodes

        nodes = certified_nodes(identity.certificate)
        if nodes is not None and node not in nodes:
            others = ", ".join(map(str, sorted(nodes))) or "nobody"
            reason = (
                f"the certificate at {host}:{port} is that of node {others}, not of node {node}"
            )
            logger.warning(
                "closing connection to a node, its certificate is of another one reason=%s", reason
            )
            channel.abort(reason)
            raise ConnectionError(reason)
    return channel
