"""Clients that trouble a secured cluster, in a process of their own: failed logins, many at once, or very slow ones.

    python -m support.login_storm storm|crowd|slow SECONDS RATE_OR_NUMBER CA ADDRESS...

It prints what it did, as JSON."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle

CLIENT = b"stranger"
PATIENCE_S = 30.0
CROWD_AT_ONCE = 50


def frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT)) + CLIENT
    return struct.pack(">i", len(head) + len(body)) + head + body


HANDSHAKE = frame(17, 1, struct.pack(">h", 5) + b"PLAIN")
TOKEN = b"\0mallory\0guessed"
LOGIN = frame(36, 1, struct.pack(">i", len(TOKEN)) + TOKEN)


class Troublemaker:
    def __init__(self, ca: str, addresses: list[str]) -> None:
        self.context = ssl.create_default_context(cafile=ca)
        self.places = cycle([address.rsplit(":", 1) for address in addresses])
        self.done: Counter[str] = Counter()
        self.kept: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    async def fail(self, keep: bool) -> None:
        """One login with a wrong password; with `keep`, only the handshake of TLS and the connection stays."""
        host, port = next(self.places)
        writer = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=self.context)
                writer.write(HANDSHAKE)
                await self.answer(reader)
                if keep:
                    self.kept.append(writer)
                    self.done["connected"] += 1
                    return
                writer.write(LOGIN)
                answer = await self.answer(reader)
                (code,) = struct.unpack(">h", answer[4:6])
                self.done[f"refused_{code}"] += 1
        except (OSError, TimeoutError, EOFError) as error:
            self.done[type(error).__name__] += 1
        finally:
            if writer is not None and not keep:
                writer.close()

    async def storm(self, seconds: float, rate: int) -> None:
        tasks = []
        began = time.monotonic()
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.append(asyncio.create_task(self.fail(keep=False)))
        self.done["begun"] = len(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def crowd(self, seconds: float, number: int) -> None:
        # In one process, all at once would be slower than one after the other: each handshake would wait for all others.
        some = asyncio.Semaphore(CROWD_AT_ONCE)

        async def one() -> None:
            async with some:
                await self.fail(keep=True)

        await asyncio.gather(*(one() for _ in range(number)))
        await asyncio.sleep(seconds)

    async def slow(self, seconds: float, number: int) -> None:
        """The beginning of a TLS handshake, one byte a second."""
        hello = bytes.fromhex("16030102000100") + bytes(500)

        async def one() -> None:
            host, port = next(self.places)
            reader, writer = await asyncio.open_connection(host, int(port))
            began = time.monotonic()
            with suppress(OSError):
                for byte in hello:
                    writer.write(bytes([byte]))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            if not await reader.read(1):
                                break
            lasted = time.monotonic() - began
            self.done["closed"] += 1
            self.done["longest_ms"] = max(self.done["longest_ms"], int(lasted * 1000))

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(one() for _ in range(number)))


async def main() -> None:
    what, seconds, number, ca, *addresses = sys.argv[1:]
    maker = Troublemaker(ca, addresses)
    await getattr(maker, what)(float(seconds), int(number))
    print(json.dumps(maker.done))


if __name__ == "__main__":
    asyncio.run(main())
