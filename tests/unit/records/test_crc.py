"""The checksum: the package's own function, taken from its compiled part alone."""

from __future__ import annotations

import subprocess
import sys

from crc32c import crc32c as of_the_package
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.crc import crc32c


@given(st.binary(), st.binary())
def test_it_is_that_of_the_package(first: bytes, second: bytes) -> None:
    assert crc32c(first) == of_the_package(first)
    assert crc32c(memoryview(second), crc32c(first)) == of_the_package(first + second)


def test_a_known_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_node_does_not_import_the_metadata_of_all_that_is_installed() -> None:
    looked = "import sys; import ottla.records.batch; print('importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", looked], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
