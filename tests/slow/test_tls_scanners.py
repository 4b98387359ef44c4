"""What scanners of TLS (sslscan, testssl.sh) and OpenSSL's own client find at the three listeners of `ottla up --secure`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.secure import SecureCluster, secure_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

APT_INSTALL = Path(__file__).resolve().parents[2] / "scripts" / "apt-install"
LISTENERS = ("CLIENTS", "INTERNAL", "CONTROLLER")
SUITES = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""Forward secrecy and authenticated encryption only; no CBC."""
CORRELATION = b"#67#"
API_VERSIONS = b"\0\0\0\x0a" + b"\0\x12\0\0" + CORRELATION + b"\xff\xff"
SERIOUS = {"MEDIUM", "HIGH", "CRITICAL", "FATAL"}
OWN_CA = {"cert_revocation"}
"""The cluster's own CA publishes no list of revoked certificates: these live for 30 days, and a CA that is removed ends what
rests on it."""
NOT_ASKED = {"sessionresumption_ID", "secure_client_renego", "BREACH", "engine_problem"}
"""What testssl.sh 3.0 leaves out where a client must show a certificate. OpenSSL's client asks it below."""


@dataclass(frozen=True)
class Door:
    name: str
    port: int
    certificate: Path
    """Of a node, with its key: who may come in everywhere."""
    ca: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def openssl(self, *words: str | Path, said: bytes = b"", until: bytes = b"") -> str:
        """A conversation of OpenSSL's client, which hangs up when it has heard what it waits for."""
        command = ["openssl", "s_client", "-connect", self.address, "-CAfile", self.ca]
        command += ["-cert", self.certificate, "-key", self.certificate, *words]
        with subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(said)
            heard = b""
            while until not in heard and (some := client.stdout.read(4096)):
                heard += some
            client.stdin.close()
            heard += client.stdout.read()
        return heard.decode(errors="replace")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("scanned") / "cluster", nodes=1) as made:
        yield made


@pytest.fixture(params=LISTENERS)
def door(cluster: SecureCluster, request: pytest.FixtureRequest) -> Door:
    (node,) = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
    ports = {"CLIENTS": "port", "INTERNAL": "internal_port", "CONTROLLER": "controller_port"}
    return Door(
        request.param,
        node[ports[request.param]],
        cluster.directory / "node-1" / "tls" / "node.pem",
        cluster.file("ca.crt"),
    )


def needs(command: str, package: str) -> None:
    if shutil.which(command) is None:
        done = subprocess.run([APT_INSTALL, package], stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
        if done.returncode != 0:
            pytest.fail(done.stderr, pytrace=False)


def test_sslscan_finds_new_versions_strong_suites_and_one_group(door: Door) -> None:
    needs("sslscan", "sslscan")
    certificate = (f"--certs={door.certificate}", f"--pk={door.certificate}")
    command = ["sslscan", "--no-colour", "--xml=-", *certificate, door.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = ElementTree.fromstring(done.stdout).find("ssltest")
    assert found is not None
    versions = {
        f"{each.get('type')} {each.get('version')}": each.get("enabled") == "1"
        for each in found.iter("protocol")
    }
    assert versions == {
        "ssl 2": False,
        "ssl 3": False,
        "tls 1.0": False,
        "tls 1.1": False,
        "tls 1.2": True,
        "tls 1.3": True,
    }
    assert {each.get("cipher") for each in found.iter("cipher")} == SUITES
    assert {each.get("sslversion") for each in found.iter("cipher")} == {"TLSv1.2", "TLSv1.3"}
    # A group such as ffdhe8192 would cost a node a fifth of a second, whoever asks.
    assert {each.get("name") for each in found.iter("group")} == {"secp256r1 (NIST P-256)"}
    (renegotiation,) = found.iter("renegotiation")
    assert renegotiation.get("supported") == "0"
    assert {each.get("vulnerable") for each in found.iter("heartbleed")} == {"0"}


def test_testssl_finds_nothing_serious(door: Door, tmp_path: Path) -> None:
    needs("testssl", "testssl.sh")
    file = tmp_path / "found.json"
    checks = ("--protocols", "--std", "--pfs", "--server-preference", "--server-defaults", "--vulnerable")  # fmt: skip
    options = ("--quiet", "--color", "0", "--warnings", "off", "--add-ca", str(door.ca))
    done = subprocess.run(
        ["nice", "testssl", *options, "--jsonfile", str(file), *checks, door.address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
        # Certificates of nodes live for 30 days, and testssl would complain of each.
        env={**os.environ, "DAYS2WARN1": "7", "DAYS2WARN2": "3"},
    )
    assert file.exists(), done.stdout
    found = {each["id"]: (each["severity"], each["finding"]) for each in json.loads(file.read_text())}  # fmt: skip
    serious = {name: said for name, said in found.items() if said[0] in SERIOUS}
    assert serious.keys() <= OWN_CA, serious
    left_out = {name for name, said in found.items() if said[0] == "WARN"}
    assert left_out <= (NOT_ASKED if door.name != "CLIENTS" else {"engine_problem"}), left_out
    # So that a scan which found nothing at all does not pass.
    for name in ("SSLv2", "SSLv3", "TLS1", "TLS1_1", "cipherlist_NULL", "cipherlist_aNULL"):
        assert found[name][1] == "not offered", name
    assert found["TLS1_2"] == ("OK", "offered")
    assert found["TLS1_3"][0] == found["PFS"][0] == found["cipher_order"][0] == "OK"
    assert found["cert_chain_of_trust"][0] == found["cert_trust"][0] == "OK"
    for attack in ("heartbleed", "CCS", "ROBOT", "CRIME_TLS", "SWEET32", "LUCKY13", "RC4", "BEAST"):
        assert found[attack][0] == "OK", attack


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_session_is_resumed_only_where_no_certificate_counts(
    door: Door, version: str, tmp_path: Path
) -> None:
    session = tmp_path / "session"
    # With TLS 1.3 a ticket comes behind the handshake, and before the answer.
    first = door.openssl(version, "-sess_out", session, said=API_VERSIONS, until=CORRELATION)
    assert "New, TLSv1" in first and "Verify return code: 0 (ok)" in first, first
    if not session.exists():
        assert door.name != "CLIENTS"
        return  # nothing was given that could be resumed
    again = door.openssl(version, "-sess_in", session)
    expected = "Reused" if door.name == "CLIENTS" else "New"
    assert re.search(rf"^{expected}, TLSv1", again, re.MULTILINE), again


def test_nobody_renegotiates_or_compresses(door: Door) -> None:
    words = ("-tls1_2", "-legacy_renegotiation", "-comp")
    said = door.openssl(*words, said=b"R\n", until=b"no renegotiation")
    assert "RENEGOTIATING" in said and "no renegotiation" in said, said
    assert "Compression: NONE" in said


@pytest.mark.parametrize("group", ["X25519", "P-521", "ffdhe2048", "ffdhe8192"])
def test_a_stranger_does_not_choose_how_much_a_key_costs(door: Door, group: str) -> None:
    assert "alert handshake failure" in door.openssl("-groups", group)
    assert "New, TLSv1.3" in door.openssl("-groups", f"{group}:P-256"), "a second guess is right"
