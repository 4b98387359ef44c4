"""`ottla brokers`: what each broker carries, and how even that is; and brokers that come and go.

Without a sub-command it is `ottla brokers list`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ottla.cli import broker_changes
from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.output import Format, FormatOption, print_json, print_table, warn

if TYPE_CHECKING:
    from ottla.balance.load import BrokerLoad
    from ottla.client import BlockingClient
    from ottla.client.model import BrokerInfo


class _ListByDefault(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    help="Show, add, drain, replace and remove brokers.",
    no_args_is_help=False,
    rich_markup_mode=None,
)


@app.command("list")
def brokers(
    over: Annotated[
        str, typer.Option("--over", help="Rates of the last minute, hour or day.")
    ] = "minute",
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show what each broker carries.

    That is leaders, replicas, bytes, disk and processor. The active controller knows it, from the brokers' heartbeats. The score is the largest of a broker's leaders, replicas,
    bytes and disk, in shares of the cluster's: 1 is even. Each bar is a part of the largest in its column.
    """
    from ottla.balance.load import WINDOWS, summed
    from ottla.cli.errors import USAGE, Failure

    if over not in WINDOWS:
        raise Failure(f"--over {over}: give one of {', '.join(WINDOWS)}", USAGE)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        known = blocking.run(blocking.client.describe_cluster()).brokers
        loads = _loads(blocking)
    infos = {each.id: each for each in known}
    racks: dict[str, list[BrokerLoad]] = {}
    for id, load in loads.items():
        rack = infos[id].rack if id in infos else None
        if rack is not None:
            racks.setdefault(rack, []).append(load)
    of_racks = {rack: summed(found) for rack, found in sorted(racks.items())}
    scores = _scores(loads, over)
    if format is Format.json:
        print_json(
            {
                "brokers": [_as_json(each, loads.get(each.id), scores) for each in sorted(known)],
                "racks": [{"rack": rack, **load.as_json()} for rack, load in of_racks.items()],
            }
        )
        return
    # Those of one rack, which may be one machine, stand together.
    _print(sorted(known, key=lambda each: (each.rack or "", each.id)), loads, scores, over)
    if of_racks:
        print()
        _print_racks(of_racks, over)


def _loads(blocking: BlockingClient) -> dict[int, BrokerLoad]:
    """As the controller knows them; what it does not know yet, as the broker says itself."""
    from ottla.client.loads import cluster_loads, own_loads
    from ottla.wire.errors import KafkaError

    try:
        found = blocking.run(cluster_loads(blocking.client))
    except (OSError, KafkaError) as error:
        if isinstance(error, KafkaError) and not error.retriable:
            raise
        found = {}
    if not found:
        found = {id: own.load for id, own in blocking.run(own_loads(blocking.client)).items()}
    if not found:
        warn("these brokers do not measure their load: they are not ottla's")
    return found


def _scores(loads: dict[int, BrokerLoad], over: str) -> dict[int, float]:
    from ottla.balance.model import Loads
    from ottla.balance.plan_json import score_of

    carried = {
        id: Loads(load.leaders, load.replicas, load.disk_bytes, load.rates[over].leader_bytes)
        for id, load in loads.items()
    }
    if not carried:
        return {}
    share = Loads(*(sum(column) / len(carried) for column in zip(*carried.values(), strict=True)))
    shares = dict.fromkeys(carried, share)
    return {id: score_of(shares, id, load) or 1.0 for id, load in carried.items()}


def _as_json(info: BrokerInfo, load: BrokerLoad | None, scores: dict[int, float]) -> dict[str, Any]:
    who = {"broker": info.id, "rack": info.rack, "fenced": info.fenced}
    return who if load is None else {**who, "score": scores[info.id], **load.as_json()}


def _print(
    known: list[BrokerInfo], loads: dict[int, BrokerLoad], scores: dict[int, float], over: str
) -> None:
    from ottla.cli.load_tables import barred
    from ottla.diagnosis.words import size

    leaders = barred({id: load.leaders for id, load in loads.items()}, lambda n: f"{n:.0f}")
    replicas = barred({id: load.replicas for id, load in loads.items()}, lambda n: f"{n:.0f}")
    rates = {id: load.rates[over].leader_bytes for id, load in loads.items()}
    bytes_ = barred(rates, lambda n: f"{size(n)}/s")
    disk = barred({id: load.disk_bytes for id, load in loads.items()}, size)
    cpu = barred({id: load.rates[over].cpu for id, load in loads.items()}, lambda n: f"{n:.0%}")
    print_table(
        ("broker", "rack", "leaders", "replicas", "leader bytes", "disk", "growth", "CPU", "score"),
        [
            (
                f"{each.id} (fenced)" if each.fenced else each.id,
                each.rack,
                leaders.get(each.id),
                replicas.get(each.id),
                bytes_.get(each.id),
                disk.get(each.id),
                f"{size(max(0.0, loads[each.id].rates[over].disk_growth))}/s"
                if each.id in loads
                else None,
                cpu.get(each.id),
                f"{scores[each.id]:.2f}" if each.id in scores else None,
            )
            for each in known
        ],
    )
    if loads:
        print()
        print(
            "As each broker measured itself last, some seconds ago; ottla balance plan asks for what is so now."
        )


def _print_racks(racks: dict[str, BrokerLoad], over: str) -> None:
    from ottla.diagnosis.words import size

    print_table(
        ("rack", "leaders", "replicas", "leader bytes", "disk"),
        [
            (
                rack,
                load.leaders,
                load.replicas,
                f"{size(load.rates[over].leader_bytes)}/s",
                size(load.disk_bytes),
            )
            for rack, load in racks.items()
        ],
    )


app.command()(broker_changes.add)
app.command()(broker_changes.drain)
app.command()(broker_changes.replace)
app.command()(broker_changes.remove)
