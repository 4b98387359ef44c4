"""Bugs of logins and rights, many of them Kafka's."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any
from uuid import UUID

from ottla.broker.apis import fetch as fetch_api
from ottla.broker.apis import produce as produce_api
from ottla.broker.apis.describe import DescribeHandlers
from ottla.broker.apis.fetch import FetchHandler, SessionWatch
from ottla.broker.cluster import controller_service
from ottla.broker.cluster.controller_rights import check_cluster
from ottla.replica.sessions import FetchSession, SessionCache, SessionPartition
from ottla.security import needs, plain
from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer
from ottla.security.login import Accepted, Challenge, LoginRefused, Work
from ottla.security.oauth import Bearer, OAuthServer
from ottla.security.operations import (
    IMPLIED_BY,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import Principal
from ottla.security.rights import Rights
from ottla.security.sasl import SaslServer, Verdict
from ottla.security.scram import ClientFinal, ClientFirst, ScramServer
from ottla.security.secrets import Secret
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import SECURE
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchRequest

# Logins


@mutation("CVE-2024-56128", likely=SECURE)
def scram_nonces_are_not_compared() -> list[Patch]:
    """The nonce in a client's final message may be any: what somebody has recorded can be used again."""
    original = ScramServer._finish

    def finish(self: ScramServer, final: ClientFinal) -> Accepted | Work:
        return original(self, final._replace(nonce=self._nonce))

    return [Patch(ScramServer, "_finish", finish)]


@mutation("CVE-2017-12610", likely=SECURE)
def authorization_ids_are_not_compared() -> list[Patch]:
    """A user logs in with the authorization id of another."""
    begin, parse = ScramServer._begin, plain.parse

    def begin_login(self: ScramServer, first: ClientFirst) -> Challenge:
        return begin(self, first._replace(authzid=""))

    def parse_message(message: bytes) -> tuple[str, Secret]:
        return parse(b"\0" + message.partition(b"\0")[2])

    return [Patch(ScramServer, "_begin", begin_login), Patch(plain, "parse", parse_message)]


@mutation("own", likely=SECURE)
def scram_proofs_are_compared_by_their_beginning() -> list[Patch]:
    """Of a proof that is too short only as much is compared as there is: of an empty one, nothing."""
    original = ScramServer._finish

    def finish(self: ScramServer, final: ClientFinal) -> Accepted | Work:
        mechanism, found, size = self._mechanism, self._found, len(final.proof)
        assert self._first is not None and found is not None
        if size >= mechanism.size or not found.exists:
            return original(self, final)
        said = f"{self._first.bare},{self._challenge},{final.unproved}".encode()
        stored = found.credential.stored_key
        signature = mechanism.mac(stored, said)[:size]
        key = bytes(one ^ other for one, other in zip(final.proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.hash(key)[:size], stored[:size]):
            raise LoginRefused("the proof is wrong")
        return Accepted(found.user, rests_on=(self._first.name, mechanism.number))

    return [Patch(ScramServer, "_finish", finish)]


@mutation("own", likely=SECURE)
def unsigned_tokens_are_believed() -> list[Patch]:
    """A token of OAUTHBEARER whose algorithm is `none` says who somebody is."""
    original = OAuthServer._bearer

    def bearer(self: OAuthServer, text: str) -> Bearer:
        self._rules = self._rules._replace(allow_unsecured=True)
        return original(self, text)

    return [Patch(OAuthServer, "_bearer", bearer)]


@mutation("own", likely=SECURE)
def another_user_may_log_in_again() -> list[Patch]:
    """The second login on a connection may be that of another user."""
    original = SaslServer._accepted

    def accepted(self: SaslServer, accepted: Accepted, now: float, wall_ms: int) -> Verdict:
        if self.login is not None:
            self.login = self.login._replace(user=accepted.user)
        return original(self, accepted, now, wall_ms)

    return [Patch(SaslServer, "_accepted", accepted)]


@mutation("own", likely=SECURE)
def sessions_do_not_end() -> list[Patch]:
    """A login counts for ever, whatever `connections.max.reauth.ms` says."""

    def is_session_over(self: SaslServer, now: float) -> bool:
        return False

    return [Patch(SaslServer, "is_session_over", is_session_over)]


# The authorizer


@mutation("own", likely=SECURE)
def denials_of_prefixes_are_lost() -> list[Patch]:
    """A DENY whose pattern is a prefix has no effect."""
    original = Authorizer._covering

    def covering(self: Authorizer, resource_type: ResourceType, name: str) -> Iterator[Any]:
        for entries in original(self, resource_type, name):
            yield {
                who: [
                    acl
                    for acl in acls
                    if acl.pattern_type is not PatternType.PREFIXED
                    or acl.permission is not Permission.DENY
                ]
                for who, acls in entries.items()
            }

    return [Patch(Authorizer, "_covering", covering)]


@mutation("own", likely=SECURE)
def denials_imply_describe() -> list[Patch]:
    """Whoever is denied READ, WRITE, DELETE or ALTER is denied DESCRIBE, too."""
    original = Acl.is_about

    def is_about(self: Acl, host: str, operation: AclOperation) -> bool:
        implied = self.operation in IMPLIED_BY.get(operation, ())
        return original(self, host, operation) or (implied and self.is_from(host))

    return [Patch(Acl, "is_about", is_about)]


@mutation("CVE-2024-27309", likely=SECURE)
def one_of_several_acls_is_forgotten() -> list[Patch]:
    """With an ACL, another one of the same principal and resource is removed."""
    original = Authorizer._remove

    def remove(self: Authorizer, acl: Acl) -> None:
        prefixed = acl.pattern_type is PatternType.PREFIXED
        patterns = self._prefixed if prefixed else self._literal
        key = acl.resource_type, acl.resource_name
        of_principal = patterns.get(key, {}).get(acl.principal, [])
        if acl not in of_principal:
            return
        original(self, acl)
        if of_principal:
            original(self, of_principal[0])

    return [Patch(Authorizer, "_remove", remove)]


@mutation("own", likely=SECURE)
def removed_acls_are_remembered() -> list[Patch]:
    """What was decided before an ACL was removed still counts for connections that are open."""
    original = Authorizer.change

    def change(self: Authorizer, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        new = list(added)
        original(self, removed, new)
        if not new:
            self.generation -= 1

    return [Patch(Authorizer, "change", change)]


# Requests


class _Met(needs.Need):
    """A need that everybody meets."""

    def met(self, rights: Rights | None, name: str = "") -> bool:
        return True


def _unneeded(owner: ModuleType, name: str) -> Patch:
    need: needs.Need = getattr(owner, name)
    return Patch(owner, name, _Met(need.any_of, need.denied))


@mutation("CVE-2018-1288", likely=SECURE)
def anybody_may_fetch_as_a_follower() -> list[Patch]:
    """A Fetch that names a replica id is that of a replica, without CLUSTER_ACTION."""
    return [_unneeded(fetch_api, "FOLLOW_TOPIC")]


@mutation("CVE-2018-17196", likely=SECURE)
def transactional_batches_need_no_right() -> list[Patch]:
    """Produce does not look whether a batch is transactional."""

    def is_transactional(records: memoryview) -> bool:
        return False

    return [Patch(produce_api, "is_transactional", is_transactional)]


@mutation("CVE-2023-50976", likely=SECURE)
def transactions_need_no_right() -> list[Patch]:
    """The APIs of transactions do not ask for WRITE on the transactional id."""
    return [_unneeded(needs, "WRITE_TRANSACTION")]


@mutation("own", likely=SECURE)
def envelopes_have_the_rights_of_their_broker() -> list[Patch]:
    """What a broker passes on is decided by what the broker may do."""

    def on_behalf_of(self: Rights, principal: Principal, host: str, api_key: int) -> Rights:
        return self

    return [Patch(Rights, "on_behalf_of", on_behalf_of)]


@mutation("own", likely=SECURE)
def anybody_may_send_envelopes() -> list[Patch]:
    """Who sends a request in the name of another needs no CLUSTER_ACTION."""

    def check(key: ApiKey, rights: Rights | None) -> None:
        if key is not ApiKey.ENVELOPE:
            check_cluster(key, rights)

    return [Patch(controller_service, "check_cluster", check)]


@mutation("own", likely=SECURE)
def metadata_answers_are_for_everybody() -> list[Patch]:
    """The cached answer to a Metadata request is given to everybody who asks the same."""
    return [Patch(Rights, "is_super_user", property(lambda self: True))]


@mutation("own", likely=SECURE)
def absent_topics_are_told_to_anybody() -> list[Patch]:
    """Metadata looks for a topic first, and for rights only if there is one: so it tells which topics exist."""
    original = DescribeHandlers._asked_topic

    def asked_topic(
        self: DescribeHandlers,
        name: str | None,
        topic_id: UUID | None,
        rights: Rights | None,
        *others: Any,
    ) -> dict[str, Any]:
        exists = topic_id or name in self._cluster.image.topics
        return original(self, name, topic_id, rights if exists else None, *others)

    return [Patch(DescribeHandlers, "_asked_topic", asked_topic)]


@mutation("own", likely=SECURE)
def absent_users_are_refused_at_once() -> list[Patch]:
    """SCRAM challenges only users that exist: so it tells who does."""
    original = ScramServer._begin

    def begin(self: ScramServer, first: ClientFirst) -> Challenge:
        challenge = original(self, first)
        if self._found is not None and not self._found.exists:
            raise LoginRefused("there is no such user")
        return challenge

    return [Patch(ScramServer, "_begin", begin)]


@mutation("own", likely=SECURE)
def fetch_sessions_are_for_everybody() -> list[Patch]:
    """Who names the id of a fetch session may use it."""
    original = SessionCache.resume

    def resume(
        self: SessionCache,
        request: FetchRequest,
        now: float,
        owner: object = None,
        *,
        by_id: bool = True,
    ) -> FetchSession:
        known = self._sessions.get(request.session_id)
        whose = owner if known is None else known.owner
        return original(self, request, now, whose, by_id=by_id)

    return [Patch(SessionCache, "resume", resume)]


@mutation("own", likely=SECURE)
def parked_fetches_keep_their_rights() -> list[Patch]:
    """A fetch that waits for records gets them, though the right was taken away meanwhile."""
    original = SessionWatch._refused

    def refused(
        self: SessionWatch, rights: Rights, fetch: FetchRequest, known: SessionPartition
    ) -> ErrorCode | None:
        return None if self.is_parked else original(self, rights, fetch, known)

    def rights_changed(self: FetchHandler) -> None:
        return None

    return [
        Patch(SessionWatch, "_refused", refused),
        Patch(FetchHandler, "rights_changed", rights_changed),
    ]
