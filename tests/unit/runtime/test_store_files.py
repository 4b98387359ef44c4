"""Whoever may change settings names the files of key stores and trust stores: none of them may hold a node up."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Literal

import pytest

from ottla.runtime.seams import TlsRefused
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.runtime.tls_stores import STORE_BYTES_MAX, load_stores
from support.certificates import certified

ENDS_WITHIN_S = 30.0
"""A store that holds the node up does so for ever. It bounds no speed."""


def trusting(path: Path | str) -> TlsOptions:
    return certified().options("nodes", trust_store=TrustStore("PEM", str(path)))


def refusal(options: TlsOptions) -> str:
    """In a thread, because a test cannot interrupt an open that waits."""
    told: list[str] = []

    def load() -> None:
        try:
            load_stores(options)
        except TlsRefused as error:
            told.append(str(error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(ENDS_WITHIN_S)
    assert told, "the store was taken, or never read"
    return told[0]


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_pipe_is_no_store(tmp_path: Path, kind: Literal["PEM", "PKCS12"]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is not a regular file" in refusal(trusting(pipe))
    keys = certified().options("nodes", key_store=KeyStore(kind, str(pipe)))
    assert "is not a regular file" in refusal(keys)


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/dev"])
def test_a_device_or_a_directory_is_no_store(path: str) -> None:
    gc.collect()  # what earlier tests left open may go at any moment
    descriptors = len(os.listdir("/proc/self/fd"))
    assert f"trust store {path} of listener" in refusal(trusting(path))
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_store_has_an_end(tmp_path: Path) -> None:
    long = tmp_path / "long"
    with open(long, "wb") as file:
        file.truncate(STORE_BYTES_MAX + 1)
    assert "has more than" in refusal(trusting(long))


def test_a_link_to_a_file_is_a_store(tmp_path: Path) -> None:
    """As containers bring their secrets."""
    made = certified()
    (tmp_path / "store").write_bytes(made.leaf("nodes").private_key_and_cert_chain_pem.bytes())
    (tmp_path / "link").symlink_to(tmp_path / "store")
    options = made.options("nodes", key_store=KeyStore("PEM", str(tmp_path / "link")))
    assert load_stores(options).pem is not None
