"""`ottla metrics`: what the nodes of a cluster measure, and the files with which Prometheus and Grafana show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.errors import NOT_FOUND, UNREACHABLE, USAGE, Failure
from ottla.cli.local import DirOption
from ottla.cli.output import Format, FormatOption, print_json, print_table, warn
from ottla.cli.pages import fetch
from ottla.cli.reaching import directory_of

if TYPE_CHECKING:
    from ottla.local.cluster import LocalCluster

TARGETS = "      - targets: [127.0.0.1:9404]\n"
"""The line of monitoring/prometheus.yml that names the nodes."""


def metrics(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Only metrics whose name contains this.")
    ] = "",
    dir: DirOption = None,
    url: Annotated[
        list[str] | None,
        typer.Option(help="Ask this address (http://host:port) instead; may be repeated."),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print the dashboard for Grafana.")
    ] = False,
    alerts: Annotated[
        bool, typer.Option("--alerts", help="Print the alert rules for Prometheus.")
    ] = False,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print a configuration of Prometheus for this cluster."),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(help="Write all three files into this directory, for this cluster."),
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """Show what the nodes measure.

    Or print or write the files with which Prometheus and Grafana show it. The table leaves out the buckets of histograms; --format json has everything.
    """
    if to is not None:
        _write_all(to, dir)
    elif dashboard or alerts or prometheus:
        if dashboard + alerts + prometheus > 1:
            raise Failure("--dashboard, --alerts, --prometheus: one at a time, or --to", USAGE)
        if prometheus:
            print(_configuration(dir), end="")
        else:
            print(_shipped("grafana-dashboard.json" if dashboard else "alerts.yml"), end="")
    else:
        _show(name, _addresses(dir, url or []), format)


# -- the figures


def _addresses(dir: Path | None, urls: list[str]) -> dict[str, str]:
    """Where to ask, by what to call it."""
    if urls:
        return {url: f"{url.rstrip('/').removesuffix('/metrics')}/metrics" for url in urls}
    from ottla.local.cluster import LocalCluster

    cluster = LocalCluster.load(directory_of(dir))
    found = {str(node.id): node.metrics for node in cluster.running if node.metrics is not None}
    if not found and cluster.secure:
        raise Failure(
            f"{cluster.directory}: a secure cluster serves no metrics, on purpose: over HTTP they have no login; set"
            " metrics.listeners=http://127.0.0.1:PORT in node-*/server.properties and restart (docs/SECURITY.md)",
            NOT_FOUND,
        )
    if not found:
        raise Failure(
            f"{cluster.directory}: no running node serves metrics; set metrics.listeners"
            " in node-*/server.properties, or start the cluster (ottla up)",
            NOT_FOUND,
        )
    return found


def _show(name: str, addresses: dict[str, str], format: Format) -> None:
    told: dict[str, list[dict[str, Any]]] = {}
    for node, address in addresses.items():
        try:
            families = json.loads(fetch(f"{address}?format=json"))["families"]
        except (OSError, ValueError) as error:
            warn(f"{address} does not answer: {error}")
            continue
        told[node] = [family for family in families if name in family["name"]]
    if not told:
        raise Failure("no node answers", UNREACHABLE)
    if format is Format.json:
        print_json({"nodes": [{"node": node, "families": told[node]} for node in told]})
        return
    rows: dict[tuple[str, str], dict[str, float | None]] = {}
    for node, families in told.items():
        for family in families:
            for sample in family["samples"]:
                if not sample["name"].endswith("_bucket"):
                    labels = ",".join(f"{key}={text}" for key, text in sample["labels"].items())
                    rows.setdefault((sample["name"], labels), {})[node] = sample["value"]
    print_table(
        ("metric", "labels", *(f"node {node}" for node in told)),
        [(*key, *(_shown(values.get(node)) for node in told)) for key, values in rows.items()],
    )


def _shown(value: float | None) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, int) else f"{value:.6g}"


# -- the files


def _shipped(name: str) -> str:
    package = Path(__file__).resolve().parents[1]
    inside = package / "monitoring"
    directory = inside if inside.is_dir() else package.parents[1] / "monitoring"
    return (directory / name).read_text()


def _configuration(dir: Path | None) -> str:
    """The shipped one, with the nodes of the cluster if there is one."""
    from ottla.local.cluster import LocalCluster
    from ottla.local.errors import NoCluster

    text = _shipped("prometheus.yml")
    assert TARGETS in text, "monitoring/prometheus.yml has another form"
    try:
        cluster = LocalCluster.load(directory_of(dir))
    except NoCluster:
        return text
    return text.replace(TARGETS, _targets(cluster))


def _targets(cluster: LocalCluster) -> str:
    addresses = [
        node.metrics.removeprefix("http://").removesuffix("/metrics")
        for node in cluster.nodes.values()
        if node.metrics is not None
    ]
    return f"      - targets: [{', '.join(addresses)}]\n"


def _write_all(to: Path, dir: Path | None) -> None:
    contents = {
        "grafana-dashboard.json": _shipped("grafana-dashboard.json"),
        "alerts.yml": _shipped("alerts.yml"),
        "prometheus.yml": _configuration(dir),
    }
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (to / name).write_text(text)
    except OSError as error:
        raise Failure(f"--to: {to}: {error.strerror}", USAGE) from None
    print(f"wrote {', '.join(contents)} into {to}")
