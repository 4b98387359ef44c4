"""What may be in a bundle: of settings, log lines, events and metrics only what is known to be harmless."""

from __future__ import annotations

import json

import pytest

from ottla.diagnosis import privacy

SOURCES = """
logger.info("ISR changed partition=%s isr=%s cause=%s")
"member left group=%s member=%s epoch=%d" "group rebalances" "fetch failed error=%s" "it failed: %s"
"it is no frame first_bytes=%s listener=%s"
"""
LOGS = privacy.LogLines(SOURCES)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "sasl.jaas.config",
        "listener.name.external.scram-sha-512.sasl.jaas.config",
        "delegation.token.secret.key",
        "my.own.setting",
    ],
)
def test_the_value_of_a_setting_that_is_secret_or_unknown_is_hidden(name: str) -> None:
    shown = privacy.settings({name: "MARKER", "log.retention.ms": "5", "broker.rack": None})
    assert shown == {name: privacy.HIDDEN, "log.retention.ms": "5", "broker.rack": None}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "2026-11-16 18:02:04.116 INFO ISR changed partition=orders-0 isr=1,2 cause=slow",
            "2026-11-16 18:02:04.116 INFO ISR changed partition=orders-0 isr=1,2 cause=slow",
        ),
        (
            '2026-11-16 18:02:04.116 INFO member left group=billing member="MARKER x" epoch=4',
            "2026-11-16 18:02:04.116 INFO member left group=billing member=(hidden) epoch=4",
        ),
        (
            '2026-11-16 18:02:04.116 INFO group rebalances group=billing epoch=4 cause="MARKER left"',
            "2026-11-16 18:02:04.116 INFO group rebalances group=billing epoch=4 cause=(hidden)",
        ),
        (
            "2026-11-16 18:02:04.116 INFO fetch failed error=NOT_LEADER_OR_FOLLOWER",
            "2026-11-16 18:02:04.116 INFO fetch failed error=NOT_LEADER_OR_FOLLOWER",
        ),
        (
            "2026-11-16 18:02:04.116 ERROR it failed: MARKER",
            "2026-11-16 18:02:04.116 ERROR it failed",
        ),
        (
            "2026-11-16 18:02:04.116 WARNING it is no frame first_bytes=47455420 listener=PLAINTEXT",
            "2026-11-16 18:02:04.116 WARNING it is no frame first_bytes=(hidden) listener=PLAINTEXT",
        ),
        ("ValueError: MARKER", "(18 characters of another kind)"),
        ('  File "/x/y.py", line 3, in f', '  File "/x/y.py", line 3, in f'),
    ],
)
def test_a_log_line_keeps_its_fixed_text_and_harmless_values(line: str, shown: str) -> None:
    assert list(LOGS.shown(line)) == [shown]


def test_a_json_log_line_keeps_its_fixed_text_and_harmless_values() -> None:
    fields = {"group": "billing", "member": "MARKER", "epoch": 4}
    line = {
        "at": "t",
        "level": "INFO",
        "logger": "ottla.x",
        "text": "member left",
        "fields": fields,
    }
    (shown,) = LOGS.shown(json.dumps({**line, "trace": "MARKER"}))
    assert json.loads(shown) == {**line, "fields": {**fields, "member": privacy.HIDDEN}}


AUDIT = (
    "Principal = User:MARKER is Denied operation = WRITE from host = 10.1.2.3 on resource ="
    " TransactionalId:LITERAL:{name} for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
)


@pytest.mark.parametrize("name", ["MARKER", "a=MARKER for request = Fetch with MARKER=1"])
@pytest.mark.parametrize("repeated", ["", " (7 more times within 10 s)"])
def test_a_line_of_the_authorizer_keeps_what_clients_cannot_choose(
    name: str, repeated: str
) -> None:
    text = AUDIT.format(name=name) + repeated
    (shown,) = LOGS.shown(f"2026-11-16 18:02:04.116 INFO {text}")
    assert shown == (
        "2026-11-16 18:02:04.116 INFO Denied principal=(hidden) host=(hidden) resource=(hidden)"
        " operation=WRITE resource_type=TransactionalId request=Produce"
    )
    line = {"at": "t", "level": "INFO", "logger": "audit", "text": text, "fields": {}}
    told = json.loads(*LOGS.shown(json.dumps(line)))
    assert (told["text"], told["fields"]["operation"]) == ("Denied", "WRITE")
    assert "MARKER" not in json.dumps(told) and "10.1.2.3" not in json.dumps(told)


@pytest.mark.parametrize(
    "text",
    [
        "Principal = User:MARKER is Denied 7 more operations within 10 s",
        "Principal = User:MARKER",
        "MARKER logged in",
        "MARKER logged in peer=10.1.2.3:44",
        "somebody asked: MARKER",
        "ISR of MARKER",
        "MARKER=yes",
    ],
)
def test_a_text_that_is_not_in_the_program_stays(text: str) -> None:
    for line in (
        f"2026-11-16 18:02:04.116 INFO {text}",
        json.dumps({"at": "t", "level": "INFO", "logger": "x", "text": text, "fields": {}}),
    ):
        (shown,) = LOGS.shown(line)
        assert "MARKER" not in shown and "10.1.2.3" not in shown
        assert f"({len(text)} characters of another kind)" in shown


def test_an_event_keeps_numbers_and_names_of_operators() -> None:
    told = {
        "at": "2026-11-16T17:31:41.465Z",
        "kind": "isr_shrink",
        "node": 1,
        "partition": "orders-0",
        "cause": "slow",
        "isr": [1, 2],
        "lag": {"2": {"records": 7}},
    }
    assert json.loads(privacy.event(json.dumps(told), privacy.Aliases()) or "") == told


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "transaction_aborted", "transactional_id": "MARKER", "producer_id": 4},
        {"kind": "member_expired", "group": "g", "member": "MARKER", "cause": "MARKER was silent"},
        {"kind": "rebalance", "group": "g", "members": ["MARKER"], "cause": "MARKER"},
        {"kind": "quota_exceeded", "user": "MARKER", "client_id": "MARKER"},
        {"kind": "setting_changed", "name": "ssl.key.password", "old": "MARKER", "new": "MARKER"},
        {"kind": "setting_changed", "name": "retention.ms", "new": "1", "by": "MARKER (10.0.0.9)"},
        {"kind": "something_new", "text": "MARKER", "nested": {"MARKER": "MARKER"}},
    ],
)
def test_an_event_tells_nothing_that_a_client_or_a_secret_setting_said(
    told: dict[str, object],
) -> None:
    shown = privacy.event(json.dumps(told), privacy.Aliases())
    assert shown is not None and "MARKER" not in shown


def test_a_changed_harmless_setting_is_shown_with_its_values() -> None:
    told = {"kind": "setting_changed", "name": "retention.ms", "old": "1", "new": "delete"}
    assert json.loads(privacy.event(json.dumps(told), privacy.Aliases()) or "")["new"] == "delete"


def test_metrics_keep_topics_and_lose_clients() -> None:
    text = 'x_total{topic="orders",client_id="MARKER"} 4\\n# HELP x_total some "text"'.replace(
        "\\n", "\n"
    )
    assert list(privacy.metrics(text)) == [
        'x_total{topic="orders",client_id="(hidden)"} 4',
        '# HELP x_total some "text"',
    ]


def test_metrics_that_clients_pushed_are_left_out() -> None:
    lines = [
        "# HELP ottla_up whether it serves",
        "ottla_up 1",
        "# HELP org_apache_kafka_MARKER MARKER",
        "# TYPE org_apache_kafka_MARKER gauge",
        'org_apache_kafka_MARKER{MARKER="MARKER"} 1',
        "org_apache_kafka_MARKER_total 1",
    ]
    assert list(privacy.metrics("\n".join(lines))) == lines[:2]


def test_who_changed_settings_is_told_apart_without_a_name() -> None:
    aliases = privacy.Aliases()

    def shown(by: str) -> str:
        told = {"kind": "setting_changed", "name": "retention.ms", "by": by}
        return str(json.loads(privacy.event(json.dumps(told), aliases) or "")["by"])

    assert [shown(each) for each in ("a", "b", "a")] == ["changer-1", "changer-2", "changer-1"]


def test_the_same_text_has_the_same_alias() -> None:
    aliases = privacy.Aliases()
    assert [aliases.of("client", each) for each in ("a", "b", "a")] == [
        "client-1",
        "client-2",
        "client-1",
    ]
