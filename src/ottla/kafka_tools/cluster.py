"""kafka-cluster: the cluster's id, its nodes, and forgetting a broker that will not come back."""

from __future__ import annotations

from argparse import Namespace

from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.options import ToolError
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.kafka_tools.subcommands import SubcommandParser
from ottla.wire.apis import ApiKey

BROKERS, CONTROLLERS = 1, 2


def _parser() -> SubcommandParser:
    parser = SubcommandParser("kafka-cluster", description="The Kafka cluster tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    identity = commands.add_parser("cluster-id", help="Get information about the ID of a cluster.")
    unregister = commands.add_parser("unregister", help="Unregister a broker.")
    endpoints = commands.add_parser("list-endpoints", help="List endpoints")
    for each in (identity, unregister, endpoints):
        to = each.add_mutually_exclusive_group(required=True)
        to.add_argument("--bootstrap-server", "-b", metavar="HOST:PORT,…")
        to.add_argument("--bootstrap-controller", "-C", metavar="HOST:PORT,…")
        config = each.add_mutually_exclusive_group()
        config.add_argument("--config", metavar="FILE", help="DEPRECATED: use --command-config.")
        config.add_argument("--command-config", "-c", metavar="FILE")
    unregister.add_argument("--id", "-i", type=int, required=True)
    endpoints.add_argument("--include-fenced-brokers", action="store_true")
    return parser


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    if given.config is not None:
        print(
            "Option --config has been deprecated and will be removed in a future version."
            " Use --command-config instead."
        )

    async def work(session: ToolSession) -> int:
        if given.command == "cluster-id":
            cluster = await session.client.describe_cluster()
            print(f"Cluster ID: {cluster.cluster_id}")
        elif given.command == "unregister":
            await session.admin.ask(ApiKey.UNREGISTER_BROKER, {"broker_id": given.id})
            print(f"Broker {given.id} is no longer registered.")
        else:
            await _list_endpoints(session, given)
        return 0

    settings = properties(given.command_config or given.config)
    bootstrap = given.bootstrap_server or given.bootstrap_controller
    return with_cluster(bootstrap, settings, "kafka-cluster", work)


async def _list_endpoints(session: ToolSession, given: Namespace) -> None:
    of_controllers = given.bootstrap_controller is not None
    if of_controllers and given.include_fenced_brokers:
        raise ToolError(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )
    fields = {
        "include_fenced_brokers": given.include_fenced_brokers,
        "endpoint_type": CONTROLLERS if of_controllers else BROKERS,
    }
    answer = await session.admin.ask(ApiKey.DESCRIBE_CLUSTER, fields)
    nodes = sorted(answer.brokers, key=lambda node: int(node.broker_id))
    hosts = max((len(node.host) for node in nodes), default=100)
    racks = max((len(node.rack) for node in nodes if node.rack), default=10)
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    rows += (
        (
            str(node.broker_id),
            node.host,
            str(node.port),
            "null" if node.rack is None else node.rack,
            "fenced" if getattr(node, "is_fenced", False) else "unfenced",
            "controller" if of_controllers else "broker",
        )
        for node in nodes
    )
    for id, host, port, rack, state, kind in rows:
        shown = "" if of_controllers else f"{state:<10} "
        print(f"{id:<10} {host:<{hosts}} {port:<10} {rack:<{racks}} {shown}{kind:<15}")
