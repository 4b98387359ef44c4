"""The history of clients on a mixed cluster under random faults: a producer, a group that reads and writes in transactions, groups.

python -m support.mixed_history FIRST_SEED NUMBER SECONDS      in tests/, to run histories by hand
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from support.cluster import byte_identical, wait_until
from support.ledger import LedgerProducer
from support.mixed import KAFKA, OTTLA, Kind, MixedCluster
from support.pipeline import CALL_TIMEOUT_S, Feeder, Watcher, Worker, assert_each_once, wait_stable
from support.power_loss import lose_unflushed

MIXES: Final[Sequence[tuple[Kind, ...]]] = (
    (OTTLA, OTTLA, OTTLA, KAFKA),
    (KAFKA, KAFKA, KAFKA, OTTLA),
    (OTTLA, KAFKA, OTTLA),
    (KAFKA, OTTLA, KAFKA),
    (OTTLA, KAFKA, KAFKA, OTTLA),
)
"""The first three are the controllers."""
FAULTS: Final = ("kill", "kill", "power", "power", "pause", "restart", "become", "controller")
PARTITIONS: Final = 4
WORKERS: Final = 2
PROTOCOLS: Final = ("classic", "consumer")
UP_S: Final = (1.0, 6.0)
DOWN_S: Final = (0.0, 4.0)
PAUSED_S: Final = (1.0, 7.0)
WHOLE_SHARE: Final = 0.7
"""How often all replicas are in sync again before the next fault."""
WHOLE_S_MAX: Final = 120
COPIED_S_MAX: Final = 120 + CALL_TIMEOUT_S
"""A worker that hangs is given up after its timeout."""
TOPIC, SOURCE, TARGET, GROUP = "ledger", "source", "target", "pipe"
OF_OTTLA = "__ottla"
"""Topics that ottla's nodes write about themselves, all the time."""


@dataclass
class History:
    seed: int
    kinds: tuple[Kind, ...]
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    copied: int = 0
    bytes_cut: int = 0
    longest_silence_s: float = 0.0
    sent_again: int = 0
    """Records that librdkafka wrote twice (see `ledger.replaced`)."""
    hangs: int = 0
    """Producers that librdkafka left hanging (see `pipeline.send_offsets`)."""
    compared: int = 0
    """Partitions of which all replicas hold the same bytes."""

    def __str__(self) -> str:
        kinds = "".join(kind.name[0] for kind in self.kinds)
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed} {kinds}: {faults}; {self.bytes_cut} bytes lost with the power;"
            f" {self.acknowledged} acknowledged, {self.copied} copied in transactions,"
            f" {self.sent_again} records sent again and {self.hangs} producers hung by librdkafka,"
            f" longest silence {self.longest_silence_s:.1f} s; {self.compared} partitions identical"
        )


def live(directory: Path, seed: int, seconds: float) -> History:
    """Fails if anything was lost, doubled, moved or is stuck, or if replicas differ."""
    chance = Random(seed)
    kinds = MIXES[seed % len(MIXES)]
    history = History(seed, kinds)
    with MixedCluster(directory, kinds) as cluster:
        try:
            _live(cluster, history, chance, seconds)
        except BaseException as error:
            error.add_note(f"{history}\n{_stacks()}\n{cluster.report()}")
            raise
    return history


def _stacks() -> str:
    """Where each thread of this process is: a client that hangs is seen by it."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            parts.append(f"{thread.name}:\n{''.join(traceback.format_stack(frame)[-3:])}")
    return "\n".join(parts)


def _live(cluster: MixedCluster, history: History, chance: Random, seconds: float) -> None:
    settings = {"min.insync.replicas": "2"}
    for name in (TOPIC, SOURCE, TARGET):
        cluster.create_topic(name, PARTITIONS, 3, config=settings)
    watcher = Watcher(cluster.bootstrap, GROUP)
    began = time.monotonic()
    with ExitStack() as stack:
        protocol = chance.choice(PROTOCOLS)
        workers = []
        for number in range(WORKERS):
            config = {"group.protocol": protocol}
            name = f"worker-{number}"
            worker = Worker(cluster.bootstrap, GROUP, SOURCE, TARGET, name, config)
            stack.callback(worker.stop)
            workers.append(worker)
        wait_stable(workers, watcher, PARTITIONS, 120)
        with (
            Feeder(cluster.bootstrap, SOURCE, PARTITIONS, rate=100) as feeder,
            LedgerProducer(cluster.bootstrap, TOPIC, PARTITIONS, rate=200) as ledger,
        ):
            while time.monotonic() < began + seconds:
                _fail(cluster, history, chance)
                until = time.monotonic() + chance.uniform(*UP_S)
                while time.monotonic() < until:
                    watcher.look()
                    time.sleep(0.1)
            cluster.wait_ready(WHOLE_S_MAX)
            _wait_whole(cluster)
            ledger.wait_for_more(100, 60)
        wait_stable(workers, watcher, PARTITIONS, 120)

        def all_copied() -> bool:
            watcher.look()
            # The source has no transactions: as many offsets as records.
            return sum(watcher.committed.values()) == feeder.sent

        wait_until(all_copied, COPIED_S_MAX, "every record is copied", every=0.2)
    assert not ledger.failed, list(ledger.failed.items())[:5]
    assert not watcher.went_back, watcher.went_back[:5]
    report = ledger.verify(log_of=cluster.leader_logs(TOPIC))
    report.assert_clean()
    history.sent_again = report.sent_again
    assert_each_once(cluster.bootstrap, TARGET, PARTITIONS, feeder.sent)
    for topic in cluster.all_topics():
        if not topic.startswith(OF_OTTLA):
            byte_identical(cluster, topic, WHOLE_S_MAX)
            history.compared += len(cluster.partitions(topic))
    history.acknowledged = len(ledger.acknowledged)
    history.copied = feeder.sent
    history.hangs = sum(worker.hangs for worker in workers)
    history.longest_silence_s = ledger.longest_silence(began)


def _fail(cluster: MixedCluster, history: History, chance: Random) -> None:
    """One node at a time, so that acks=all and min.insync.replicas=2 promise everything."""
    fault = chance.choice(FAULTS)
    victim = chance.choice(sorted(cluster.nodes))
    if fault == "controller":
        victim = wait_until(cluster.active_controller, WHOLE_S_MAX, "an active controller")
    history.faults[f"{fault} of {cluster.kinds[victim].value}"] += 1
    if fault == "pause":
        cluster.pause(victim)
        time.sleep(chance.uniform(*PAUSED_S))
        cluster.resume(victim)
    elif fault == "restart":
        cluster.restart(victim)
    elif fault == "become":
        cluster.become(victim, cluster.kinds[victim].other)
    else:
        cluster.kill(victim)
        if fault == "power":
            history.bytes_cut += sum(lose_unflushed(cluster.nodes[victim].data, chance).values())
            if cluster.kinds[victim] is KAFKA:
                _wait_fenced(cluster, victim)
        time.sleep(chance.uniform(*DOWN_S))
        cluster.start(victim)
    cluster.wait_ready(WHOLE_S_MAX)
    if chance.random() < WHOLE_SHARE:
        _wait_whole(cluster)


def _wait_fenced(cluster: MixedCluster, victim: int) -> None:
    """A machine boots for longer than a session lasts. A broker of Apache Kafka that is back before leads in its old epoch until it
    is registered, with what its disk still has: its coordinators write records there that differ from those of the same offset
    and epoch that others have, and no fetch finds that."""

    def is_gone() -> bool:
        return any(victim not in cluster.alive_as_seen_by(node) for node in cluster.up)

    wait_until(is_gone, WHOLE_S_MAX, f"broker {victim} is fenced")


def _wait_whole(cluster: MixedCluster) -> None:
    for topic in (TOPIC, SOURCE, TARGET):
        cluster.wait_whole(topic, WHOLE_S_MAX)


def main() -> None:
    first, number, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for seed in range(first, first + number):
        with tempfile.TemporaryDirectory() as directory:
            print(live(Path(directory) / "cluster", seed, seconds), flush=True)


if __name__ == "__main__":
    main()
