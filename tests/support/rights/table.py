"""One request for each row of `security.needs`: which rights it needs, what is answered with all of them, and what without each.

The table is run unchanged against a node in the test's own process, against a cluster of real processes, and against Apache Kafka
with its StandardAuthorizer. So it says what Kafka does. Where ottla differs on purpose the exchange has `kafka` or
`served_by_kafka`, and docs/RIGHTS.md the reason. A row of a new API fails `test_rights_by_row` until it has an exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.security.needs import ON_BROKER, ON_CONTROLLER, RequestForm
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey
from support.private_requests import PRIVATE_QUESTIONS
from support.rights.changes import CHANGES, LOGGERS_OF_CONTROLLER
from support.rights.exchange import Listener
from support.rights.groups import GROUPS
from support.rights.metadata import METADATA
from support.rights.nodes import FREE, NODES
from support.rights.records import RECORDS
from support.rights.several import SEVERAL
from support.rights.transactions import TRANSACTIONS


def forms(listener: Listener, key: int) -> tuple[RequestForm, ...]:
    """What `security.needs` says about the request at this listener: on brokers also of what they pass on."""
    if listener is Listener.CONTROLLER:
        return ON_CONTROLLER[key]
    is_passed_on = key not in PRIVATE_APIS and APIS[ApiKey(key)].forwarded
    return (
        *ON_BROKER[key],
        *(
            form
            for form in (ON_CONTROLLER[key] if is_passed_on else ())
            if form.when != LOGGERS_OF_CONTROLLER
        ),
    )


EXCHANGES: Final = (
    *METADATA,
    *RECORDS,
    *GROUPS,
    *TRANSACTIONS,
    *CHANGES,
    *NODES,
    *FREE,
    *SEVERAL,
)
CASES: Final = [(listener, each) for each in EXCHANGES for listener in each.at]

NO_EXCHANGE: Final[Mapping[tuple[Listener, int, str], str]] = {
    (
        Listener.BROKER,
        ApiKey.INIT_PRODUCER_ID,
        "a transactional id and two-phase commit",
    ): "version 6, which ottla does not serve",
    (
        Listener.BROKER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "a subscribed pattern",
    ): "Kafka looks for matching topics later, no answer says it at once: test_rights_of_groups",
    **{
        (
            Listener.BROKER,
            key,
            form.when,
        ): "Kafka has no such request: test_rights_under_attack"
        for key in PRIVATE_QUESTIONS
        for form in ON_BROKER[key]
    },
    **{
        (
            listener,
            key,
            "the audit or the event log",
        ): "Kafka has no such topics: test_rights_on_controllers"
        for listener in Listener
        for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)
    },
    (
        Listener.CONTROLLER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "always",
    ): "no controller serves it",
}
"""Forms that have none, and why."""

TOKEN_APIS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
