"""The tree of sub-commands.

This imports only the command-line library. Each command imports what it needs when it runs, so that `ottla --help`
answers at once. Help is plain text: formatted help would take three times as long.
"""

from __future__ import annotations

from typing import Annotated

import typer

import ottla
from ottla.cli import (
    acls,
    audit,
    balance,
    brokers,
    checkpoints,
    console,
    controllers,
    doctor,
    events,
    explain,
    groups,
    lab,
    local,
    losses,
    metrics,
    migrate,
    reassign,
    records,
    security,
    settings,
    sim,
    spark,
    tools,
    top,
    topics,
    transactions,
    users,
)

HELP = """Kafka's replicated log in Python: a real cluster in a second.

Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 not found, 4 nobody answers, 5 conflict,
6 the doctor found something serious.
"""

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ottla {ottla.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    return None


app.command()(local.up)
app.command()(local.status)
app.command()(local.down)
app.command()(local.purge)
app.add_typer(local.nodes, name="nodes")
app.add_typer(controllers.app, name="controllers")
app.command()(local.node)
app.add_typer(brokers.app, name="brokers")
app.command()(metrics.metrics)
app.command()(settings.settings)
app.command("check-config")(settings.check_config)
app.command()(doctor.doctor)
app.command()(doctor.bundle)
app.add_typer(topics.app, name="topics")
app.add_typer(reassign.app, name="reassign")
app.add_typer(balance.app, name="balance")
app.add_typer(migrate.app, name="migrate")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(security.app, name="security")
app.command()(audit.audit)
app.command()(records.produce)
app.command()(records.consume)
app.command()(topics.replicas)
app.command()(checkpoints.checkpoints)
app.command()(losses.losses)
app.command()(losses.recover)
app.command()(explain.explain)
app.command()(events.events)
app.command()(console.console)
app.command()(top.top)
app.add_typer(spark.app, name="spark")
app.command(help=sim.HELP)(sim.sim)
app.add_typer(lab.app, name="lab")
app.add_typer(tools.app, name="tools")
