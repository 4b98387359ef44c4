"""A secured cluster under attack by `support.fuzzer`, and what is looked at meanwhile and afterwards.

Clients log in at two listeners, without and with TLS, and are denied what no ACL allows. The nodes, and the test's own questions, use
a listener where everybody is a super user: whoever got past a login without having a name would be allowed everything.

    stranger   has not logged in, or tries to
    nobody     has logged in, and no ACL names it
    somebody   may do everything with topics, groups and transactions whose names begin with `fuzz-`
    canary     produces and consumes all the time: the good client
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    UserScramCredentialUpsertion,
)

from ottla.local.ports import free_ports
from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.fuzzer import NOBODY, SOMEBODY, STRANGER, TLS
from support.sasl import NUMBERS
from support.scheduling import run_delay_s
from support.secured import Certificates
from support.wire import metadata_batches

TESTS: Final = Path(__file__).parents[1]
CANARY, CANARY_GROUP, TOPIC = "canary", "canary-group", "orders"
PASSWORDS: Final = {NOBODY: "nobodys-password", SOMEBODY: "somebodys", CANARY: "canarys-password"}
HIDDEN, VEILED = "hidden-9f2c7a", "veiled-51be03"
"""Nobody is told these names. The attackers know the id of the veiled topic, and nothing of the hidden one."""
OWN: Final = ("fuzz-a", "fuzz-b")
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ANONYMOUS_ALL: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "ottla.allow.plain.without.tls": "true",
    # Otherwise the attackers would spend their time with waiting.
    "connection.failed.authentication.delay.ms": "0",
    "ottla.failed.authentication.delay.max.ms": "0",
    # A group may have as many members as it likes, unless it is told. Here its memory is watched.
    "group.max.size": "20",
    "group.consumer.max.size": "20",
    "group.max.session.timeout.ms": "10000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # A closed topic's files are gone sooner.
    "log.segment.delete.delay.ms": "1000",
}
REFUSALS: Final = frozenset(
    {
        "closing connection, what it sent is no frame",
        "TLS handshake failed",
    }
)
"""The texts of warnings that an attack may cause."""
BUSY: Final = frozenset({"no controller answered the heartbeat"})
"""And those of a machine that has no time for the node."""
FORBIDDEN: Final = frozenset(
    {
        "AccessControlEntryRecord",
        "RemoveAccessControlEntryRecord",
        "UserScramCredentialRecord",
        "RemoveUserScramCredentialRecord",
        "DelegationTokenRecord",
        "RemoveDelegationTokenRecord",
        "ClientQuotaRecord",
        "FeatureLevelRecord",
        "UnregisterBrokerRecord",
    }
)
"""Records of the metadata that no attacker has the right to bring about."""
LINE: Final = re.compile(r"\d{4}-\d\d-\d\d \S+ ([A-Z]+) (.*)")
AUDIT: Final = "Principal = "
CANARY_EVERY_S: Final = 0.05
TLS_SHARE: Final = 200
"""One frame of so many goes to the listener with TLS."""
SHARES: Final = {STRANGER: 0.2, NOBODY: 0.5, SOMEBODY: 0.3}
CHANNELS: Final = 20
"""Of the node to other nodes, which it opens when it needs them. The attackers opened thousands."""
WARM_UP: Final = 0.2
"""Of all frames. Until then codecs are imported, and caches fill."""


class FuzzedCluster(ProcessCluster):
    def __init__(self, directory: Path, brokers: int) -> None:
        super().__init__(directory / "cluster", brokers, {})
        made = Certificates(directory / "certificates")
        self.ca = made.nodes_file
        self.ports: dict[int, dict[str, int]] = {}
        accounts = " ".join(f'user_{name}="{PASSWORDS[name]}"' for name in (NOBODY, SOMEBODY))
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
        for node in self.nodes.values():
            clients, secure = free_ports(2)
            self.ports[node.id] = {"clients": clients, "secure": secure}
            lines = {
                **ANONYMOUS_ALL,
                "listener.name.clients.plain.sasl.jaas.config": jaas,
                "listener.name.secure.plain.sasl.jaas.config": jaas,
                "ssl.keystore.location": str(made.issue(made.nodes, f"node-{node.id}")),
            }
            text = node.config.read_text()
            plain = f"listeners=PLAINTEXT://127.0.0.1:{node.port},"
            assert plain in text
            new = f"{plain}CLIENTS://127.0.0.1:{clients},SECURE://127.0.0.1:{secure},"
            added = "".join(f"{name}={value}\n" for name, value in lines.items())
            node.config.write_text(text.replace(plain, new) + added)

    def furnish(self) -> None:
        """The topics, users, rights and groups that are there before anybody attacks."""
        for name in (TOPIC, HIDDEN, VEILED, *OWN):
            self.create_topic(name)
        for user, password in PASSWORDS.items():
            for mechanism in MECHANISMS:
                info = ScramCredentialInfo(NUMBERS[mechanism], 4096)
                change = UserScramCredentialUpsertion(user, info, password.encode())
                for each in self.admin.alter_user_scram_credentials([change]).values():
                    each.result(20)
        prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
        everything, read = AclOperation.ALL, AclOperation.READ
        topic, group = ResourceType.TOPIC, ResourceType.GROUP
        transactions, broker = ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER
        rights = [
            (topic, "fuzz-", prefixed, SOMEBODY, everything),
            (group, "fuzz-", prefixed, SOMEBODY, everything),
            (transactions, "fuzz-", prefixed, SOMEBODY, everything),
            (broker, "kafka-cluster", literal, SOMEBODY, AclOperation.IDEMPOTENT_WRITE),
            (topic, TOPIC, literal, CANARY, read),
            (topic, TOPIC, literal, CANARY, AclOperation.WRITE),
            (group, CANARY_GROUP, literal, CANARY, read),
        ]
        bindings = [
            AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for kind, name, pattern, user, operation in rights
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(20)
        for key_type in (0, 1):
            wait_until(partial(self._has_coordinator, key_type), 30, "coordinators")
        partition = {"partition_index": 0, "committed_offset": 0}
        topics = [{"name": HIDDEN, "partitions": [partition]}]
        fields = {"group_id": HIDDEN, "generation_id_or_member_epoch": -1, "topics": topics}
        for node in self.up:
            self.ask(node, ApiKey.OFFSET_COMMIT, 8, fields)

    def _has_coordinator(self, key_type: int) -> bool:
        fields = {"key_type": key_type, "coordinator_keys": [HIDDEN]}
        answer = self.ask(self.nodes[1], ApiKey.FIND_COORDINATOR, 4, fields)
        return bool(answer.coordinators[0].error_code == 0)

    def topic_ids(self) -> dict[str, str]:
        answer = self.ask(self.nodes[1], ApiKey.METADATA, 12, {"topics": None})
        return {topic.name: str(topic.topic_id) for topic in answer.topics}

    def everything(self) -> dict[str, Any]:
        """All that attackers could have made or changed, but for what somebody may."""
        node = self.nodes[1]
        metadata = self.ask(node, ApiKey.METADATA, 12, {"topics": None})
        anything = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        configs = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((2, TOPIC), (2, HIDDEN), (2, VEILED), (4, "1"), (4, ""))
        ]
        described = self.ask(node, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": configs})
        quorum = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}  # fmt: skip
        voters = self.ask(node, ApiKey.DESCRIBE_QUORUM, 1, quorum).topics[0].partitions[0]
        return {
            "topics": sorted(
                f"{topic.name} {topic.topic_id} {len(topic.partitions)}"
                for topic in metadata.topics
                if not topic.name.startswith(("fuzz-", "__ottla_"))
            ),
            "brokers": sorted(each.node_id for each in metadata.brokers),
            "acls": sorted(map(str, self.ask(node, ApiKey.DESCRIBE_ACLS, 3, anything).resources)),
            "users": sorted(
                str(each)
                for each in self.ask(
                    node, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}
                ).results
            ),
            "quotas": str(
                self.ask(
                    node, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}
                ).entries
            ),
            "configs": [
                (each.resource_name, config.name, config.value)
                for each in described.results
                for config in each.configs
                if config.config_source in (1, 2, 3)
            ],
            "groups": sorted(
                group.group_id
                for each in self.up
                for group in self.ask(each, ApiKey.LIST_GROUPS, 4, {}).groups
                if not group.group_id.startswith("fuzz-")
            ),
            "transactions": [
                state.transactional_id
                for each in self.up
                for state in self.ask(each, ApiKey.LIST_TRANSACTIONS, 0, {}).transaction_states
                if not state.transactional_id.startswith("fuzz-")
            ],
            "voters": sorted(each.replica_id for each in voters.current_voters),
            "records": {name: self._end_of(name) for name in (HIDDEN, VEILED)},
        }

    def _end_of(self, topic: str) -> int:
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]}  # fmt: skip
        leader = self.nodes[self.leader(topic)]
        answer = self.ask(leader, ApiKey.LIST_OFFSETS, 7, fields)
        return int(answer.topics[0].partitions[0].offset)

    def metadata_end(self) -> int:
        return max(offset for offset, _ in metadata_batches(self, 1))

    def metadata_since(self, offset: int) -> list[Any]:
        return [
            record
            for base, records in metadata_batches(self, 1)
            if base > offset
            for record in records
        ]

    def delete_what_somebody_made(self) -> None:
        names = [name for name in self.topic_ids() if name.startswith("fuzz-")]
        for future in self.admin.delete_topics(names, request_timeout=60).values():
            future.result(60)
        wait_until(
            lambda: not [name for name in self.topic_ids() if name.startswith("fuzz-")],
            60,
            "topics of somebody are deleted",
        )


@contextmanager
def fuzzed_cluster(directory: Path, brokers: int) -> Iterator[FuzzedCluster]:
    with FuzzedCluster(directory, brokers) as cluster:
        cluster.furnish()
        yield cluster


class Canary:
    """One record after the other, and each of them read again."""

    def __init__(self, cluster: FuzzedCluster) -> None:
        ports = ",".join(f"127.0.0.1:{each['clients']}" for each in cluster.ports.values())
        settings: dict[str, Any] = {
            "bootstrap.servers": ports,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": CANARY,
            "sasl.password": PASSWORDS[CANARY],
            "log_level": 0,
        }
        self.producer = Producer({**settings, "acks": "all", "linger.ms": 0})
        self.consumer = Consumer(
            {
                **settings,
                "group.id": CANARY_GROUP,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
            }
        )
        self.acks_ms: list[float] = []
        self.node_ms: list[float] = []
        """The same, without the time in which the attacked node wanted a core and had none."""
        self._pid = cluster.nodes[1].pid or 0
        self.problems: list[str] = []
        self.sent = 0
        self.read: list[int] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)
        ]

    def start(self) -> None:
        self.consumer.subscribe([TOPIC])
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.read, 60, "the canary reads what it wrote")

    def _produce(self) -> None:
        while not self._stop.is_set():
            next_at = time.monotonic() + CANARY_EVERY_S
            self._send()
            while (left_s := next_at - time.monotonic()) > 0:
                self.producer.poll(left_s)
        if left := self.producer.flush(60):
            self.problems.append(f"{left} records are not acknowledged")

    def _send(self) -> None:
        began, delayed_s = time.perf_counter(), run_delay_s(self._pid)

        def delivered(error: object, _: object) -> None:
            if error is not None:
                self.problems.append(str(error))
            taken_s = time.perf_counter() - began
            self.acks_ms.append(taken_s * 1000)
            without_s = taken_s - (run_delay_s(self._pid) - delayed_s)
            self.node_ms.append(max(0.0, without_s) * 1000)

        self.producer.produce(TOPIC, str(self.sent).encode(), on_delivery=delivered)
        self.sent += 1

    def _consume(self) -> None:
        give_up: float | None = None
        while give_up is None or time.monotonic() < give_up:
            message = self.consumer.poll(0.2)
            if message is not None and message.error() is not None:
                self.problems.append(str(message.error()))
            elif message is not None:
                self.read.append(int(message.value() or b""))
            if self._stop.is_set():
                if len(self.read) >= self.sent and not self._threads[0].is_alive():
                    return
                give_up = give_up or time.monotonic() + 60

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.consumer.close()


class Sample(NamedTuple):
    frames: int
    rss_mb: float


class LogTail:
    """The lines of a node's log, also when it is rotated: how often each fixed text came, and which line is none of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open(errors="replace")
        self._file.seek(0, os.SEEK_END)
        self._part = ""
        self.texts: Counter[tuple[str, str]] = Counter()
        self.unexpected: list[str] = []

    def look(self) -> None:
        while True:
            self._take(self._file.read())
            if os.fstat(self._file.fileno()).st_ino == self._path.stat().st_ino:
                return
            self._take(self._file.read())
            self._file.close()
            self._file = self._path.open(errors="replace")

    def _take(self, text: str) -> None:
        lines = (self._part + text).split("\n")
        self._part = lines.pop()
        for line in lines:
            found = LINE.fullmatch(line)
            if found is None:
                self.unexpected.append(line)
                continue
            level, said = found.groups()
            text = "audit" if said.startswith(AUDIT) else re.split(r" \w+=", said, maxsplit=1)[0]
            self.texts[level, text] += 1
            if level not in ("DEBUG", "INFO") and text not in REFUSALS | BUSY:
                self.unexpected.append(line)


class Attack:
    """Fuzzers against the first node, the canary, and all that is looked at."""

    def __init__(self, cluster: FuzzedCluster, frames: int, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.frames = frames
        self.node = cluster.nodes[1]
        self.canary = Canary(cluster)
        self.samples: list[Sample] = []
        self.counts: dict[str, dict[str, Any]] = {}
        self.log = LogTail(self.node.log)

    def orders(self) -> dict[str, dict[str, Any]]:
        ids = self.cluster.topic_ids()
        ports = self.cluster.ports[1]
        common: dict[str, Any] = {
            "host": "127.0.0.1",
            "seed": self.seed,
            "passwords": {name: PASSWORDS[name] for name in (NOBODY, SOMEBODY)},
            "topics": [TOPIC, *OWN, OWN[0], "fuzz-c", "fuzz-" + "d" * 200, "nowhere"],
            "groups": ["fuzz-group", "fuzz-other", CANARY_GROUP, "nogroup"],
            "transactions": ["fuzz-transaction", "fuzz-second", "notransaction"],
            "users": [f"User:{each}" for each in PASSWORDS] + ["User:*", CANARY, NOBODY],
            "ids": [ids[TOPIC], ids[VEILED], *(ids[name] for name in OWN)],
            "secrets": [HIDDEN, VEILED],
            "seconds": self.ends_after_s,
        }
        tls = max(100, self.frames // TLS_SHARE)
        plain = {stage: int(share * (self.frames - tls)) for stage, share in SHARES.items()}
        return {
            "plain": {**common, "port": ports["clients"], "frames": plain},
            "tls": {
                **common,
                "port": ports["secure"],
                "frames": {TLS: tls},
                "ca": str(self.cluster.ca),
            },
        }

    @property
    def handled(self) -> int:
        """Frames that the node has handled so far."""
        return sum(
            int(counts.get(stage, 0))
            for counts in self.counts.values()
            for stage in (STRANGER, NOBODY, SOMEBODY, TLS)
        )

    def run(self, seconds: float) -> None:
        """AssertionError if anything is not as it should be. `seconds`: the most that it may take. If `ends_after_s` is set, the
        attack ends then, whatever is left of it."""
        before = self.cluster.everything()
        pid = self.node.pid
        metadata_end = self.cluster.metadata_end()
        self.canary.start()
        before["groups"] = sorted({*before["groups"], CANARY_GROUP})
        files = self.open_files()
        try:
            self._let_them(seconds)
        finally:
            self.canary.stop()
        assert self.node.running and self.node.pid == pid, "the node is the same process"
        self._check_canary()
        self.log.look()
        assert not self.log.unexpected, "\n".join(self.log.unexpected[:20])
        self._check_nobody_was_let_in(before, metadata_end)
        self._check_memory()
        self._check_files(files)

    def _let_them(self, seconds: float) -> None:
        fuzzers = {
            name: subprocess.Popen(
                [sys.executable, "-m", "support.fuzzer"],
                cwd=TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in self.orders()
        }
        threads = []
        try:
            for name, orders in self.orders().items():
                self.counts[name] = {}
                stdin = fuzzers[name].stdin
                assert stdin is not None
                stdin.write(json.dumps(orders))
                stdin.close()
                threads.append(threading.Thread(target=self._hear, args=(name, fuzzers[name])))
                threads[-1].start()
            until = time.monotonic() + seconds
            while any(thread.is_alive() for thread in threads):
                assert time.monotonic() < until, f"not within {seconds} s: {self.counts}"
                threads[0].join(1.0)
                threads[-1].join(0.1)
                self._look()
        finally:
            for fuzzer in fuzzers.values():
                fuzzer.kill()
            for thread in threads:
                thread.join()
        for name, counts in self.counts.items():
            assert "wrong" not in counts, f"the node {counts['wrong']}"
            assert "over" in counts, f"{name} did not end by itself: {counts}"

    def _hear(self, name: str, fuzzer: subprocess.Popen[str]) -> None:
        assert fuzzer.stdout is not None
        for line in fuzzer.stdout:
            self.counts[name] = json.loads(line)

    def _look(self) -> None:
        self.samples.append(Sample(self.handled, self.rss_mb()))
        self.log.look()
        assert not self.log.unexpected, "\n".join(self.log.unexpected[:20])
        assert not self.canary.problems, self.canary.problems[:3]

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.node.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def open_files(self) -> Counter[str]:
        """Of the node: how often each file is open, and how many sockets."""
        found: Counter[str] = Counter()
        for each in Path(f"/proc/{self.node.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                target = os.readlink(each)
                found["sockets" if target.startswith("socket:") else target] += 1
        return found

    def _check_canary(self) -> None:
        canary = self.canary
        assert not canary.problems, canary.problems[:3]
        assert canary.read == list(range(canary.sent)), "each record once, in order"

    def _check_nobody_was_let_in(self, before: Mapping[str, Any], metadata_end: int) -> None:
        after = self.cluster.everything()
        for what, was in before.items():
            assert after[what] == was, f"{what}: {was} became {after[what]}"
        for record in self.cluster.metadata_since(metadata_end):
            kind = type(record).__name__
            assert kind not in FORBIDDEN, record
            if kind == "TopicRecord":
                assert record.name.startswith(("fuzz-", "__ottla_")), record
        assert self.cluster._end_of(TOPIC) == self.canary.sent, "nobody else wrote"

    def memory(self) -> tuple[float, float]:
        """Medians in megabytes, after the warm-up and at the end."""
        if not self.samples:
            return 0.0, 0.0
        last = max(1, self.samples[-1].frames)
        warm = [
            each.rss_mb for each in self.samples if WARM_UP <= each.frames / last <= 2 * WARM_UP
        ]
        end = [each.rss_mb for each in self.samples if each.frames / last >= 0.9]
        return median(warm or [self.samples[0].rss_mb]), median(end)

    def _check_memory(self) -> None:
        warm, end = self.memory()
        assert end <= warm + self.growth_mb_max, f"{warm:.0f} MB became {end:.0f} MB"

    growth_mb_max = 32.0
    ends_after_s = 0.0

    def _check_files(self, before: Counter[str]) -> None:
        """The canary's connections are gone by now, and what somebody made is deleted."""
        self.cluster.delete_what_somebody_made()

        def left() -> list[str]:
            """What should not be open: more sockets, files of deleted topics, files that were opened again and again."""
            now = self.open_files()
            return [
                f"{path} {times}, before {before[path]}"
                for path, times in now.items()
                if times > (before[path] + CHANNELS if path == "sockets" else max(before[path], 1))
                or Path(path).parent.name.startswith("fuzz-")
                or (path.endswith("(deleted)") and path not in before)
            ]

        until = time.monotonic() + 60
        while found := left():
            assert time.monotonic() < until, found
            time.sleep(0.2)

    def report(self) -> dict[str, Any]:
        acks, nodes = (sorted(each) or [0.0] for each in (self.canary.acks_ms, self.canary.node_ms))
        warm, end = self.memory()
        return {
            "seed": self.seed,
            "handled": self.handled,
            "counts": self.counts,
            "rate": {
                name: round(
                    sum(int(counts.get(stage, 0)) for stage in (STRANGER, NOBODY, SOMEBODY, TLS))
                    / max(0.001, float(counts.get("seconds", 0.001)))
                )
                for name, counts in self.counts.items()
            },
            "rss_mb": {
                "warm": round(warm),
                "end": round(end),
                "most": round(max((each.rss_mb for each in self.samples), default=0.0)),
            },
            "canary": {
                "records": self.canary.sent,
                "p50_ms": round(acks[len(acks) // 2], 1),
                "p99_ms": round(acks[int(len(acks) * 0.99)], 1),
                "most_ms": round(acks[-1], 1),
                "p99_ms_with_a_core": round(nodes[int(len(nodes) * 0.99)], 1),
            },
            "log": {
                f"{level} {text}": times for (level, text), times in self.log.texts.most_common(30)
            },
        }
