"""`scripts/scale`: what limits a cluster, measured where this machine can and simulated or modelled where it cannot.

- `controller`: the real controller, image and records, with brokers that are only modelled: their registrations,
  heartbeats and deaths are made here. What a decision costs, in processor time, memory and bytes, up to 1,000 brokers and
  100,000 partitions.
- `simulated`: whole nodes, the product's own code, in the simulator. Times are virtual: they say what the network and the
  protocol need. The simulator charges no processor time; `controller` says how much that is.
- `cores`: real processes. One machine with one node, then with one for each core.

Each size of `controller` and `simulated` runs in a process of its own, because memory is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from bench import scale_report
from ottla.controller.brokers import Heartbeat, Registration
from ottla.controller.controller import Controller
from ottla.controller.draft import ControllerConfig, ControllerResult, IsrProposal
from ottla.controller.topics import NewTopic
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Endpoint, FeatureRange, decode, encode
from ottla.raft.format import feature_records
from ottla.wire.errors import ErrorCode, KafkaError

Row = dict[str, float]
SIZES = ((10, 1_000), (30, 3_000), (100, 10_000), (300, 30_000), (1_000, 100_000))
SIMULATED = ((3, 300), (10, 1_000), (30, 3_000), (100, 10_000))
REPLICAS = 3
TOPIC_PARTITIONS = 100
HEARTBEAT_S = 2.0
CLUSTER = "a-cluster-of-many-0000"
FEATURES = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
PAGE = os.sysconf("SC_PAGE_SIZE")


def _accept(configs: object) -> None:
    """Nothing here sets a configuration."""


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gave, and the seconds of a processor."""
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


class StaticVoters:
    """The quorum of the modelled cluster, whose voters never change."""

    kraft_version = 0

    def check_kraft_version(self, version: int) -> None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


class ModelledCluster:
    """The real controller with so many brokers, who do at once what they are told."""

    def __init__(self, brokers: int) -> None:
        config = ControllerConfig(
            cluster_id=CLUSTER,
            validate_topic_config=_accept,
            validate_broker_config=_accept,
            validate_group_config=_accept,
            validate_client_metrics_config=_accept,
            min_insync_replicas=2,
            idle_interval=0.0,
        )
        self.controller = Controller(
            config, Random(1), lambda: self.controller.image.offset + 1, StaticVoters()
        )
        self.controller.activate(MetadataImage(), 1, 0.0)
        self.controller.bootstrap(feature_records(FEATURES))
        self.brokers = brokers

    def register(self, broker: int) -> None:
        ranges = tuple(
            FeatureRange(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in FEATURES.items()
        )
        self.controller.register_broker(
            Registration(
                broker,
                CLUSTER,
                UUID(int=broker),
                (Endpoint(name="PLAINTEXT", host=f"broker-{broker}", port=9092),),
                ranges,
                f"machine-{broker}",
                (UUID(int=(broker << 64) | (1 << 32)),),
            ),
            0.0,
        )

    def beat(self, broker: int) -> None:
        image = self.controller.image
        self.controller.heartbeat(Heartbeat(broker, image.brokers[broker].epoch, image.offset), 0.0)

    def create(self, partitions: int) -> None:
        for start in range(0, partitions, TOPIC_PARTITIONS):
            count = min(TOPIC_PARTITIONS, partitions - start)
            wanted = NewTopic(f"topic-{start}", partitions=count, factor=REPLICAS)
            (row,) = self.controller.create_topics([wanted]).response["topics"]
            assert row["error_code"] == 0, row

    def kill(self, broker: int) -> ControllerResult:
        epoch = self.controller.image.brokers[broker].epoch
        self.controller.broker_disconnected(broker, epoch, 0.0)
        return self.controller.broker_unreachable(broker, epoch)

    def rejoin(self) -> int:
        """Leaders ask for one of their partitions without its last follower, and again with it."""
        image, asked = self.controller.image, 0
        for topic in list(image.topics.values())[:20]:
            partition = self.controller.image.topics[topic.name].partitions[0]
            if len(partition.isr) < REPLICAS:
                continue
            for isr in (partition.isr[:-1], partition.isr):
                now = self.controller.image.topics[topic.name].partitions[0]
                members = tuple((id, image.brokers[id].epoch) for id in isr)
                proposal = IsrProposal(topic.id, 0, now.leader_epoch, now.partition_epoch, members)
                epoch = image.brokers[now.leader].epoch
                self.controller.alter_partitions(now.leader, epoch, [proposal])
                asked += 1
        return asked


def controller(brokers: int, partitions: int) -> Row:
    before = _resident()
    cluster = ModelledCluster(brokers)
    everyone = range(1, brokers + 1)

    def start() -> None:
        for broker in everyone:
            cluster.register(broker)
            cluster.beat(broker)

    _, starting = _timed(start)
    _, creating = _timed(lambda: cluster.create(partitions))
    image_bytes = _resident() - before

    def beat_all() -> None:
        for broker in everyone:
            cluster.beat(broker)

    _, beating = _timed(beat_all)
    asked, changing = _timed(cluster.rejoin)
    image = cluster.controller.image
    died, electing = _timed(lambda: cluster.kill(brokers))
    batch, encoding = _timed(lambda: [encode(record) for record in died.records])
    sent = sum(map(len, batch))

    def apply() -> None:
        records = [decode(each) for each in batch]
        image.apply(records, image.offset + len(records), 1)

    _, applying = _timed(apply)
    everything, snapshotting = _timed(lambda: [encode(each) for each in image.records()])
    return {
        "brokers": brokers,
        "partitions": partitions,
        "start ms per broker": 1e3 * starting / brokers,
        "create µs per partition": 1e6 * creating / partitions,
        "heartbeat µs": 1e6 * beating / brokers,
        "heartbeats per s": brokers / HEARTBEAT_S,
        "heartbeats % of a core": 100 * beating / HEARTBEAT_S,
        "ISR change µs": 1e6 * changing / max(1, asked),
        "election ms": 1e3 * (electing + encoding),
        "election records": len(died.records),
        "election KB": sent / 1e3,
        "election KB to all": sent * brokers / 1e3,
        "apply ms": 1e3 * applying,
        "image MB": image_bytes / 1e6,
        "snapshot MB": sum(map(len, everything)) / 1e6,
        "snapshot ms": 1e3 * snapshotting,
    }


def simulated(brokers: int, partitions: int) -> Row:
    """Brokers and three controllers of their own. One broker is killed; how long until every other one knows who leads."""
    from ottla.lab.harness import simulated as lab_cluster
    from ottla.sim.cluster.nodes import CONTROLLER_PORT

    began, before = time.process_time(), _resident()
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with lab_cluster(1, nodes=brokers + 3, controllers=3, settings=settings) as lab:
        lab.start()
        victim = brokers

        def others() -> list[Any]:
            """The brokers that run, but for the victim."""
            found = [lab.sim.nodes[id].node for id in range(1, brokers + 1) if id != victim]
            return [node for node in found if node is not None]

        creating = lab.now
        per_topic = min(partitions, 1_000)
        for start in range(0, partitions, per_topic):
            lab.create_topic(f"topic-{start}", min(per_topic, partitions - start), REPLICAS)
        names = [f"topic-{start}" for start in range(0, partitions, per_topic)]

        def all_know() -> bool:
            return all(names[-1] in node.broker.cluster.image.topics for node in others())

        assert lab.run_until(all_know, 60), "everyone knows of the last topic"
        created = lab.now - creating
        lab.run_for(10)
        before_quiet = lab.counts.requests.copy()
        lab.run_for(10)
        asked = lab.counts.requests - before_quiet
        beats = sum(n for line, n in asked.items() if line.api == "broker_heartbeat") / 10
        to_controllers = sum(n for line, n in asked.items() if line.port == CONTROLLER_PORT) / 10
        died = lab.now
        lab.sim.nodes[victim].kill()

        waiting = {id(node): (node, -1) for node in others()}
        """Those that do not know yet, with the offset of the image that was last looked at."""

        def look() -> None:
            for key, (node, seen) in list(waiting.items()):
                image = node.broker.cluster.image
                if image.offset == seen:
                    continue
                waiting[key] = node, image.offset
                if all(
                    partition.leader not in (victim, -1)
                    for topic in image.topics.values()
                    for partition in topic.partitions
                ):
                    del waiting[key]

        def anybody() -> bool:
            look()
            return len(waiting) < brokers - 1

        def everybody() -> bool:
            look()
            return not waiting

        assert lab.run_until(anybody, 60), "somebody knows the new leaders"
        first = lab.now - died
        assert lab.run_until(everybody, 60), "everybody knows the new leaders"
        return {
            "brokers": brokers,
            "partitions": partitions,
            "all created s": created,
            "heartbeats per s": beats,
            "controllers' requests per s": to_controllers,
            "all requests per s": asked.total() / 10,
            "first knows ms": 1e3 * first,
            "all know ms": 1e3 * (lab.now - died),
            "spread ms": 1e3 * (lab.now - died - first),
            "memory MB": (_resident() - before) / 1e6,
            "CPU s": time.process_time() - began,
        }


PARTS: dict[str, tuple[Callable[[int, int], Row], tuple[tuple[int, int], ...]]] = {
    "controller": (controller, SIZES),
    "simulated": (simulated, SIMULATED),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/scale", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join((*PARTS, 'cores'))}; all if none")
    parser.add_argument("--one", nargs=2, type=int, metavar=("BROKERS", "PARTITIONS"))
    parser.add_argument("--write", action="store_true", help="into docs/SCALE.md and its chart")
    options = parser.parse_args()
    unknown = set(options.parts) - {*PARTS, "cores"}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    chosen = options.parts or [*PARTS, "cores"]
    if options.one:
        (part,) = chosen
        print(json.dumps(PARTS[part][0](*options.one)))
        return 0
    found: dict[str, list[Row]] = {}
    for part in chosen:
        if part == "cores":
            from bench import scale_cores

            found[part] = scale_cores.measure()
        else:
            found[part] = [_in_a_process(part, *size) for size in PARTS[part][1]]
        print(scale_report.table(part, found[part]))
        if options.write:
            scale_report.write(found)
    return 0


def _in_a_process(part: str, brokers: int, partitions: int) -> Row:
    words = [sys.executable, "-m", "bench.scale", part, "--one", str(brokers), str(partitions)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    print(f"{part}: {brokers} brokers, {partitions} partitions", file=sys.stderr, flush=True)
    row: Row = json.loads(done.stdout)
    return row


if __name__ == "__main__":
    sys.exit(main())
