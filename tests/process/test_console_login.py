"""Logging in to the console of a secured cluster: who is let in, what each may see and do, and how that ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.console.web.login_throttle import FREE
from ottla.local import console as local_console
from ottla.local.ports import free_ports
from ottla.local.processes import started_at
from support.cluster import OTTLA, wait_until
from support.console import ConsoleProcess
from support.secure import SecureCluster, secure_cluster
from support.secured import Certificates, SecuredCluster
from support.tls_proxy import tls_proxy

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("secure")
    with secure_cluster(directory / "cluster") as cluster:
        for topic in ("orders", "secret-plans"):
            cluster.told("topics", "create", topic, "-p", "1")
        for user in ("alice", "bob"):
            file = directory / f"{user}.password"
            file.write_text(PASSWORD)
            cluster.told("users", "add", user, "--password-file", str(file))
        cluster.told("acls", "add", "alice", "--consume", "orders", "--group", "billing")
        yield cluster


@pytest.fixture
def console(secure: SecureCluster) -> Iterator[ConsoleProcess]:
    options = ("--dir", str(secure.directory), "--allow-writes")
    with ConsoleProcess(*options) as running:
        yield running
    assert PASSWORD not in running.errors


def admin_password(secure: SecureCluster) -> str:
    settings = json.loads(secure.file("confluent-kafka.json").read_text())
    return str(settings["sasl.password"])


def test_nobody_sees_anything_without_a_login(console: ConsoleProcess) -> None:
    for name in ("stream?page=overview", "events", "explain?about=broker:1", "messages?topic=orders", "security", "nothing"):  # fmt: skip
        status, _, body = console.ask(f"/api/{name}")
        assert (status, json.loads(body)) == (401, {"error": "Log in first."}), name
    assert console.ask("/")[0] == 200
    session = console.get("session")
    assert session["login"]["by"] == "password"
    assert "bootstrap" not in session


def test_a_refusal_does_not_say_whether_the_user_exists(console: ConsoleProcess) -> None:
    known = console.posted("login", **login_of("alice", "wrong"))
    unknown = console.posted("login", **login_of("nobody", "wrong"))
    assert known[0] == unknown[0] == 401
    assert known[2] == unknown[2]
    assert "set-cookie" not in known[1]


def login_of(user: str, password: str) -> dict[str, str | None]:
    nothing = dict.fromkeys(("mechanism", "certificate", "key", "key_password"))
    return {"user": user, "password": password, **nothing}


def test_each_sees_what_the_cluster_lets_them_see(
    console: ConsoleProcess, secure: SecureCluster
) -> None:
    assert console.log_in("alice", PASSWORD) == 200
    assert console.get("session")["user"] == "alice"
    with console.page("overview") as page:
        page.wait(lambda p: p.table("topics"), 10, "topics")
        assert set(page.table("topics")) == {"orders"}
        assert {name.rpartition("-")[0] for name in page.table("partitions")} == {"orders"}
    status, _, body = console.ask("/api/messages?topic=secret-plans")
    assert status in (403, 404), body
    assert console.get("events")["missing"]
    assert console.log_in("admin", admin_password(secure)) == 200
    with console.page("overview") as page:
        page.wait(lambda p: {"orders", "secret-plans"} <= set(p.table("topics")), 10, "all topics")
        page.wait(lambda p: p.table("quorum"), 10, "the quorum")


def test_what_a_user_may_not_do_the_console_cannot_do(
    console: ConsoleProcess, secure: SecureCluster
) -> None:
    assert console.log_in("alice", PASSWORD) == 200
    wanted = {"partitions": 1, "factor": 1, "configs": {}, "validate_only": False}
    status, told = console.post("topics/create", name="of-alice", **wanted)
    assert status == 403, told
    assert console.post("topics/delete", topic="orders")[0] == 403
    assert console.log_in("admin", admin_password(secure)) == 200
    assert console.post("topics/create", name="of-admin", **wanted)[0] == 200


def test_the_cookie_is_for_this_console_alone(console: ConsoleProcess) -> None:
    status, heads, _ = console.posted("login", **login_of("alice", PASSWORD))
    assert status == 200
    name, *attributes = (part.strip() for part in heads["set-cookie"].split(";"))
    port = console.host.rpartition(":")[2]
    assert name.startswith(f"ottla-{port}=")
    assert {each.lower() for each in attributes} == {"httponly", "samesite=strict", "path=/"}
    assert len(name.partition("=")[2]) >= 32
    assert heads["cache-control"] == "no-store"


def test_two_consoles_on_one_host_do_not_log_each_other_out(
    console: ConsoleProcess, secure: SecureCluster
) -> None:
    """Browsers give a cookie to all ports of a host."""
    with ConsoleProcess("--dir", str(secure.directory)) as other:
        jar = {}
        for each, user, password in ((console, "alice", PASSWORD), (other, "bob", PASSWORD)):
            assert each.log_in(user, password) == 200
            assert each.cookie is not None
            name, _, value = each.cookie.partition("=")
            jar[name] = value
        console.cookie = other.cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
        assert console.get("session")["user"] == "alice"
        assert other.get("session")["user"] == "bob"


def test_with_tls_the_cookie_never_goes_without(secure: SecureCluster, tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    pair = str(made.issue(made.nodes, "console", "127.0.0.1", "console.example"))
    options = ("--dir", str(secure.directory), "--tls-cert", pair, "--tls-key", pair)
    with ConsoleProcess(*options) as console:
        assert console.url.startswith("https://")
        status, heads, _ = console.posted("login", **login_of("alice", PASSWORD))
        assert status == 200
        assert heads["set-cookie"].startswith("__Host-ottla-")
        assert "Secure" in heads["set-cookie"]
        assert "strict-transport-security" in heads
        assert console.ask("/", headers={"host": "console.example"})[0] == 200
        assert console.ask("/", headers={"host": "other.example"})[0] == 403


def test_behind_a_proxy_that_does_tls_people_log_in_and_change_things(
    secure: SecureCluster, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    with tls_proxy(made.issue(made.nodes, "proxy", "localhost")) as proxy:
        options = ("--dir", str(secure.directory), "--allow-writes", "--origin", proxy.origin)
        with ConsoleProcess(*options) as console:
            assert console.own_url.startswith("http://")
            proxy.target = ("127.0.0.1", int(console.own_url.rpartition(":")[2]))
            console.behind(proxy.origin)
            status, heads, _ = console.posted("login", **login_of("alice", PASSWORD))
            assert status == 200
            assert heads["set-cookie"].startswith("__Host-ottla")
            assert "Secure" in heads["set-cookie"]
            assert "strict-transport-security" in heads
            assert console.log_in("alice", PASSWORD) == 200
            assert console.get("session")["user"] == "alice"
            status, told = console.post("topics/delete", topic="orders")
            assert (status, "The cluster does not allow it" in told["error"]) == (403, True)
            # Who goes around the proxy would send a password in plain: that is no page of ours.
            console.behind(console.own_url)
            heads = {"origin": console.own_url, "x-ottla-token": console.get("session")["token"]}
            body = json.dumps(login_of("alice", PASSWORD)).encode()
            assert console.ask("/api/login", method="POST", headers=heads, body=body)[0] == 403


def test_only_its_own_page_may_log_in_or_change_something(console: ConsoleProcess) -> None:
    token = console.get("session")["token"]
    body = json.dumps(login_of("alice", PASSWORD)).encode()
    own = {"origin": console.url, "x-ottla-token": token}
    for heads in (
        {},
        {"x-ottla-token": token},
        {**own, "origin": "http://evil.example"},
        {**own, "x-ottla-token": "guess"},
        {**own, "sec-fetch-site": "cross-site"},
        {"origin": console.url},
    ):
        assert console.ask("/api/login", method="POST", headers=heads, body=body)[0] == 403, heads
    assert console.log_in("alice", PASSWORD) == 200
    status, _, _ = console.ask("/api/topics/delete", method="POST", headers=own, body=b"{}")
    assert status == 403, "the token of a page that has not logged in is not that of a visit"


def test_who_has_no_rights_is_told_nothing_of_this_machine(
    console: ConsoleProcess, secure: SecureCluster
) -> None:
    assert console.log_in("bob", PASSWORD) == 200
    session = console.get("session")
    assert str(secure.directory) not in json.dumps(session)
    assert session["command_option"].startswith(" --bootstrap 127.0.0.1:")


def test_a_logout_ends_the_visit_and_its_pages(console: ConsoleProcess) -> None:
    assert console.log_in("alice", PASSWORD) == 200
    old = console.cookie
    with console.page("overview") as page:
        page.wait(lambda p: p.table("topics"), 10, "topics")
        assert console.post("logout")[0] == 200
        page.wait(lambda p: p.is_over, 5, "the end of the stream")
    assert console.cookie == old
    assert console.ask("/api/events")[0] == 401


def test_a_logout_ends_live_tails_at_once(console: ConsoleProcess, secure: SecureCluster) -> None:
    """Also those of a client that goes on reading."""
    assert console.log_in("alice", PASSWORD) == 200
    connection = http.client.HTTPConnection(console.host, timeout=20)
    heads = {"cookie": console.cookie or ""}
    connection.request("GET", "/api/messages/tail?topic=orders", headers=heads)
    answer = connection.getresponse()
    assert "progress" in json.loads(answer.readline())
    assert console.post("logout")[0] == 200
    began = time.monotonic()
    told = [json.loads(line) for line in answer.read().splitlines()]
    assert time.monotonic() - began < 5
    assert told[-1] == {"error": "This visit is over: log in again."}
    connection.close()


def test_a_visit_ends_when_its_user_is_removed(
    console: ConsoleProcess, secure: SecureCluster, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    secure.told("users", "add", "carol", "--password-file", str(file))
    wait_until(lambda: console.log_in("carol", PASSWORD) == 200, 10, "carol is let in")
    with console.page("overview") as page:
        page.wait(lambda p: p.events, 10, "an event")
        secure.told("users", "remove", "carol")
        page.wait(lambda p: p.is_over, 60, "the end of the visit")
    assert console.ask("/api/events")[0] == 401


def test_what_a_user_may_not_see_any_more_is_not_shown_any_more(
    console: ConsoleProcess, secure: SecureCluster, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    secure.told("users", "add", "eve", "--password-file", str(file))
    secure.told("acls", "add", "eve", "--observe")
    secure.told("acls", "add", "eve", "--consume", "__ottla_events", "--group", "x")
    wait_until(lambda: console.log_in("eve", PASSWORD) == 200, 10, "eve is let in")
    theirs = ("newest", "disks", "quorum", "broker_rates")
    with console.page("overview") as page:
        page.wait(lambda p: all(p.table(name) for name in theirs), 30, "all of it")
        secure.told("acls", "remove", "eve", "--all")
        page.wait(lambda p: not any(p.table(name) for name in theirs), 40, "none of it")
        assert "controller" not in page.table("problems"), "that a controller leads is not known"
        assert page.table("cluster")["cluster"]["has_event_log"] is False
    with console.page("overview") as page:
        page.wait(lambda p: p.table("cluster"), 10, "an answer")
        assert not any(page.table(name) for name in theirs)


def test_who_observes_is_told_that_the_event_log_is_not_for_him(
    console: ConsoleProcess, secure: SecureCluster, tmp_path: Path
) -> None:
    """Who may see that there is one, and may not read it."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    secure.told("users", "add", "oscar", "--password-file", str(file))
    secure.told("acls", "add", "oscar", "--observe")
    wait_until(lambda: console.log_in("oscar", PASSWORD) == 200, 10, "oscar is let in")
    with console.page("overview") as page:
        page.wait(lambda p: p.table("quorum"), 30, "the quorum")
        page.wait(lambda p: p.table("cluster")["cluster"]["has_event_log"] is False, 20, "none")
        assert page.table("cluster")["cluster"]["is_ottla"] is True
    assert console.get("events")["missing"]


def test_whoever_guesses_waits(console: ConsoleProcess) -> None:
    statuses = [console.posted("login", **login_of("bob", f"guess {n}"))[0] for n in range(7)]
    assert statuses[:5] == [401] * 5
    status, heads, told = console.posted("login", **login_of("bob", PASSWORD))
    assert status == 429
    assert int(heads["retry-after"]) >= 1
    assert "Try again" in told["error"]


def test_guesses_at_the_same_time_are_no_way_around(console: ConsoleProcess) -> None:
    token = console.get("session")["token"]
    heads = {"origin": console.url, "x-ottla-token": token}

    def guess(number: int) -> int:
        body = json.dumps(login_of("bob", f"guess {number}")).encode()
        return console.ask("/api/login", method="POST", headers=heads, body=body)[0]

    with ThreadPoolExecutor(40) as people:
        statuses = Counter(people.map(guess, range(40)))
    assert statuses == {401: FREE, 429: 40 - FREE}


def test_behind_a_proxy_each_has_an_address_of_their_own(secure: SecureCluster) -> None:
    options = ("--dir", str(secure.directory), "--proxy", "127.0.0.1")
    with ConsoleProcess(*options) as console:
        token = console.get("session")["token"]

        def status(user: str, password: str, address: str) -> int:
            heads = {"origin": console.url, "x-ottla-token": token, "x-forwarded-for": address}
            body = json.dumps(login_of(user, password)).encode()
            return console.ask("/api/login", method="POST", headers=heads, body=body)[0]

        guesses = [status(f"user{n}", "guess", "10.6.6.6") for n in range(FREE)]
        assert guesses == [401] * FREE
        assert status("alice", PASSWORD, "10.6.6.6") == 429
        assert status("alice", PASSWORD, "10.1.2.3") == 200


def connect(console: ConsoleProcess) -> socket.socket:
    host, _, port = console.host.partition(":")
    return socket.create_connection((host, int(port)), 10)


def test_whoever_connects_and_says_nothing_keeps_nobody_out(console: ConsoleProcess) -> None:
    """More connections than the console takes: silent ones, and some with half a request."""
    token = console.get("session")["token"]
    begun = (
        f"POST /api/login HTTP/1.1\r\nhost: {console.host}\r\norigin: {console.url}\r\n"
        f"x-ottla-token: {token}\r\ncontent-length: 10000\r\n\r\n{{"
    )
    silent = []
    try:
        for number in range(520):
            silent.append(connect(console))
            if number % 3:
                silent[-1].sendall(begun.encode()[: 1000 if number % 2 else 40])
        assert console.log_in("alice", PASSWORD) == 200
        assert console.get("session")["user"] == "alice"
    finally:
        for each in silent:
            each.close()
    wait_until(lambda: console.ask("/")[0] == 200, 5, "an answer")


def test_with_tls_too_a_silent_connection_does_not_last(
    secure: SecureCluster, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    pair = str(made.issue(made.nodes, "console", "127.0.0.1"))
    options = ("--dir", str(secure.directory), "--tls-cert", pair, "--tls-key", pair)
    with ConsoleProcess(*options) as console, connect(console) as silent:
        silent.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""


def test_a_login_is_small_and_an_upload_that_breaks_off_is_no_error(
    console: ConsoleProcess,
) -> None:
    status, _, told = console.posted("login", **login_of("alice", "x" * 20_000))
    assert (status, told["error"]) == (413, "More than 16384 bytes.")
    token = console.get("session")["token"]
    with connect(console) as broken:
        broken.sendall(
            f"POST /api/login HTTP/1.1\r\nhost: {console.host}\r\norigin: {console.url}\r\n"
            f"x-ottla-token: {token}\r\ncontent-length: 1000\r\n\r\n{{".encode()
        )
        time.sleep(0.2)  # so that somebody reads the body
    assert console.get("session")["token"] == token
    # That there is no traceback, ConsoleProcess sees when it ends.


def test_a_certificate_lets_in_whom_the_cluster_knows_by_it(tmp_path: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(
            [f"User:OU=tests,O=test,CN=node-{id}" for id in (1, 2, 3)]
            + [f"User:CN=node-{id},OU=tests,O=test" for id in (1, 2, 3)]
            + ["User:ANONYMOUS", "User:admin"]
        ),
        "ssl.principal.mapping.rules": r"RULE:^CN=(admin|alice),.*$/$1/,DEFAULT",
    }
    with SecuredCluster(tmp_path, 3, rules, client_auth="required") as cluster:
        cluster.create_topic("orders", 1)
        config = tmp_path / "client.properties"
        config.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={cluster.certificates.nodes_file}\n"
        )
        # Only with a certificate does the listener answer at all: the console itself has none.
        options = ("-b", cluster.secured_bootstrap, "--command-config", str(config))
        with ConsoleProcess(*options) as console:
            assert console.get("session")["login"]["by"] == "certificate"
            assert console.log_in_with_certificate(None, None) == 401
            files = {
                name: cluster.certificates.issue(cluster.certificates.clients, name).read_text()
                for name in ("admin", "alice")
            }
            assert console.log_in_with_certificate(files["admin"], files["admin"]) == 200
            assert "admin" in console.get("session")["user"]
            with console.page("overview") as page:
                page.wait(lambda p: "orders" in p.table("topics"), 10, "what admin may see")
            assert console.log_in_with_certificate(files["alice"], files["alice"]) == 200
            with console.page("overview") as page:
                page.wait(lambda p: p.table("brokers"), 10, "what alice may see")
                assert not page.table("topics")


# At the start


def refused(*words: str) -> str:
    done = subprocess.run(
        [OTTLA, "console", "--port", "0", *words], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr


def test_passwords_are_not_taken_in_plain_from_other_machines(secure: SecureCluster) -> None:
    said = refused("--dir", str(secure.directory), "--host", "0.0.0.0")
    assert "--tls-cert" in said
    assert "--origin" in said
    assert "--login-without-tls" in said


@pytest.mark.parametrize("origin", ["console.example", "ftp://console.example", "https://console.example/path"])  # fmt: skip
def test_an_origin_is_a_scheme_and_a_host(secure: SecureCluster, origin: str) -> None:
    said = refused("--dir", str(secure.directory), "--origin", origin)
    assert f"--origin {origin}: it " in said


def test_without_a_config_it_says_what_the_cluster_wants(secure: SecureCluster) -> None:
    assert "give --command-config" in refused("-b", secure.bootstrap)


def test_a_port_that_is_taken_is_named(secure: SecureCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("--dir", str(secure.directory), "--port", port)
    assert f"127.0.0.1:{port}" in said
    assert "choose another one" in said


def test_nobody_can_take_the_port_before_the_console_that_up_starts(
    secure: SecureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that is bound to it at the last moment would be announced as the console, and asked for passwords."""
    start, ports, thieves = subprocess.Popen, [], []

    def chosen(*words: Any) -> list[int]:
        ports.extend(found := free_ports(*words))
        return found

    def start_late(*words: Any, **options: Any) -> Any:
        with contextlib.suppress(OSError):
            thieves.append(socket.create_server(("127.0.0.1", ports[-1])))
        return start(*words, **options)

    monkeypatch.setattr("ottla.local.console.free_ports", chosen)
    monkeypatch.setattr("ottla.local.console.subprocess.Popen", start_late)
    console = local_console.start_console(secure.directory, None, is_anywhere=True)
    try:
        assert not thieves
        with urlopen(console.url, timeout=10) as answer:
            assert "content-security-policy" in answer.headers
    finally:
        local_console.stop_console(console)
        for each in thieves:
            each.close()


def test_up_starts_the_console_beside_the_cluster_and_down_stops_it(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path / "cluster"))

    def told(*words: str) -> str:
        done = subprocess.run([OTTLA, *words, *directory], capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    up = ("up", "--console", "--detach", "-n", "1", "--port", "0", "--format", "json")
    url = json.loads(told(*up))["console"]
    try:
        host = url.removeprefix("http://")
        from support.console import OpenPage

        page = OpenPage(host, "/api/stream?page=overview")
        page.wait(lambda p: p.table("brokers"), 20, "the broker")
        page.close()
        assert json.loads(told("status", "--format", "json"))["console"] == url
        pid = json.loads((tmp_path / "cluster" / "cluster.json").read_text())["console"]["pid"]
        assert "and the console" in told("down")
        assert started_at(pid) is None
        assert "console" not in json.loads(told("status", "--format", "json"))
        again = ("up", "--console", "--detach", "--format", "json")
        assert json.loads(told(*again))["console"] == url, "where it was before"
    finally:
        told("purge")
    began = time.monotonic()
    while time.monotonic() - began < 5:
        try:
            socket.create_connection(tuple(host.split(":")), 1).close()
        except ConnectionRefusedError:
            break
    else:
        raise AssertionError("the console outlives its cluster")
