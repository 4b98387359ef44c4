"""What the settings of a node say about its quorum: the voters, where they are, and how long to wait for them."""

from __future__ import annotations

from ottla.config import Settings
from ottla.raft.roles import Timing
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet

FETCH_WAIT_MS_MAX = 500


def static_voters(settings: Settings) -> VoterSet | None:
    if not settings.controller_quorum_voters:
        return None
    name = settings.controller_listener_names[0]
    return VoterSet.of(
        Voter(voter.id, None, (QuorumEndpoint(name, voter.host, voter.port),))
        for voter in settings.controller_quorum_voters
    )


def own_endpoint(settings: Settings) -> QuorumEndpoint | None:
    """Where the others reach this controller: what the voters' setting says, else what is advertised."""
    if not settings.is_controller:
        return None
    name = settings.controller_listener_names[0]
    for voter in settings.controller_quorum_voters:
        if voter.id == settings.node_id:
            return QuorumEndpoint(name, voter.host, voter.port)
    for listener in settings.advertised_listeners:
        if listener.name == name:
            return QuorumEndpoint(name, listener.host, listener.port)
    return None


def bootstrap_endpoints(settings: Settings) -> list[QuorumEndpoint]:
    name = settings.controller_listener_names[0]
    return [
        QuorumEndpoint(name, host, port)
        for host, port in settings.controller_quorum_bootstrap_servers
    ]


def timing(settings: Settings) -> Timing:
    fetch_timeout_ms = settings.controller_quorum_fetch_timeout_ms
    return Timing(
        election_timeout=settings.controller_quorum_election_timeout_ms / 1000,
        fetch_timeout=fetch_timeout_ms / 1000,
        election_backoff_max=settings.controller_quorum_election_backoff_max_ms / 1000,
        retry_backoff=settings.controller_quorum_retry_backoff_ms / 1000,
        # A fetch that waits longer than the timeout would look like a silent leader.
        fetch_wait_ms_max=min(FETCH_WAIT_MS_MAX, fetch_timeout_ms // 2),
        change_timeout=settings.controller_quorum_request_timeout_ms / 1000,
    )
