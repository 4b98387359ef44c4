"""A cluster that clients reach through TLS: in front of its broker stands who takes the encryption off."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.local.ports import free_ports
from support.cluster import ProcessCluster


class BehindTls:
    """One broker. Tests talk to it plainly, at `cluster.bootstrap`; who comes through TLS is told of `bootstrap` only."""

    def __init__(self, cluster: ProcessCluster, port: int, certificate: Path, spoken: list[str]) -> None:  # fmt: skip
        self.cluster = cluster
        self.bootstrap = f"localhost:{port}"
        self.spoken = spoken
        """Which versions of TLS, a connection each."""
        self.settings = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate),
        }
        """Of Kafka's clients."""


@contextmanager
def cluster_behind_tls(directory: Path) -> Iterator[BehindTls]:
    """Two listeners: through one with an advertised address of its own clients come. Brokers ask each other, and themselves, at
    the address of the other."""
    certificate = certificate_of_localhost(directory)
    front, behind = free_ports(2)
    cluster = ProcessCluster(directory / "cluster", 1)
    (node,) = cluster.nodes.values()
    file = directory / "cluster" / f"node-{node.id}" / "server.properties"
    plain = f"listeners=PLAINTEXT://127.0.0.1:{node.port},"
    text = file.read_text()
    assert plain in text
    file.write_text(
        text.replace(plain, f"{plain}CLIENTS://127.0.0.1:{behind},")
        + f"advertised.listeners=PLAINTEXT://127.0.0.1:{node.port},CLIENTS://localhost:{front}\n"
        + "inter.broker.listener.name=PLAINTEXT\n"
        + "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    with cluster, tls_in_front(certificate, front, behind) as spoken:
        yield BehindTls(cluster, front, certificate, spoken)


def certificate_of_localhost(directory: Path) -> Path:
    """Signed by itself; its key is beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    file = directory / "localhost.crt"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", str(file.with_suffix(".key")), "-out", str(file)]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    return file


@contextmanager
def tls_in_front(certificate: Path, port: int, behind: int) -> Iterator[list[str]]:
    """Takes TLS on one port and passes plain bytes to another. What is yielded says which versions of TLS were spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    spoken: list[str] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        except OSError:
            return  # one side is gone, and with it the other
        finally:
            sink.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        spoken.append(writer.get_extra_info("ssl_object").version())
        inner = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer))

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(accepted, "127.0.0.1", port, ssl=context)

    async def end(server: asyncio.Server) -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield spoken
    finally:
        asyncio.run_coroutine_threadsafe(end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
