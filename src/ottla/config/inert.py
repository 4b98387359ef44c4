"""Settings that Kafka lets an administrator change while it runs, and that have no effect here.

They size threads and buffers that ottla does not have, or say when logins are renewed that no node does. Kafka's tools and operators set them, so they are accepted,
checked as Kafka checks them, kept in the metadata and shown. Their documentation says that they do nothing. Settings that
promise something are not here: those are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.config.values import BOOLEAN, SHORT, SettingKind, decimal, integer, long


class InertSetting(NamedTuple):
    name: str
    kind: SettingKind[Any]
    default: str
    """Kafka's."""
    why: str

    @property
    def doc(self) -> str:
        return f"Has no effect here: {self.why}. Kept and shown as Kafka does."


_ONE_LOOP = "one event loop does all the work of a node"
_NO_KERBEROS = "nobody logs in by Kerberos"
_NO_RENEWAL = "logins of nodes need no refreshing"
_ROWS = (
    InertSetting("background.threads", integer(1), "10", _ONE_LOOP),
    InertSetting("num.io.threads", integer(1), "8", _ONE_LOOP),
    InertSetting("num.network.threads", integer(1), "3", _ONE_LOOP),
    InertSetting("num.replica.fetchers", integer(1), "1", "one fetcher follows each leader"),
    InertSetting(
        "num.recovery.threads.per.data.dir", integer(1), "2", "one thread recovers all logs"
    ),
    InertSetting(
        "log.cleaner.io.buffer.load.factor", decimal(), "0.9", "compaction has no such table"
    ),
    InertSetting(
        "log.cleaner.io.buffer.size", integer(0), str(512 << 10), "compaction reads whole batches"
    ),
    InertSetting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "transactions are always verified",
    ),
    InertSetting(
        "group.coordinator.cached.buffer.max.bytes",
        integer(512 << 10),
        str((1 << 20) + 12),
        "coordinators keep no such buffer",
    ),
    InertSetting("sasl.kerberos.min.time.before.relogin", long(), "60000", _NO_KERBEROS),
    InertSetting("sasl.kerberos.ticket.renew.jitter", decimal(), "0.05", _NO_KERBEROS),
    InertSetting("sasl.kerberos.ticket.renew.window.factor", decimal(), "0.8", _NO_KERBEROS),
    InertSetting("sasl.login.refresh.buffer.seconds", SHORT, "300", _NO_RENEWAL),
    InertSetting("sasl.login.refresh.min.period.seconds", SHORT, "60", _NO_RENEWAL),
    InertSetting("sasl.login.refresh.window.factor", decimal(), "0.8", _NO_RENEWAL),
    InertSetting("sasl.login.refresh.window.jitter", decimal(), "0.05", _NO_RENEWAL),
)
INERT: Mapping[str, InertSetting] = {row.name: row for row in _ROWS}
