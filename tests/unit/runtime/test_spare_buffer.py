"""A large frame's buffer is used again, and what a careless receiver kept of it does no harm."""

from __future__ import annotations

from ottla.runtime.frame_memory import SpareBuffers


def test_a_buffer_that_somebody_still_looks_at_is_not_used_again() -> None:
    spare = SpareBuffers()
    held = bytearray(100_000)
    view = memoryview(held)
    spare.keep(held)
    assert spare.take() is not held
    view.release()
    spare.keep(held)
    assert spare.take() is held and len(held) == 100_000
