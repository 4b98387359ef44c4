"""The names of `kafka.` options: those that are followed here, and those that only Kafka's own clients know.

A name that is on neither list and nearly one of the first is a slip of the pen. Without the second list it could not be told
from a setting that simply means nothing here: Kafka's names are many and alike.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FOLLOWED: Final = _words(
    """
    acks batch.size bootstrap.servers check.crcs client.id client.rack compression.type default.api.timeout.ms
    delivery.timeout.ms enable.transactions fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id isolation.level
    max.partition.fetch.bytes receive.buffer.bytes request.timeout.ms retry.backoff.ms sasl.jaas.config sasl.mechanism
    security.protocol ssl.endpoint.identification.algorithm ssl.key.password ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.type transaction.timeout.ms
    """
)

OF_KAFKAS_CLIENTS: Final = frozenset(
    _words(
        """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.controllers
    buffer.memory client.dns.lookup compression.gzip.level compression.lz4.level compression.zstd.level
    connections.max.idle.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes key.deserializer
    key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.class partitioner.ignore.keys reconnect.backoff.max.ms reconnect.backoff.ms retries
    retry.backoff.max.ms sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    security.providers send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols ssl.engine.factory.class
    ssl.keymanager.algorithm ssl.keystore.password ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.password transactional.id value.deserializer value.serializer
    """
    )
)
