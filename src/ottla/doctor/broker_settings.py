"""Settings that differ from broker to broker although they should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.doctor.finding import Case, FindingSeverity, HealthFinding, Rule, ids, unset

OF_ONE_NODE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "cordoned.log.dirs",
        "follower.replication.throttled.rate",
        "inter.broker.listener.name",
        "leader.replication.throttled.rate",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "metrics.listeners",
        "node.id",
        "process.roles",
    }
)
"""Settings that may differ from node to node. Another rule tells of cordons and of throttles."""
FILES_OF_ONE_NODE = (".location", ".certificate.chain")
"""How settings end that name a node's own files (ssl.keystore.location, with or without listener.name.X. before it)."""


def settings_differ(case: Case) -> Iterator[HealthFinding]:
    configs = case.facts.broker_configs
    values: dict[str, dict[int, str | None]] = {}
    chosen = set()
    for broker, settings in configs.items():
        for each in settings:
            if not each.sensitive and not _may_differ(each.name):
                values.setdefault(each.name, {})[broker] = each.value
                if not each.is_default:
                    chosen.add(each.name)
    # Brokers of ottla and of Apache Kafka in one cluster have defaults of their own.
    for name, by_broker in sorted(values.items()):
        if name in chosen and len(by_broker) == len(configs) and len(set(by_broker.values())) > 1:
            by_command = [id for id in by_broker if case.facts.is_set_on(id, name)]
            in_doubt = sorted(by_broker, key=by_command.__contains__)  # what a command set is odd
            most, _ = Counter(by_broker[id] for id in in_doubt).most_common(1)[0]
            shown = ", ".join(f"broker {id}: {value}" for id, value in sorted(by_broker.items()))
            odd = [id for id, value in sorted(by_broker.items()) if value != most]
            mends = [unset(case, id, name) for id in odd if id in by_command]
            if in_file := [id for id in odd if id not in by_command]:
                do = f"take {name} out of" if most is None else f"set {name}={most} in"
                mends.append(f"{do} server.properties of broker {ids(in_file)}, then restart it")
            yield HealthFinding(
                "settings-differ",
                FindingSeverity.WARNING,
                f"{name} differs between brokers ({shown})",
                "The cluster behaves differently after each change of leader or controller.",
                "; ".join(mends),
            )


def _may_differ(name: str) -> bool:
    return name in OF_ONE_NODE or name.endswith(FILES_OF_ONE_NODE)


RULES: tuple[Rule, ...] = (settings_differ,)
