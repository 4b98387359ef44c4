"""Users and ACLs through Kafka's own APIs (KIP-140, KIP-554): this works with any Kafka that has an authorizer.

A password never leaves this process: the cluster gets a salt and the salted password, as Kafka's admin client sends them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.admin import BROKER, Admin
from ottla.client.client import Client
from ottla.client.connections import check
from ottla.security.acls import Acl, AclFilter
from ottla.security.authorizer import Authorizer
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.roles import acl_text
from ottla.security.scram import BY_NUMBER, ITERATIONS_MAX, MECHANISMS, salt_password
from ottla.security.secrets import Secret
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_CLASS: Final = "authorizer.class.name"
AUTHORIZER_SETTINGS: Final = (SUPER_USERS, ALLOW_EVERYONE, AUTHORIZER_CLASS)
ITERATIONS: Final = ITERATIONS_MAX
_SALT_BYTES: Final = 24


class ScramUser(NamedTuple):
    name: str
    credentials: tuple[tuple[str, int], ...]
    """Mechanism and iterations."""


def exactly(acl: Acl) -> AclFilter:
    return AclFilter(*acl)


class SecurityAdmin:
    """KafkaError if the cluster refuses; the rest as for `Client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # Users

    async def users(self) -> list[ScramUser]:
        """All that have SCRAM credentials, by name."""
        answer = await self._ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
        check(answer.error_code, answer.error_message)
        found = []
        for each in answer.results:
            check(each.error_code, each.error_message)
            credentials = sorted(
                (mechanism_name(int(info.mechanism)), int(info.iterations))
                for info in each.credential_infos
            )
            found.append(ScramUser(each.user, tuple(credentials)))
        return sorted(found)

    async def set_password(
        self, user: str, password: Secret, mechanisms: Iterable[str] = tuple(MECHANISMS)
    ) -> None:
        """One request for each mechanism: Kafka refuses a request that names a user twice."""
        for name in mechanisms:
            mechanism = MECHANISMS[name]
            salt = secrets.token_bytes(_SALT_BYTES)
            upsertion = {
                "name": user,
                "mechanism": mechanism.number,
                "iterations": ITERATIONS,
                "salt": salt,
                "salted_password": salt_password(mechanism, password, salt, ITERATIONS),
            }
            await self._alter({"deletions": [], "upsertions": [upsertion]})

    async def remove_user(self, user: ScramUser) -> None:
        for name, _ in user.credentials:
            deletion = {"name": user.name, "mechanism": MECHANISMS[name].number}
            await self._alter({"deletions": [deletion], "upsertions": []})

    async def _alter(self, fields: dict[str, Any]) -> None:
        answer = await self._ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields)
        for each in answer.results:
            check(each.error_code, each.error_message or f"user {each.user}")

    # ACLs

    async def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        answer = await self._ask(ApiKey.DESCRIBE_ACLS, _filter_fields(wanted or AclFilter()))
        check(answer.error_code, answer.error_message)
        return sorted(
            Acl(
                ResourceType(int(resource.resource_type)),
                PatternType(int(resource.pattern_type)),
                resource.resource_name,
                each.principal,
                each.host,
                AclOperation(int(each.operation)),
                Permission(int(each.permission_type)),
            )
            for resource in answer.resources
            for each in resource.acls
        )

    async def add_acls(self, acls: Sequence[Acl]) -> None:
        creations = [
            {
                "resource_type": int(acl.resource_type),
                "resource_name": acl.resource_name,
                "resource_pattern_type": int(acl.pattern_type),
                "principal": acl.principal,
                "host": acl.host,
                "operation": int(acl.operation),
                "permission_type": int(acl.permission),
            }
            for acl in acls
        ]
        answer = await self._ask(ApiKey.CREATE_ACLS, {"creations": creations})
        for acl, each in zip(acls, answer.results, strict=True):
            check(each.error_code, f"{acl_text(acl)}: {each.error_message or ''}")

    async def remove_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Those that are gone."""
        fields = {"filters": [_filter_fields(each) for each in filters]}
        answer = await self._ask(ApiKey.DELETE_ACLS, fields)
        gone = []
        for result in answer.filter_results:
            check(result.error_code, result.error_message)
            for each in result.matching_acls:
                check(each.error_code, each.error_message)
                gone.append(
                    Acl(
                        ResourceType(int(each.resource_type)),
                        PatternType(int(each.pattern_type)),
                        each.resource_name,
                        each.principal,
                        each.host,
                        AclOperation(int(each.operation)),
                        Permission(int(each.permission_type)),
                    )
                )
        return sorted(set(gone))

    # What is configured

    async def authorizer_settings(self) -> dict[str, str]:
        """Of one broker: who is a super user, and whether there is an authorizer at all."""
        broker = (await self._client.metadata([])).brokers[0].id
        resource = (BROKER, str(broker))
        described = await Admin(self._client).describe_configs([resource])
        return {
            each.name: each.value
            for each in described[resource]
            if each.name in AUTHORIZER_SETTINGS and each.value is not None
        }

    async def authorizer(self) -> tuple[Authorizer, bool]:
        """One that decides as the cluster's own does, from its ACLs and its super users; and whether the cluster says who
        these are, which Apache Kafka does not."""
        settings = await self.authorizer_settings()
        made = Authorizer(
            [each for each in settings.get(SUPER_USERS, "").split(";") if each],
            allow_everyone_if_no_acl_found=settings.get(ALLOW_EVERYONE) == "true",
        )
        made.replace_all(await self.acls())
        return made, SUPER_USERS in settings

    async def _ask(self, key: ApiKey, fields: dict[str, Any]) -> Any:
        async def attempt() -> Any:
            answer = await self._client.connections.ask(key, fields)
            code = int(getattr(answer, "error_code", 0))
            if code and KafkaError(ErrorCode(code), "").retriable:
                check(code, answer.error_message)
            return answer

        return await self._client.connections.retrying(attempt)


def mechanism_name(number: int) -> str:
    known = BY_NUMBER.get(number)
    return f"mechanism {number}" if known is None else known.name


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }
