"""Kafka's names that are not in our table, and the error for each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, NoReturn

from ottla.config.sources import Entry
from ottla.config.values import ConfigError

# Kafka's settings that size or tune machinery we do not have. They change nothing here.
_HARMLESS = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    background.threads broker.id.generation.enable controlled.shutdown.max.retries
    controller.quorum.append.linger.ms socket.listen.backlog.size
    controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes controller.socket.timeout.ms
    delete.records.purgatory.purge.interval.requests early.start.listeners
    eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
    group.coordinator.append.linger.ms
    group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
    group.coordinator.threads
    inter.broker.protocol.version leader.imbalance.check.threads
    leader.imbalance.per.broker.percentage
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.dir.failure.timeout.ms
    log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
    message.format.version metadata.log.segment.min.bytes num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.fetchers
    offsets.load.buffer.size
    offsets.topic.compression.codec
    producer.id.expiration.check.interval.ms
    producer.purgatory.purge.interval.requests queued.max.request.bytes queued.max.requests
    replica.socket.receive.buffer.bytes reserved.broker.max.id server.max.startup.time.ms
    share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.receive.buffer.bytes socket.send.buffer.bytes
    transaction.partition.verification.enable transaction.state.log.load.buffer.size
    unstable.api.versions.enable unstable.feature.versions.enable
    ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm
    sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter
"""
HARMLESS = frozenset(_HARMLESS.split())

# Beginnings of Kafka's names that promise something we do not do.
SHARE_GROUPS = "share groups are not served yet"
STREAMS_GROUPS = "streams groups are not served yet; Kafka Streams works with the classic protocol"
GROUP_KINDS_NOT_YET = (("group.share.", SHARE_GROUPS), ("group.streams.", STREAMS_GROUPS))
NOT_YET = (
    *GROUP_KINDS_NOT_YET,
    ("sasl.kerberos.", "GSSAPI (Kerberos) is not served; use SCRAM-SHA-512, or certificates"),
    ("sasl.oauthbearer.token.endpoint", "nodes do not log in by OAUTHBEARER themselves"),
    ("sasl.oauthbearer.header.urlencode", "nodes do not log in by OAUTHBEARER themselves"),
    ("sasl.oauthbearer.assertion.", "nodes do not log in by OAUTHBEARER themselves"),
    ("sasl.oauthbearer.client.", "nodes do not log in by OAUTHBEARER themselves"),
    ("sasl.oauthbearer.jwt.", "Java classes cannot be loaded; tokens are verified by the JWKS"),
    ("sasl.login.", "Java classes cannot be loaded, and logins of nodes need no refreshing"),
    ("sasl.client.callback", "Java classes cannot be loaded"),
    ("sasl.server.callback", "Java classes cannot be loaded"),
    ("ssl.engine.factory", "Java classes cannot be loaded"),
    ("security.providers", "Java classes cannot be loaded"),
    ("principal.builder", "Java classes cannot be loaded"),
    ("delegation.token.master.key", "its name is delegation.token.secret.key now"),
    ("remote.", "tiered storage is not served"),
    ("follower.fetch.last.tiered", "tiered storage is not served"),
    ("transaction.two.phase.commit", "two-phase commit is not served"),
    ("internal.", "Kafka's internal settings are not ours"),
    (
        "zookeeper.",
        "ZooKeeper is not used; the controllers are a quorum (controller.quorum.voters)",
    ),
    ("control.plane.", "ZooKeeper is not used; see controller.listener.names"),
    ("client.quota", "Java classes cannot be loaded"),
    ("create.topic.policy", "Java classes cannot be loaded"),
    ("alter.config.policy", "Java classes cannot be loaded"),
    ("metric.reporters", "Java metric reporters are not served; metrics.listeners is"),
    ("metrics.num.samples", "Java metric reporters are not served; metrics.listeners is"),
    ("metrics.recording.level", "Java metric reporters are not served; metrics.listeners is"),
    ("metrics.sample.window.ms", "Java metric reporters are not served; metrics.listeners is"),
    ("auto.include.jmx.reporter", "Java metric reporters are not served"),
    ("kafka.metrics", "Java metric reporters are not served"),
    (
        "group.consumer.regex.refresh.interval.ms",
        "patterns are matched anew whenever topics come or go, never by the clock",
    ),
    ("log.preallocate", "segments grow as they are written"),
    ("log.local.retention", "tiered storage is not served"),
    ("config.providers", "Java classes cannot be loaded"),
)


# Each topic setting, and the node's setting that gives its default.
TOPIC_TO_SERVER = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "max.message.bytes": "message.max.bytes",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


class NotYet(NamedTuple):
    """A topic setting that may only have Kafka's default, with which it asks for nothing."""

    type_name: str
    default: str
    server_name: str
    why: str


_TIERED = "tiered storage is not served"
TOPIC_NOT_YET: Final = {
    "remote.storage.enable": NotYet("BOOLEAN", "false", "remote.storage.enable", _TIERED),
    "local.retention.ms": NotYet("LONG", "-2", "log.local.retention.ms", _TIERED),
    "local.retention.bytes": NotYet("LONG", "-2", "log.local.retention.bytes", _TIERED),
    "remote.log.copy.disable": NotYet("BOOLEAN", "false", "remote.log.copy.disable", _TIERED),
    "remote.log.delete.on.disable": NotYet(
        "BOOLEAN", "false", "remote.log.delete.on.disable", _TIERED
    ),
    "preallocate": NotYet(
        "BOOLEAN", "false", "log.preallocate", "segments grow as they are written"
    ),
}


GROUP_NOT_YET = (("share.", SHARE_GROUPS), ("streams.", STREAMS_GROUPS))
"""Beginnings of settings of one group."""


def not_served(name: str) -> str | None:
    """Why a setting of share or streams groups is refused, also at run time; None for any other."""
    for beginning, why in (*GROUP_KINDS_NOT_YET, ("share.", SHARE_GROUPS)):
        if name.startswith(beginning):
            return why
    return None


def refuse_unknown(entry: Entry, known: Iterable[str]) -> NoReturn:
    if not entry.marked:
        words = f"{entry.name} {entry.value}".rstrip()
        if any(part in entry.name for part in ("pass", "jaas", "secret", "key", "certificate")):
            words = f"{entry.name} …"
        raise ConfigError(f"{entry.where}: '{words}' is not NAME=VALUE")
    for beginning, why in NOT_YET:
        if entry.name.startswith(beginning):
            raise ConfigError(f"{entry.where}: {entry.name}: {why}")
    if entry.name in TOPIC_TO_SERVER:
        server_name = TOPIC_TO_SERVER[entry.name]
        raise ConfigError(
            f"{entry.where}: {entry.name}: is a topic's setting; a node's is {server_name}"
        )
    raise ConfigError(f"{entry.where}: {entry.name}: no such setting{nearest(entry.name, known)}")


def nearest(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(names), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
