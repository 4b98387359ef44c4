"""The console's pages in a real Chromium, beside a real cluster: what is broken is shown, and a click leads to why.

Each page is visited by a test of its own. What the browser complains about, and any request to another host, fails the test.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client import producer as ottla_producer
from ottla.client.blocking import BlockingClient
from ottla.records.record import Record
from support.browsed import PAGES, SETTINGS, Browsed, commit
from support.chromium import CHROMIUM, Chromium
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.console import ConsoleProcess
from support.crowd import addresses

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SHOWN_S_MAX = 1.0


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    directory = tmp_path_factory.mktemp("browsed")
    with (
        ProcessCluster(directory / "cluster", 3, SETTINGS) as cluster,
        Chromium(directory / "profile") as browser,
        ConsoleProcess("-b", cluster.bootstrap, "--allow-writes") as console,
    ):
        made = Browsed(cluster, console, browser)
        made.fill()
        yield made


@pytest.fixture(autouse=True)
def _no_complaints(browsed: Browsed) -> Iterator[None]:
    yield
    browsed.assert_clean()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1440, "dark"), (3840, "light")])
def test_every_page_fits_into_its_window(browsed: Browsed, width: int, scheme: str) -> None:
    for path in PAGES:
        page = browsed.visit(path, width, 900, scheme)
        page.wait_for("document.querySelector('main h1')")
        wide = page.value_of("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} pixels wide in a window of {width}"
        assert "This page failed" not in page.text(), path
        assert not page.complaints(), path


@pytest.mark.parametrize("path", ["/nonsense", "/groups/%ff"])
def test_an_address_that_is_no_page_says_so(browsed: Browsed, path: str) -> None:
    assert "no such page" in browsed.visit(path).text()


def test_what_is_injected_into_a_page_does_not_run(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.value_of(
        """(() => {
            const script = document.createElement("script");
            try { script.textContent = "window.injected = 1"; } catch (error) { window.refused = 1; }
            document.body.append(script);
        })()"""
    )
    assert page.value_of("window.injected === undefined") is True
    blocked = page.value_of("fetch('http://127.0.0.1:1/').then(() => 'asked', () => 'refused')")
    assert blocked == "refused"
    assert any("Content Security Policy" in each for each in page.complaints())
    page.events.clear()


def test_a_killed_leader_is_shown_within_a_second_and_a_click_says_why(browsed: Browsed) -> None:
    wait_until(browsed.is_well, 30, "a cluster that is well")
    page = browsed.visit("/")
    page.wait_for_text("All is well")
    leader = browsed.cluster.leader("orders")
    text = f"Broker {leader} "
    page.value_of(
        f"""(() => {{
            window.shown = null;
            new MutationObserver(() => {{
                const told = document.querySelector(".problem .text")?.textContent ?? "";
                if (window.shown === null && told.startsWith({json.dumps(text)})) window.shown = Date.now();
            }}).observe(document.body, {{ subtree: true, childList: true, characterData: true }});
        }})()"""
    )
    killed_ms = time.time() * 1000
    browsed.cluster.kill(leader)
    shown_ms = page.wait_for("window.shown")
    assert (shown_ms - killed_ms) / 1000 < SHOWN_S_MAX
    page.wait_for_text(f"Broker {leader} is down.")
    page.wait_for("[...document.querySelectorAll('.c.offline')].length >= 3")
    page.click(".problem a.button")
    page.wait_for(f"location.pathname === '/brokers/{leader}'")
    page.wait_for_text(f"Start broker {leader} again", 20)
    page.value_of("history.back()")
    browsed.cluster.start(leader)
    page.wait_for_text("All is well", 30)


def test_a_squares_tip_tells_the_ends_of_its_replicas(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.wait_for("document.querySelector('.c.leader')")
    at = page.value_of(
        "(() => { const b = document.querySelector(\"a.c.leader[href='/topics/orders/0']\").getBoundingClientRect(); return [b.x + 5, b.y + 5]; })()"
    )
    page.value_of(f"window.scrollTo(0, {at[1] - 300})")
    x, y = page.value_of(
        "(() => { const b = document.querySelector(\"a.c.leader[href='/topics/orders/0']\").getBoundingClientRect(); return [b.x + 5, b.y + 5]; })()"
    )
    page.mouse("mouseMoved", x, y)
    page.wait_for("document.querySelector('.tip table')")
    told = page.value_of("document.querySelector('.tip').innerText")
    assert "orders-0" in told
    assert "50" in told


def test_the_heat_map_is_walked_through_with_the_keyboard(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.wait_for("document.querySelector('.heat-line a')")
    page.value_of("document.querySelector('.heat-line a').focus()")
    page.press("ArrowRight")
    assert "orders-" in page.value_of("document.activeElement.ariaLabel")
    page.press("Enter")
    page.wait_for("location.pathname.startsWith('/topics/orders/')")


def test_anything_is_found_by_its_name(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.wait_for("document.querySelector('.heat-line')")
    page.press("/")
    page.wait_for("document.querySelector('dialog.find[open]')")
    page.write("orders-2")
    page.wait_for("document.querySelector('#found li')")
    page.press("Enter")
    page.wait_for("location.pathname === '/topics/orders/2'")
    page.wait_for_text("orders-2")
    page.press("/")
    page.wait_for("document.querySelector('dialog.find[open]')")
    page.write("nowhere")
    page.wait_for_text("Nothing has such a name.")
    page.press("Escape")


def test_a_partition_moves_as_it_is_written_and_shows_another_epoch_after_a_failover(
    browsed: Browsed,
) -> None:
    wait_until(browsed.is_well, 30, "a cluster that is well")
    page = browsed.visit("/topics/orders/1")
    page.wait_for("document.querySelectorAll('.log').length === 3")
    epochs = len(
        page.value_of("[...document.querySelectorAll('.epochs li')].map((e) => e.textContent)")
    )
    browsed.produce("orders", ["x"] * 20, partition=1)
    page.wait_for(
        "[...document.querySelectorAll('.mark.leo')].every((e) => e.textContent === 'LEO 20')"
    )
    page.wait_for(
        "[...document.querySelectorAll('.mark.hw')].every((e) => e.textContent === 'HW 20')"
    )
    leader = browsed.cluster.leader("orders", 1)
    browsed.cluster.kill(leader)
    page.wait_for("[...document.querySelectorAll('.role.down')].length === 1")
    page.wait_for(f"document.querySelectorAll('.epochs li').length === {epochs + 1}")
    page.wait_for("document.querySelector('.event .kind')?.textContent")
    assert "was elected leader" in page.text()
    browsed.cluster.start(leader)
    page.wait_for("document.querySelectorAll('.role.down').length === 0", 20)


def test_the_timeline_goes_back_to_what_was_wrong_then(browsed: Browsed) -> None:
    wait_until(browsed.is_well, 30, "a cluster that is well")
    browsed.cluster.kill(2)
    at_ms = wait_until(lambda: fenced_ms(browsed, 2), 10, "that broker 2 is fenced") + 1
    browsed.cluster.start(2)
    wait_until(browsed.is_well, 30, "a cluster that is well")
    page = browsed.visit("/timeline")
    page.wait_for_text("All is well")
    page.value_of("document.querySelector('.axis canvas').focus()")
    for _ in range(60):
        page.press("ArrowLeft")
        if int(page.value_of("new URLSearchParams(location.search).get('at') ?? 0")) <= at_ms:
            break
    browsed.visit(f"/timeline?at={at_ms}")
    page.wait_for_text("Broker 2 is down.")
    page.wait_for("[...document.querySelectorAll('.c.offline')].length >= 3")
    page.click(".moment > button")
    page.wait_for_text("All is well")


def fenced_ms(browsed: Browsed, broker: int) -> int:
    found = browsed.console.get("events", kind="fenced", broker=broker)["events"]
    return int(found[0]["at_ms"]) if found else 0


def test_a_groups_offsets_are_moved_after_a_look_at_what_that_changes(browsed: Browsed) -> None:
    page = browsed.visit("/groups")
    page.wait_for_text("billing")
    page.click("td a.name")
    page.wait_for("location.pathname === '/groups/billing'")
    page.click(".head button")
    page.value_of("document.querySelector('.reset select').value")
    choose(page, ".reset select", "earliest")
    page.click(".reset .fields button")
    page.wait_for_text("reads 50 again")
    assert committed(browsed) == 50
    page.click(".reset button.main")
    page.wait_for_text("Done: 1 partition.")
    assert committed(browsed) == 0
    page.wait_for_text("50 records")
    commit(browsed.cluster, "billing", 50)


def committed(browsed: Browsed) -> int:
    (partition,) = browsed.cluster.ottla("groups", "describe", "billing")["partitions"]
    return int(partition["committed"])


def choose(page: Chromium, selector: str, value: str) -> None:
    page.value_of(
        f"""(() => {{
            const select = document.querySelector({json.dumps(selector)});
            select.value = {json.dumps(value)};
            select.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


def test_messages_are_searched_shown_produced_and_followed(browsed: Browsed) -> None:
    page = browsed.visit("/messages/orders?partition=0")
    page.wait_for("document.querySelectorAll('.records tbody tr').length === 50")
    page.wait_for("document.querySelector('.chart canvas')")
    page.click("input[placeholder^='text in key']")
    page.write('"id": 17')
    page.press("Enter")
    page.wait_for("document.querySelectorAll('.records tbody tr').length === 1")
    page.click(".records tbody tr button")
    page.wait_for("document.querySelector('dialog[open] pre.part')")
    assert '"customer": "c3"' in page.value_of(
        "document.querySelectorAll('dialog[open] pre.part')[1].textContent"
    )
    page.press("Escape")
    browsed.visit("/messages/orders?partition=0&from=live")
    page.wait_for_text("Waiting for records")
    page.click(".head button")
    page.wait_for("document.querySelector('dialog[open] textarea')")
    page.value_of("document.querySelector('dialog[open] textarea').focus()")
    page.write("from the console")
    page.click("dialog[open] button.main")
    page.wait_for_text("Written: partition")
    browsed.produce("orders", ["seen at once"])
    page.press("Escape")
    page.wait_for_text("seen at once")


ODD: list[dict[str, Any]] = [
    {"key": b"\xff\x00", "value": b"\xfe" * 40_000, "headers": [("binary", b"\x00\xff")]},
    {"key": b"gone", "value": None, "headers": []},
    {"key": None, "value": b"", "headers": [("h", b" spaced: "), ("h", None), ("e", b"")]},
    {"key": b"two\nlines", "value": b"a\r\nb\tc\n" * 7000, "headers": [("l", b"1\n2")]},
    {"key": "schl\u00fcssel".encode(), "value": b'{"id":9007199254740993,"n":1.10}', "headers": []},
]
"""Records that a form could change without a word."""


@pytest.fixture(scope="module")
def odd(browsed: Browsed) -> str:
    browsed.cluster.create_topic("odd", 1)
    producer = Producer({"bootstrap.servers": browsed.cluster.bootstrap, "log_level": 0})
    for each in ODD:
        producer.produce("odd", partition=0, **each)
    assert producer.flush(30) == 0
    return "odd"


def records_of(browsed: Browsed, topic: str) -> list[dict[str, Any]]:
    config = {"bootstrap.servers": browsed.cluster.bootstrap, "group.id": "looks", "log_level": 0}
    consumer = Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[dict[str, Any]] = []
    while (message := consumer.poll(20)) is not None and not message.error():
        # The client gives no key and an empty one, and so with values, as they are.
        found.append(
            {
                "key": message.key(),
                "value": message.value(),
                "headers": message.headers() or [],
            }
        )
    consumer.close()
    return found


def test_a_record_is_produced_again_as_it_is(browsed: Browsed, odd: str) -> None:
    page = browsed.visit(f"/messages/{odd}?from=earliest")
    page.wait_for("document.querySelector('.chart canvas')")
    for number in range(len(ODD)):
        page.click(f"button[aria-label='Open the record at offset {number} of partition 0']")
        page.wait_for("document.querySelector('dialog[open] pre.part, dialog[open] .muted')")
        page.click("dialog[open] .actions button")
        page.wait_for("document.querySelector('dialog[open] form.produce')")
        page.click("dialog[open] button.main")
        page.wait_for_text(f"offset {len(ODD) + number}.")
        page.press("Escape")
        page.wait_for("!document.querySelector('dialog[open]')")
    found = records_of(browsed, odd)
    assert found[: len(ODD)] == ODD
    assert found[len(ODD) :] == ODD


def test_json_is_shown_with_the_numbers_that_were_written(browsed: Browsed, odd: str) -> None:
    page = browsed.visit(f"/messages/{odd}?from=4")
    page.wait_for("document.querySelector('.chart canvas')")
    page.click(".records header input[type=checkbox]")
    page.wait_for("document.querySelectorAll('.records thead th').length > 6")
    cells = "[...document.querySelectorAll('.records tbody tr')].at(-1).innerText.split('\\t')"
    shown = page.value_of(cells)
    assert "9007199254740993" in shown
    assert "1.10" in shown
    page.click("button[aria-label='Open the record at offset 4 of partition 0']")
    page.wait_for("document.querySelector('dialog[open] pre.part')")
    value = page.value_of("document.querySelectorAll('dialog[open] pre.part')[1].textContent")
    assert value == '{\n  "id": 9007199254740993,\n  "n": 1.10\n}'
    page.press("Escape")


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"b":[1,2,{"c":null}],"d":{},"e":[],"f":"x\\"{,:","g":[[],[{}]]}',
        ' [ true , false , "" , "\\\\" ] ',
        "12",
        '"{"',
        "[]",
    ],
)
def test_json_is_laid_out_as_browsers_do_it(browsed: Browsed, text: str) -> None:
    page = browsed.visit("/messages")
    script = f"""(async () => {{
        const base = document.querySelector("link[rel=modulepreload]").href.replace(/[^/]*$/, "");
        const {{ laidOut, membersOf }} = await import(`${{base}}json.js`);
        const text = {json.dumps(text)};
        const value = JSON.parse(text);
        const members = [...membersOf(text)].map(([name, source]) => [name, JSON.parse(source)]);
        const wanted = value?.constructor === Object ? Object.entries(value) : [];
        return [laidOut(text), JSON.stringify(value, null, 2), JSON.stringify(members), JSON.stringify(wanted)];
    }})()"""
    shown, wanted, members, wanted_members = page.value_of(script)
    assert shown == wanted
    assert members == wanted_members


def test_a_small_record_of_brackets_is_not_laid_out_as_a_huge_one(browsed: Browsed) -> None:
    page = browsed.visit("/messages")
    script = """(async () => {
        const base = document.querySelector("link[rel=modulepreload]").href.replace(/[^/]*$/, "");
        const { laidOut } = await import(`${base}json.js`);
        return laidOut("[".repeat(16000) + "]".repeat(16000)).length;
    })()"""
    assert page.value_of(script) < 2_000_000


def test_records_that_are_meant_to_do_harm_are_shown_or_named(browsed: Browsed) -> None:
    """A time that is no date, more headers than anybody reads, and a batch that unpacks to too much."""
    browsed.cluster.create_topic("harm", 1)
    records = [
        Record(0, -9_000_000_000_000_000, b"k", b"long ago", ()),
        Record(0, 1_700_000_000_000, b"k", b"headers", (("h", b"v"),) * 120),
        Record(0, 1_700_000_000_000, b"k", bytes(40 << 20) + os.urandom(60_000), ()),
    ]
    with BlockingClient(addresses(browsed.cluster.bootstrap)) as blocking:
        producer = ottla_producer.Producer(blocking.client, codec=1)
        for each in records:
            blocking.run(producer.send("harm", 0, [each]))
    commit(browsed.cluster, "harmed", 0, "harm")
    page = browsed.visit("/messages/harm?from=earliest")
    page.wait_for("document.querySelectorAll('.records tbody tr').length === 2")
    page.wait_for_text("offsets 2 to 2 of partition 0")
    # Not by the mouse: the table moves down when the histogram comes.
    page.value_of("document.querySelector('.records tbody tr:nth-child(1) button').click()")
    page.wait_for_text("timestamp -9000000000000000")
    page = browsed.visit("/messages/harm?from=earliest")
    page.wait_for("document.querySelectorAll('.records tbody tr').length === 2")
    page.value_of("document.querySelector('.records tbody tr:nth-child(2) button').click()")
    page.wait_for_text("20 other headers not shown")
    page = browsed.visit("/groups/harmed")
    page.wait_for_text("3 records behind")
    assert "harmed" not in browsed.visit("/").value_of(
        "[...document.querySelectorAll('.problem')].map((each) => each.textContent).join()"
    )


def test_a_topic_is_made_changed_and_deleted(browsed: Browsed) -> None:
    page = browsed.visit("/topics")
    page.wait_for_text("orders")
    page.click(".head button.main")
    page.wait_for("document.querySelector('dialog[open] input')")
    page.value_of("document.querySelector('dialog[open] input').focus()")
    page.write("invoices")
    page.click("dialog[open] .actions button")
    page.wait_for_text("The cluster would make it")
    page.click("dialog[open] .actions button.main")
    page.wait_for("location.pathname === '/topics/invoices'")
    page.wait_for_text("3 partitions")
    page.wait_for(
        "[...document.querySelectorAll('button')].some((e) => /^All [0-9]+$/.test(e.textContent))"
    )
    page.value_of(
        "[...document.querySelectorAll('button')].find((e) => /^All [0-9]+$/.test(e.textContent)).click()"
    )
    page.wait_for_text("retention.ms")
    page.click("button[aria-label='Change retention.ms']")
    page.value_of("document.querySelector('input[aria-label=\"retention.ms\"]').select()")
    page.write("1000")
    page.click("td form button.main")
    page.wait_for_text("this topic")
    assert browsed.console.get("topics/settings", topic="invoices")
    page.click(".head button.danger")
    page.wait_for("document.querySelector('dialog[open] input')")
    assert page.value_of("document.querySelector('dialog[open] button.danger').disabled") is True
    page.value_of("document.querySelector('dialog[open] input').focus()")
    page.write("invoices")
    page.click("dialog[open] button.danger")
    page.wait_for("location.pathname === '/topics'")
    page.wait_for("!document.querySelector('.vbody').textContent.includes('invoices')")


def test_a_plan_is_shown_with_before_and_after_and_carried_out(browsed: Browsed) -> None:
    commit(browsed.cluster, "billing")  # it is late as soon as the tests before take ten seconds
    wait_until(browsed.is_well, 30, "a cluster that is well")
    browsed.cluster.create_topic("lopsided", assignment=[[1, 2, 3]] * 12)
    page = browsed.visit("/moves")
    page.click("section .fields button")
    page.wait_for("document.querySelector('.ba')", 20)
    assert "would change" in page.text()
    page.click("button.main")
    page.wait_for_text("No limit is left behind", 40)
    leaders = {state.leader for state in browsed.cluster.partitions("lopsided").values()}
    assert leaders == {1, 2, 3}


def test_an_open_transaction_is_shown_with_what_it_holds_back_and_aborted(browsed: Browsed) -> None:
    producer = Producer(
        {"bootstrap.servers": browsed.cluster.bootstrap, "transactional.id": "till", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "unfinished", partition=2)
    producer.flush(30)
    page = browsed.visit("/transactions")
    page.wait_for_text("till")
    page.wait_for_text("Ongoing")
    page.wait_for(
        "[...document.querySelectorAll('tbody a.name')].some((e) => e.textContent === 'orders-2')"
    )
    page.click("td button.danger")
    page.click("dialog[open] button.danger")
    page.wait_for_text("Nothing is open.", 20)


def test_an_open_cluster_says_that_it_is_open(browsed: Browsed) -> None:
    page = browsed.visit("/security")
    page.wait_for_text("whoever can connect may do everything")


def test_a_scenario_of_the_lab_is_stepped_through_both_ways_to_the_lost_record(
    browsed: Browsed,
) -> None:
    page = browsed.visit("/lab?scenario=loss&design=hw-truncation")
    page.wait_for("document.querySelector('.player')", 60)
    last = page.value_of("document.querySelector('.player input[type=range]').max")
    page.press("End")
    page.wait_for_text("In the end:")
    page.click(".player button.danger")
    page.wait_for("document.querySelector('.cell.lost')")
    page.press("Home")
    page.wait_for("!document.querySelector('.cell.lost')")
    for _ in range(3):
        page.press("ArrowRight")
    page.wait_for("document.querySelector('.player input[type=range]').value === '3'")
    page.press("ArrowLeft")
    page.wait_for("document.querySelector('.player input[type=range]').value === '2'")
    assert int(last) >= 3
    page.wait_for("new URLSearchParams(location.search).get('step') === '3'")


def test_a_trace_of_the_simulator_is_stepped_through(browsed: Browsed, tmp_path: Path) -> None:
    from unit.console.test_trace import TRACE

    file = tmp_path / "trace.txt"
    file.write_text("\n".join(TRACE))
    page = browsed.visit("/lab")
    page.wait_for("document.querySelector('input[type=file]')")
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    node = page.ask("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
    page.ask("DOM.setFileInputFiles", files=[str(file)], nodeId=node)
    page.wait_for("document.querySelector('.player')")
    page.press("End")
    page.wait_for_text("Broker 1 copies up to 7.")
    page.press("ArrowLeft")
    page.wait_for_text("Broker 1 truncates its log from 8 to 5.")


def test_a_page_that_nobody_sees_has_no_stream(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.wait_for("document.querySelector('.dot.live')")
    page.value_of(
        "Object.defineProperty(document, 'hidden', { get: () => true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))"
    )
    before = page.value_of("performance.getEntriesByType('resource').length")
    page.value_of(
        "Object.defineProperty(document, 'hidden', { get: () => false, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for("document.querySelector('.dot.live')")
    assert before > 0


def test_a_command_takes_a_name_for_no_option(browsed: Browsed) -> None:
    """Clients chose the names of groups: a command that is copied must go where this console looks."""
    page = browsed.visit("/groups")
    parts = "document.querySelector('link[rel=modulepreload][href$=\"/parts/page.js\"]').href"
    command = page.value_of(
        f"import({parts}).then(({{ named, ottla }}) => ottla('groups', 'describe', named('--bootstrap=127.0.0.1:1')))"
    )
    done = subprocess.run([OTTLA, *shlex.split(command)[1:]], capture_output=True, text=True)
    assert "--bootstrap=127.0.0.1:1" in done.stderr, "as the name of a group"
    assert "127.0.0.1:1 " not in done.stderr.replace("--bootstrap=127.0.0.1:1", "")
    plain = (
        f"import({parts}).then(({{ named, ottla }}) => ottla('groups', 'describe', named('a b')))"
    )
    assert page.value_of(plain).startswith("ottla groups describe 'a b' --bootstrap ")


@pytest.mark.parametrize("group", ["..", "~", "a/b"])
def test_a_group_has_a_page_whatever_it_is_called(browsed: Browsed, group: str) -> None:
    commit(browsed.cluster, group, 50)
    page = browsed.visit("/groups")
    page.wait_for_text(group)
    found = f"[...document.querySelectorAll('td a.name')].find((a) => a.textContent === {json.dumps(group)})"
    page.wait_for(f"({found}?.click(), location.pathname !== '/groups')")
    page.wait_for(f"document.querySelector('h1')?.textContent.includes({json.dumps(group)})")
    page.wait_for_text("orders")


def test_a_console_that_stops_is_not_shown_as_live(browsed: Browsed) -> None:
    """Its connections stay open: nobody tells the page but what it does not hear."""
    page = browsed.visit("/")
    headline = "document.querySelector('.verdict h1').innerText"
    page.wait_for("document.querySelector('.dot.live') && document.querySelector('.verdict p')")
    before = page.value_of(headline)
    assert "As of " not in before
    os.kill(browsed.console.pid, signal.SIGSTOP)
    try:
        page.wait_for(
            "document.querySelector('.dot.lost') && document.querySelector('.lamp.off')", 25
        )
        told = page.value_of(headline)
        assert "As of " in told
        assert before not in told, "it was so, and is perhaps not so now"
    finally:
        os.kill(browsed.console.pid, signal.SIGCONT)
    page.wait_for("document.querySelector('.dot.live') && !document.querySelector('.lamp.off')", 20)
    assert "As of " not in page.value_of(headline)


def test_an_element_that_never_changes_is_made_anew_each_time(browsed: Browsed) -> None:
    """One that is used again keeps the tree that it was part of, and with it what a page showed hours ago."""
    page = browsed.visit("/", 1440, 900)
    assert page.value_of(
        """(async () => {
            const app = document.querySelector("script[src*='app.js']").src;
            const { html } = await import(app.replace("app.js", "lib.js"));
            const made = () => html`<p>always the same</p>`;
            return made() !== made();
        })()"""
    )


def test_nothing_is_called_well_before_anything_is_known(browsed: Browsed) -> None:
    """Of a cluster that takes connections and answers nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as hung,
        ConsoleProcess("-b", f"127.0.0.1:{hung.getsockname()[1]}") as console,
    ):
        page = browsed.browser
        page.visit(f"{console.url}/")
        page.wait_for("document.querySelector('.verdict') && document.querySelector('.dot.live')")
        assert page.value_of("document.querySelector('.verdict h1').innerText") == "Looking…"
        assert page.value_of("document.querySelector('.verdict .lamp.off') !== null")
        page.wait_for_text("The cluster does not answer.", 40)
        assert "All is well" not in page.text()
    page.events.clear()
