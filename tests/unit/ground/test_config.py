"""Settings: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ottla
from ottla.config import (
    NAMES,
    TABLE,
    TOPIC_SETTINGS,
    ConfigError,
    ListenerAddress,
    QuorumVoter,
    Settings,
    text_of,
    validate_group_config,
    validate_topic_config,
)
from ottla.config.checking import check_file
from ottla.config.dynamic import DYNAMIC, NotDynamic, current, validate_broker_config
from ottla.config.inert import INERT
from ottla.config.names import HARMLESS, NOT_YET, TOPIC_NOT_YET
from ottla.config.sources import name_from_variable, variable_from_name
from ottla.log.config import LogConfig

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def combined(**changes: str) -> Settings:
    return Settings.of(COMBINED | {name.replace("_", "."): text for name, text in changes.items()})


def write(path: Path, settings: dict[str, str]) -> str:
    file = path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def test_a_combined_node_needs_five_lines() -> None:
    settings = combined()
    assert settings.node_id == 1
    assert settings.process_roles == {"broker", "controller"}
    assert settings.broker_listeners == (ListenerAddress("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.controller_listeners == (ListenerAddress("CONTROLLER", "127.0.0.1", 9093),)
    assert settings.controller_quorum_voters == (QuorumVoter(1, "127.0.0.1", 9093),)
    assert settings.advertised_listeners == settings.listeners
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.broker_session_timeout_ms == 9000
    assert settings.metadata_log_dir == settings.log_dirs[0]


def test_every_attribute_is_the_kafka_name_with_underscores() -> None:
    for row in TABLE:
        assert hasattr(Settings, row.attribute), row.name
        assert row.doc.endswith("."), row.name


def test_every_default_is_a_value_that_would_be_accepted() -> None:
    settings = combined()
    for row in TABLE:
        value = getattr(settings, row.attribute)
        assert row.kind.parse(text_of(value)) == value, row.name


def test_no_name_stands_in_two_tables() -> None:
    assert not NAMES & HARMLESS
    for name in sorted(NAMES):
        refused = [beginning for beginning, _ in NOT_YET if name.startswith(beginning)]
        assert not refused or name in ("compression.type", "security.inter.broker.protocol"), name


def test_the_file_and_then_the_environment_decide(tmp_path: Path) -> None:
    path = write(tmp_path, COMBINED | {"num.partitions": "3", "log.retention.hours": "2"})
    settings = Settings.load(path, {"KAFKA_NUM_PARTITIONS": "5", "CLUSTER_ID": "abc", "HOME": "/"})
    assert settings.num_partitions == 5
    assert settings.log_retention_ms == 7_200_000
    assert settings.cluster_id == "abc"
    assert settings.given["num.partitions"] == "5"


def test_super_users_are_separated_by_semicolons() -> None:
    settings = combined(super_users=" User:admin; User:CN=n1,O=ottla;")
    assert settings.super_users == ("User:admin", "User:CN=n1,O=ottla")
    assert settings.texts()["super.users"] == "User:admin;User:CN=n1,O=ottla"


def test_the_finer_unit_wins() -> None:
    both = combined(log_retention_hours="1", log_retention_ms="5")
    assert both.log_retention_ms == 5
    assert combined(log_retention_minutes="1", log_retention_hours="9").log_retention_ms == 60_000
    assert combined(log_retention_hours="-1").log_retention_ms == -1


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [
        "# a comment",
        "! another",
        "node.id: 7",
        "process.roles broker,\\",
        "    controller",
        "  listeners = PLAINTEXT\\://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.voters=7@127.0.0.1:9093",
        "broker.rack=caf\\u00e9",
    ]
    file.write_text("\n".join(lines))
    settings = Settings.load(str(file), {})
    assert settings.node_id == 7
    assert settings.process_roles == {"broker", "controller"}
    assert settings.rack == "café"


def test_variables_of_the_jvm_the_images_and_kubernetes_are_not_settings() -> None:
    environ = {
        "KAFKA_OPTS": "-Xmx1g",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
    } | {variable_from_name(name): value for name, value in COMBINED.items()}
    assert Settings.load(None, environ).node_id == 1


@given(st.text(alphabet="abcxyz019._-", min_size=1).filter(lambda n: not _runs_of_marks(n)))
def test_a_variable_names_one_setting(name: str) -> None:
    assert name_from_variable(variable_from_name(name)) == name


def _runs_of_marks(name: str) -> bool:
    return any(a in "._-" and b in "._-" for a, b in itertools.pairwise(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"borker.rack": "a"}, "settings: borker.rack: no such setting; did you mean broker.rack?"),
        ({"node.id": "one"}, "settings: node.id: 'one' is not a whole number"),
        ({"node.id": "-1"}, "settings: node.id: -1 is below 0"),
        ({"auto.create.topics.enable": "yes"}, "'yes' is neither true nor false"),
        ({"process.roles": "broker,boss"}, "'boss' is not one of broker, controller"),
        ({"listeners": "127.0.0.1:9092"}, "'127.0.0.1:9092' is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, "has no controller listener CONTROLLER"),
        ({"controller.quorum.voters": "127.0.0.1:9093"}, "is not id@host:port"),
        ({"controller.quorum.voters": "2@127.0.0.1:9093"}, "does not name this controller, node 1"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "would tell clients to connect"),
        ({"advertised.listeners": "OTHER://h:1"}, "names OTHER, which is not in listeners"),
        ({"inter.broker.listener.name": "X"}, "X is not one of the broker's listeners"),
        ({"broker.heartbeat.interval.ms": "9000"}, "more than half of broker.session.timeout.ms"),
        ({"ssl.engine.factory.class": "x.Y"}, "Java classes cannot be loaded"),
        ({"sasl.kerberos.service.name": "kafka"}, "GSSAPI (Kerberos) is not served"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "'TLS' is not a security protocol"),
        ({"authorizer.class.name": "com.example.Mine"}, "'com.example.Mine' is not one of"),
        ({"super.users": "User:admin;alice"}, "super.users: 'alice' is not TYPE:NAME"),
        ({"zookeeper.connect": "h:2181"}, "ZooKeeper is not used"),
        ({"retention.ms": "1"}, "is a topic's setting; a node's is log.retention.ms"),
        ({"compression.type": "brotli"}, "'brotli' is not one of"),
        (
            {"group.consumer.min.session.timeout.ms": "50000"},
            "group.consumer.session.timeout.ms: 45000 is not between",
        ),
        (
            {"group.consumer.max.heartbeat.interval.ms": "100"},
            "group.consumer.heartbeat.interval.ms: 5000 is not between",
        ),
        ({"group.consumer.regex.refresh.interval.ms": "10000"}, "are matched anew whenever topics"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "must contain classic"),
        ({"group.coordinator.rebalance.protocols": "share"}, "'share' is not one of"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.of(COMBINED | change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", sorted(COMBINED.keys() - {"listeners"}))
def test_a_missing_setting_is_named(missing: str, tmp_path: Path) -> None:
    path = write(tmp_path, {name: text for name, text in COMBINED.items() if name != missing})
    with pytest.raises(ConfigError, match=rf"server.properties: {missing}: is missing"):
        Settings.load(path, {})


def test_a_mistake_in_a_file_is_given_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, COMBINED | {"num.partitons": "3"})
    with pytest.raises(ConfigError, match=r":6: num.partitons: .* did you mean num.partitions\?"):
        Settings.load(path, {})


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnode.id=2\n")
    with pytest.raises(ConfigError, match=r":2: node.id: was already set at .*:1"):
        Settings.load(str(file), {})


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"/no/such/file: No such file or directory"):
        Settings.load("/no/such/file", {})


def test_settings_of_machinery_that_is_not_here_are_named_not_refused() -> None:
    assert combined(num_io_threads="8").ignored == ("num.io.threads",)


def test_nodes_that_name_the_same_controllers_derive_the_same_cluster_id() -> None:
    voters = "1@a:1,2@b:2"
    first = combined(controller_quorum_voters=voters)
    second = combined(controller_quorum_voters="2@b:2,1@a:1")
    other = combined(controller_quorum_voters="1@a:1,2@b:3")
    assert first.derived_cluster_id() == second.derived_cluster_id()
    assert first.derived_cluster_id() != other.derived_cluster_id()
    assert len(first.derived_cluster_id()) == 22


def test_topic_defaults_follow_the_nodes_settings() -> None:
    defaults = combined(log_retention_hours="1", min_insync_replicas="2").topic_defaults()
    assert defaults["retention.ms"] == "3600000"
    assert defaults["min.insync.replicas"] == "2"
    only_topics = {
        row.name
        for row in TOPIC_SETTINGS.values()
        if row.is_internal or row.server_name == row.name
    } - defaults.keys()
    assert "leader.replication.throttled.replicas" in only_topics
    assert defaults.keys() == TOPIC_SETTINGS.keys() - only_topics - TOPIC_NOT_YET.keys()
    validate_topic_config(defaults)


@pytest.mark.parametrize("name", TOPIC_NOT_YET)
def test_what_is_not_served_may_be_asked_for_not_to_be_done(name: str) -> None:
    """Tools copy a topic's settings with Kafka's defaults."""
    setting = TOPIC_NOT_YET[name]
    validate_topic_config({name: setting.default})
    other = "true" if setting.default == "false" else "1000"
    with pytest.raises(ConfigError, match=setting.why):
        validate_topic_config({name: other})


def test_gzip_has_no_level_0() -> None:
    assert combined(compression_gzip_level="9").topic_defaults()["compression.gzip.level"] == "9"
    validate_topic_config({"compression.gzip.level": "-1"})
    with pytest.raises(ConfigError, match="0 is neither"):
        validate_topic_config({"compression.gzip.level": "0"})


def test_the_log_understands_every_topic_setting() -> None:
    config = LogConfig.from_settings(combined(log_retention_hours="1").topic_defaults())
    assert config.retention_ms == 3_600_000
    assert config.message_timestamp_after_max_ms == 3_600_000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.m", "1", "Unknown topic config name: retention.m; did you mean retention.ms?"),
        ("retention.ms", "soon", "Invalid value for retention.ms: 'soon' is not a whole number"),
        ("cleanup.policy", "shred", "'shred' is not one of delete, compact"),
        ("remote.storage.enable", "true", "tiered storage is not served"),
    ],
)
def test_a_wrong_topic_setting_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_config({name: value})
    assert message in str(caught.value)


def test_deleting_a_topic_setting_needs_no_value() -> None:
    validate_topic_config({"retention.ms": None})
    with pytest.raises(ConfigError):
        validate_topic_config({"retention.ms": ""})


def test_bounds_of_groups_that_nobody_set_forbid_nothing_that_somebody_set() -> None:
    settings = Settings.of(COMBINED | {"group.consumer.session.timeout.ms": "9000"})
    assert settings.group_consumer_min_session_timeout_ms == 9_000
    assert settings.group_consumer_max_session_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "greater than or equal to"),
        ({"consumer.session.timeout.ms": "60001"}, "less than or equal to"),
        ({"consumer.heartbeat.interval.ms": "4999"}, "greater than or equal to"),
        ({"consumer.session.timeout.ms": "soon"}, "'soon' is not a whole number"),
        ({"consumer.sesion.timeout.ms": "1"}, "did you mean consumer.session.timeout.ms?"),
        ({"share.session.timeout.ms": "50000"}, "share groups are not served yet"),
        ({"streams.session.timeout.ms": "50000"}, "streams groups are not served yet"),
    ],
)
def test_a_groups_setting_out_of_bounds_is_refused(configs: dict[str, str], message: str) -> None:
    validate_group_config(Settings.of(COMBINED), {"consumer.session.timeout.ms": "50000"})
    with pytest.raises(ConfigError, match=re.escape(message)):
        validate_group_config(Settings.of(COMBINED), configs)


def test_what_is_set_for_one_node_wins_over_what_is_set_for_all() -> None:
    settings = Settings.of(COMBINED | {"max.connections": "5"})
    assert current(settings, {}, {}, "max.connections") == 5
    assert current(settings, {}, {"max.connections": "6"}, "max.connections") == 6
    both = current(settings, {"max.connections": "7"}, {"max.connections": "6"}, "max.connections")
    assert both == 7


def test_settings_that_kafka_changes_at_run_time_are_taken_though_they_do_nothing() -> None:
    for name in (
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "log.cleaner.threads",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
    ):
        validate_broker_config({name: "2"})
    assert not INERT.keys() & (NAMES | DYNAMIC)
    for row in INERT.values():
        row.kind.parse(row.default)
        assert row.doc.startswith("Has no effect here: ") and row.doc.endswith("."), row.name


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.io.threads", "0", "0 is below 1"),
        ("num.io.threads", "many", "not a whole number"),
        ("log.cleaner.io.buffer.load.factor", "x", "not a number"),
        ("log.cleaner.threads", "-1", "-1 is below 0"),
        ("transaction.partition.verification.enable", "2", "neither true nor false"),
        ("sasl.kerberos.min.time.before.relogin", "soon", "not a whole number"),
        ("sasl.login.refresh.min.period.seconds", "32768", "32768 is not between"),
        ("group.share.assignment.interval.ms", "5", "share groups are not served yet"),
        ("group.streams.assignment.interval.ms", "5", "streams groups are not served yet"),
        ("share.coordinator.cached.buffer.max.bytes", "5", "share groups are not served yet"),
    ],
)
def test_a_wrong_change_of_a_running_node_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        validate_broker_config({name: value})
    assert not isinstance(caught.value, NotDynamic)


def test_what_is_read_once_cannot_change_while_a_node_runs() -> None:
    with pytest.raises(NotDynamic, match=r"Cannot update these configs dynamically: node\.id"):
        validate_broker_config({"node.id": "7"})


@pytest.mark.parametrize("name", ["group.share.enable", "group.streams.max.size"])
def test_a_node_does_not_promise_groups_that_nothing_serves(name: str) -> None:
    with pytest.raises(ConfigError, match="groups are not served yet"):
        Settings.of(COMBINED | {name: "1"})


def test_what_a_file_says_about_machinery_that_is_not_here_is_shown() -> None:
    assert combined(num_io_threads="9").given["num.io.threads"] == "9"
    assert combined(queued_max_requests="9").given.get("queued.max.requests") is None


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that changes nothing is not to be accepted, unless the log says so (HARMLESS)."""
    sources = "\n".join(path.read_text() for path in Path(ottla.__file__).parent.rglob("*.py"))
    topic_defaults = {row.server_name for row in TOPIC_SETTINGS.values()}
    by_composed_name = {
        row.name for row in TABLE if re.match(r"group\.consumer\.(min|max)\.", row.name)
    }
    with_one_value = {"security.inter.broker.protocol"}
    for row in TABLE:
        if row.name not in topic_defaults | by_composed_name | with_one_value:
            uses = sources.count(row.attribute) + sources.count(f'"{row.name}"')
            assert uses > 2, f"{row.name} is defined, and never read"


def test_a_check_names_every_repeated_setting_beside_the_other_faults(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnode.id=2\nnum.partitions=1\nnum.partitions=x\n")
    repeats_and_fault = [
        f"{file}:2: node.id: was already set at {file}:1",
        f"{file}:4: num.partitions: was already set at {file}:3",
        f"{file}:4: num.partitions: 'x' is not a whole number",
    ]
    assert check_file(str(file)).wrong == repeats_and_fault


def test_a_check_notes_more_in_sync_replicas_than_replicas(tmp_path: Path) -> None:
    assert check_file(write(tmp_path, COMBINED)) == ([], [])
    report = check_file(write(tmp_path, COMBINED | {"min.insync.replicas": "2"}))
    (note,) = report.notes
    assert not report.wrong and "min.insync.replicas=2 is more than its 1 replica" in note
