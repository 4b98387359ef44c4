"""The roles of a replica, and the transitions between them (drawn in docs/STATES.md)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Role(Enum):
    OFFLINE = "no decision of the controller has reached it yet, or it is not served any more"
    LEADER = "appends what producers send and serves followers and consumers"
    FOLLOWER = "copies the leader's log, or waits for a leader; serves consumers near it"


TRANSITIONS: Mapping[tuple[Role, Role], str] = {
    (Role.OFFLINE, Role.LEADER): "the first decision that reaches it makes it the leader",
    (Role.OFFLINE, Role.FOLLOWER): "the first decision that reaches it makes it a follower",
    (Role.FOLLOWER, Role.LEADER): "it is elected",
    (Role.LEADER, Role.LEADER): "it leads on in a new leader epoch",
    (Role.LEADER, Role.FOLLOWER): "another replica is elected, or nobody leads",
    (Role.FOLLOWER, Role.FOLLOWER): "another leader or a new leader epoch is to be followed",
    (Role.LEADER, Role.OFFLINE): "its log directory failed, or the replica is removed",
    (Role.FOLLOWER, Role.OFFLINE): "its log directory failed, or the replica is removed",
}
