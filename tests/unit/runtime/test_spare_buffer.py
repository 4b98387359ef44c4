"""A large frame's buffer is used again, and what a careless receiver kept of it does no harm."""

from __future__ import annotations

import asyncio

from ottla.runtime.sockets import RealNetwork


def test_a_buffer_that_somebody_still_looks_at_is_not_used_again() -> None:
    loop = asyncio.new_event_loop()
    try:
        network = RealNetwork(loop)
        held = bytearray(100_000)
        view = memoryview(held)
        network.keep_spare_buffer(held)
        assert network.take_spare_buffer() is not held
        view.release()
        network.keep_spare_buffer(held)
        assert network.take_spare_buffer() is held and len(held) == 100_000
    finally:
        loop.close()
