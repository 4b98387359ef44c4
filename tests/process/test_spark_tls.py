"""Spark's writer and reader through TLS: in front of a broker stands who takes the encryption off.

Without transactions: a broker would ask their coordinator, which is itself, at the address for clients.
"""

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

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

import pyarrow as pa

from ottla.cli.ports import free_ports
from ottla.spark.options import Options
from ottla.spark.producer import TaskProducer
from ottla.spark.write_options import WriteOptions
from support.cluster import ProcessCluster
from support.spark_engine import Engine

pytestmark = pytest.mark.timeout(600)

TOPIC = "secured"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost, signed by itself; its key is beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    file = tmp_path_factory.mktemp("tls") / "localhost.crt"
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


def test_rows_are_written_and_read_back_through_tls(tmp_path: Path, certificate: Path) -> None:
    (port,) = free_ports(1)
    advertised = {"advertised.listeners": f"PLAINTEXT://localhost:{port}"}
    with ProcessCluster(tmp_path / "cluster", 1, advertised) as cluster:
        (node,) = cluster.nodes.values()
        with tls_in_front(certificate, port, node.port) as spoken:
            secure = {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": str(certificate),
            }
            where = {"kafka.bootstrap.servers": f"localhost:{port}", "topic": TOPIC}
            options = WriteOptions.of(Options(where | secure))
            producer = TaskProducer(options, None, task=0)
            producer.write(pa.RecordBatch.from_pydict({"value": [str(i) for i in range(1000)]}))
            producer.finish()
            producer.close()
            given = {name.replace(".", "__"): value for name, value in secure.items()}
            assert Engine(f"localhost:{port}", TOPIC, **given).batch() == list(range(1000))
            assert spoken and set(spoken) <= {"TLSv1.2", "TLSv1.3"}
