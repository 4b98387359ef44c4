"""Names of certificates and rules for them, against what Java and Apache Kafka 4.3 made of the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ottla.security.names import InvalidName, MappingRules, NoRuleFits, distinguished_name, name_of

HERE = Path(__file__).parent
NAMES = [line.split(" ", 1) for line in (HERE / "names.golden.txt").read_text().splitlines()]
"""A name in DER, and X500Principal.getName() of it."""
RULES = [line.split("\t") for line in (HERE / "mapping-rules.golden.txt").read_text().splitlines()]
"""Rules, a name, and SslPrincipalMapper.getName() of it; an exclamation mark where that fails."""


@pytest.mark.parametrize(("der", "java"), NAMES)
def test_a_name_is_written_as_java_writes_it(der: str, java: str) -> None:
    assert distinguished_name(bytes.fromhex(der)) == json.loads(java)


@pytest.mark.parametrize(("rules", "name", "kafka"), RULES)
def test_a_rule_makes_of_a_name_what_kafka_makes_of_it(rules: str, name: str, kafka: str) -> None:
    if kafka == "!":
        with pytest.raises(ValueError):
            MappingRules(rules).apply(name)
    else:
        assert MappingRules(rules).apply(name) == kafka


@pytest.mark.parametrize(
    "pattern",
    [r"\p{L}+", r"\Qx\E", "(?<name>x)", "[a-z&&[^b]]", r"x\z", "(?i)x", r"\R", "x(", r"\x41"],
)
def test_a_pattern_that_java_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="the pattern"):
        MappingRules(f"RULE:{pattern}/y/")


def test_a_name_that_no_rule_fits_is_nobodys() -> None:
    with pytest.raises(NoRuleFits):
        MappingRules("RULE:^OU=(.*)$/$1/").apply("CN=alice")


def certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the authority")]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.RFC822Name("admin@example.com")]), False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.DER)


def test_a_certificate_is_named_by_its_subject_alone() -> None:
    assert name_of(certificate()) == "CN=alice,O=Acme\\, Inc."


def test_a_certificate_that_is_cut_or_changed_has_no_name_or_another_one_and_never_fails_otherwise() -> (
    None
):
    whole = certificate()
    for end in range(len(whole)):
        with pytest.raises(InvalidName):
            name_of(whole[:end])
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        try:
            name_of(bytes(changed))
        except InvalidName:
            continue


def test_a_name_that_is_far_too_long_is_refused() -> None:
    value = b"\x0c\x82\x20\x00" + b"x" * 0x2000
    pair = b"\x30\x82\x20\x09\x06\x03\x55\x04\x03" + value
    one = b"\x31\x82" + len(pair).to_bytes(2) + pair
    with pytest.raises(InvalidName, match="8195 characters"):
        distinguished_name(b"\x30\x82" + len(one).to_bytes(2) + one)
