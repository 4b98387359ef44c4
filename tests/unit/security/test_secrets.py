"""A secret is not shown, whichever way somebody tries."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass

import pytest

from ottla.security.secrets import HIDDEN, Secret

TEXT = "correct horse"


@dataclass(frozen=True, eq=False)
class Account:
    name: str
    password: Secret


def test_a_secret_is_shown_as_hidden() -> None:
    secret = Secret(TEXT)
    shown = (str(secret), repr(secret), f"{secret}", f"{secret!r}", str([secret])[1:-1])
    assert set(shown) == {HIDDEN}
    assert TEXT not in repr(Account("alice", secret))
    assert TEXT not in repr({"password": [secret]})


def test_a_secret_is_revealed_when_asked() -> None:
    assert Secret(TEXT).reveal() == TEXT


def test_a_secret_is_compared_by_its_own_method_only() -> None:
    assert Secret(TEXT).equals(TEXT)
    assert not Secret(TEXT).equals("correct hors")
    assert not Secret("naïve").equals("naive")
    with pytest.raises(TypeError):
        assert Secret(TEXT) == TEXT
    with pytest.raises(TypeError):
        {Secret(TEXT): 1}


def test_a_secret_cannot_be_stored() -> None:
    for store in (pickle.dumps, copy.copy, json.dumps):
        with pytest.raises(TypeError):
            store(Secret(TEXT))
