"""`ottla spark …`: run a pipeline, and find out why one does not run.

Spark is started by its own programmes from the PySpark package, as its documentation says; what is added here is what a
person has to know otherwise: which Python, which brokers, which directory.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    addresses,
    config_file,
)
from ottla.cli.errors import FAILED, NOT_FOUND, USAGE, Failure, line_of
from ottla.cli.output import Format, FormatOption, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.spark.connect.connection import ConnectionOptions

app = typer.Typer(
    help="Run pipelines on Spark, or find out why they do not run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JAVA_AT_LEAST: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"
INSTALL: Final = "scripts/setup --spark in a clone of ottla, else pip install 'ottla[spark]'"
INSTALL_JAVA: Final = (
    "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
)
EXECUTORS_TIMEOUT_S: Final = 180
LOCAL: Final = r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?"
MASTERS: Final = rf"{LOCAL}|local-cluster\[.+\]|spark://.+|k8s://.+|yarn"
CONNECT_SERVERS: Final = rf"{LOCAL}|sc://.+"
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
FEW_PARTITIONS: Final = 4
"""Shuffle partitions on one machine. Spark's default of 200 is for clusters, and would take most of the time."""
LOGGING: Final = Path(__file__).with_name("spark-log4j2.properties")
SPEC: Final = "spark-pipeline.yml"
JOB: Final = "job.py"

MasterOption = Annotated[
    str, typer.Option("--master", help="Where Spark runs: local[N], spark://host:port, …")
]


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def run(
    context: typer.Context,
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="A name from the list, or a directory.")
    ],
    master: MasterOption = "local[*]",
    declarative: Annotated[
        bool, typer.Option("--declarative", help="As a declarative pipeline, not as a plain job.")
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            help="For results and checkpoints. [default: ./spark/PIPELINE]",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Run a pipeline: orders, audit, archive, incidents, or one of your own.

    A directory with job.py is submitted with --bootstrap and --directory, and --command-config if that
    is given; further arguments go to it. One with spark-pipeline.yml runs with --declarative; it finds
    these in spark.ottla.bootstrap and spark.ottla.command-config, and --master is local[N] or the
    address of a Spark Connect server, sc://host:port.
    """
    home = _find(pipeline)
    _check_master(master, declarative=declarative)
    _require_java()
    brokers = ",".join(f"{host}:{port}" for host, port in addresses(bootstrap, dir, command_config))
    command_config = config_file(bootstrap, dir, command_config)
    where = (directory or Path("spark") / home.name).absolute()
    where.mkdir(parents=True, exist_ok=True)
    _client_options(brokers, command_config)  # so that a mistake is reported before Spark starts
    secured = [] if command_config is None else [str(command_config.absolute())]
    settings = [
        f"spark.ottla.bootstrap={brokers}",
        *(f"spark.ottla.command-config={each}" for each in secured),
        *(conf or ()),
    ]
    defaults = {SHUFFLE_PARTITIONS: str(FEW_PARTITIONS)} if re.fullmatch(LOCAL, master) else {}
    if unusable := [each for each in settings if "=" not in each]:
        raise Failure(f"--conf {unusable[0]}: is NAME=VALUE", USAGE)
    with ExitStack() as cleared_up:
        if declarative:
            # These talk to a Spark server; for local[N] Spark starts one.
            made = tempfile.TemporaryDirectory(prefix="pipeline-", dir=where)
            spec = _own_spec(home, where, defaults, settings, Path(cleared_up.enter_context(made)))
            command = [
                _programme("spark-pipelines"),
                "run",
                "--spec",
                str(spec),
                "--remote",
                master,
            ]
        else:
            job = _part(home, JOB)
            spark = [*(f"{name}={value}" for name, value in defaults.items()), *settings]
            words = [word for each in spark for word in ("--conf", each)]
            chosen = ["--bootstrap", brokers, "--directory", str(where)]
            chosen += [word for each in secured for word in ("--command-config", each)]
            command = [_programme("spark-submit"), "--master", master, *words, str(job)]
            command += [*chosen, *context.args]
        # What a declarative pipeline names by a relative path lies below the directory in which it runs.
        done = subprocess.run(
            command, env=_environment(), cwd=where if declarative else None, check=False
        )
    if done.returncode != 0:
        raise Failure(f"{home.name} failed (see above); ottla spark doctor looks for reasons")
    print(f"{home.name} is done" + (f"; its files are in {where}" if any(where.iterdir()) else ""))


@app.command()
def doctor(
    master: MasterOption = "local[2]",
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 10.0,
    format: FormatOption = Format.table,
) -> None:
    """Look for what prevents pipelines from running.

    Java, PySpark and what it needs, the brokers as seen from here and from Spark's executors.
    """
    _check_master(master, declarative=False)
    findings = list(_examined(master, bootstrap, dir, command_config, timeout))
    if format is Format.json:
        print_json([finding._asdict() for finding in findings])
    else:
        print_table(
            ("", "what", "found", "to do"),
            [("ok" if each.fine else "BAD", each.what, each.found, each.todo) for each in findings],
        )
    bad = [finding.what for finding in findings if not finding.fine]
    if bad:
        raise Failure(f"something is missing: {', '.join(bad)}", FAILED)


@app.command()
def warm() -> None:
    """Compile now what Spark's workers would compile in every session: first queries are a second faster.

    Once in each environment and machine (or image) that runs tasks, and again after PySpark was installed anew.
    It adds bytecode to the archives of the PySpark that is installed, and makes this machine's decoder.
    """
    from ottla.spark import archive
    from ottla.spark.read import native

    found = archive.archives()
    if not found:
        raise Failure(f"PySpark is not installed: {INSTALL}", NOT_FOUND)
    for each in found:
        if archive.is_compiled(each):
            print(f"{each.name}: has its bytecode")
            continue
        try:
            archive.compile_archive(each)
        except OSError as error:
            raise Failure(
                f"{each}: {error.strerror}; run this as the user who installed PySpark"
            ) from error
        print(f"{each.name}: bytecode added")
    try:
        compiled = native.compile_now()
    except subprocess.CalledProcessError as error:
        raise Failure("the decoder could not be compiled (see above)") from error
    print("decoder: compiled" if compiled else f"decoder: needs numba: {INSTALL}")


class Diagnosis(NamedTuple):
    fine: bool
    what: str
    found: str
    todo: str | None = None


def _examined(
    master: str,
    bootstrap: str | None,
    directory: Path | None,
    command_config: Path | None,
    timeout_s: float,
) -> Iterator[Diagnosis]:
    packages = [_package(*each) for each in WANTED]
    java = _java()
    yield java
    yield from packages
    brokers, found = _brokers(bootstrap, directory, command_config, timeout_s)
    yield found
    if java.fine and all(package.fine for package in packages):
        yield _bytecode()
        yield from _executors(master, brokers)
        from importlib.metadata import version

        line = f"not needed; --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')} if it is published"
        yield Diagnosis(True, "Spark's own connector", line)


WANTED: Final = (
    ("pyspark", (4, 2), None),
    ("pyarrow", (18,), None),
    ("pandas", (2, 2), (3,)),
    ("numba", (0, 61), None),
)
"""Packages, from which version on, and before which: as in pyproject.toml's extra `spark`."""


def _package(name: str, least: tuple[int, ...], before: tuple[int, ...] | None) -> Diagnosis:
    import importlib.metadata  # it is slow to import, and --help needs it not

    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Diagnosis(False, name, "not installed", INSTALL)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < least or (before is not None and numbers >= before):
        return Diagnosis(False, name, version, INSTALL)
    return Diagnosis(True, name, version)


def _bytecode() -> Diagnosis:
    from ottla.spark import archive

    if all(map(archive.is_compiled, archive.archives())):
        return Diagnosis(True, "workers' start", "PySpark's archive has its bytecode")
    found = "each compiles PySpark anew"
    return Diagnosis(
        True, "workers' start", found, "ottla spark warm: a second less for a first query"
    )


def _java() -> Diagnosis:
    java = _java_programme()
    if java is None:
        return Diagnosis(False, "Java", "not found", INSTALL_JAVA)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', told)
    if match is None:
        return Diagnosis(False, "Java", f"{java} does not tell its version", INSTALL_JAVA)
    version = match[0].removeprefix("version ").strip('"')
    if int(match[1]) < JAVA_AT_LEAST:
        return Diagnosis(False, "Java", f"{version}, too old", INSTALL_JAVA)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    if VECTOR_MODULE not in modules.stdout:
        return Diagnosis(False, "Java", f"{version} without {VECTOR_MODULE}", INSTALL_JAVA)
    return Diagnosis(True, "Java", version)


def _java_programme() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def _brokers(
    bootstrap: str | None, directory: Path | None, command_config: Path | None, timeout_s: float
) -> tuple[list[str], Diagnosis]:
    """The addresses that the cluster names to its clients: these must be reachable, not only --bootstrap."""
    from ottla.client import BlockingClient, Unreachable
    from ottla.local.errors import LocalClusterError
    from ottla.spark.connect.secured import client_for
    from ottla.spark.errors import SparkSourceError
    from ottla.spark.reach import obstacle

    try:
        reached = addresses(bootstrap, directory, command_config)
        known = ",".join(f"{host}:{port}" for host, port in reached)
        command_config = config_file(bootstrap, directory, command_config)
        options = _client_options(known, command_config)._replace(request_timeout_s=timeout_s)
        with client_for(BlockingClient, options) as blocking:
            told = blocking.run(blocking.client.metadata())
    except LocalClusterError as error:
        return [], Diagnosis(False, "brokers", line_of(error), "ottla status; --bootstrap")
    except (Unreachable, TimeoutError, Failure, SparkSourceError) as error:
        return [], Diagnosis(False, "brokers", str(error), "ottla status; --bootstrap")
    named = [f"{broker.host}:{broker.port}" for broker in told.brokers]
    return named, _reached("brokers from here", {each: obstacle(each) for each in named})


def _client_options(brokers: str, command_config: Path | None) -> ConnectionOptions:
    from ottla.config import ConfigError
    from ottla.spark.command_config import cluster_options
    from ottla.spark.connect.connection import ConnectionOptions
    from ottla.spark.errors import OptionError
    from ottla.spark.options import Options

    file = None if command_config is None else str(command_config)
    try:
        return ConnectionOptions.of(Options(cluster_options(brokers, file)))
    except (ConfigError, OptionError) as error:
        raise Failure(f"--command-config: {error}", USAGE) from None


def _reached(what: str, brokers: dict[str, str | None]) -> Diagnosis:
    blocked = [f"{address}: {why}" for address, why in brokers.items() if why is not None]
    if blocked:
        return Diagnosis(False, what, "; ".join(blocked), "advertised.listeners of these brokers")
    return Diagnosis(True, what, ", ".join(brokers) or "none")


def _executors(master: str, brokers: Iterable[str]) -> Iterator[Diagnosis]:
    from ottla.spark import reach

    little = ("spark.ui.enabled=false", "spark.executor.memory=512m")
    submit = [_programme("spark-submit"), "--master", master]
    submit += [word for each in little for word in ("--conf", each)]
    try:
        done = subprocess.run(
            [*submit, str(reach.__file__), *brokers],
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=EXECUTORS_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Diagnosis(False, "executors", f"no answer in {EXECUTORS_TIMEOUT_S} s", "--master")
        return
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        yield Diagnosis(False, "executors", f"Spark on {master}: {reason[0]}", "--master")
        return
    reports: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    for host, told in sorted(reports.items()):
        what = f"executor on {host}"
        if told["ottla"] is None:
            yield Diagnosis(False, what, f"Python {told['python']} has no ottla", INSTALL)
        else:
            yield Diagnosis(True, what, f"Python {told['python']}, ottla {told['ottla']}")
        yield _reached(f"brokers from {host}", told["brokers"])


def _find(pipeline: str) -> Path:
    """A directory of the user's, or one of those that come with ottla."""
    path = Path(pipeline)
    if path.is_dir():
        return path.absolute()
    known = {each.name: each for each in sorted(_bundled().iterdir()) if each.is_dir()}
    if pipeline not in known:
        names = ", ".join(known)
        raise Failure(f"no pipeline {pipeline}: neither a directory nor one of {names}", NOT_FOUND)
    return known[pipeline]


def _bundled() -> Path:
    """In a wheel they are inside the package, in a checkout at its root."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "pipelines"
    return inside if inside.is_dir() else package.parents[1] / "pipelines"


def _part(home: Path, name: str) -> Path:
    part = home / name
    if not part.is_file():
        raise Failure(f"{home} has no {name}", NOT_FOUND)
    return part


def _own_spec(
    home: Path, where: Path, defaults: dict[str, str], settings: list[str], into: Path
) -> Path:
    """A copy of the pipeline's specification for this directory: the specification names the directory of Spark's state,
    and only the settings in it reach the server that Spark starts."""
    import yaml  # comes with Spark's pipelines

    spec = yaml.safe_load(_part(home, SPEC).read_text())
    spec["storage"] = (where / "storage").as_uri()
    given = dict(each.split("=", 1) for each in settings)
    spec["configuration"] = defaults | (spec.get("configuration") or {}) | given
    copy = into / home.name
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / SPEC).write_text(yaml.safe_dump(spec))
    return copy / SPEC


def _check_master(master: str, *, declarative: bool) -> None:
    if not re.fullmatch(CONNECT_SERVERS if declarative else MASTERS, master):
        known = "sc://host:port" if declarative else "spark://host:port, k8s://…, yarn"
        raise Failure(f"--master {master}: is none of local[N], local[*], {known}", USAGE)


def _require_java() -> None:
    java = _java()
    if not java.fine:
        raise Failure(f"Spark needs Java {JAVA_AT_LEAST}: {java.found}; {java.todo}")


def _programme(name: str) -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Failure(f"PySpark is not installed in {sys.prefix}; {INSTALL}")
    return str(Path(found.origin).parent / "bin" / name)


def _environment() -> dict[str, str]:
    """Driver and executors on this machine run the Python that has ottla. Spark logs little, unless its logging is
    configured."""
    ours = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if "SPARK_CONF_DIR" not in os.environ:
        ours["SPARK_SUBMIT_OPTS"] = f'-Dlog4j2.configurationFile="{LOGGING}"'
    return ours | os.environ
