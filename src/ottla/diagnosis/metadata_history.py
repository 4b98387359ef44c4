"""History from the metadata log: elections, ISR changes, fencing and moves, for a directory without an event log.

The metadata log has every decision of the controllers with its time, but not the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.diagnosis.happened import UNKNOWN_NODE, Happened
from ottla.metadata.image import Delta, MetadataImage, PartitionImage


def entries_of(
    old: MetadataImage, new: MetadataImage, delta: Delta, at_ms: int
) -> Iterator[Happened]:
    """What one batch of metadata records changed, as entries of an event log."""
    for broker in delta.changed_brokers:
        yield from _broker(old, new, broker, at_ms)
    for topic_id, number in delta.changed_partitions:
        topic, before = new.topics_by_id.get(topic_id), old.topics_by_id.get(topic_id)
        if topic is None or before is None or number >= len(before.partitions):
            continue
        name = f"{topic.name}-{number}"
        yield from _partition(name, before.partitions[number], topic.partitions[number], new, at_ms)


def _broker(old: MetadataImage, new: MetadataImage, broker: int, at_ms: int) -> Iterator[Happened]:
    before, now = old.brokers.get(broker), new.brokers.get(broker)
    if now is None:
        return
    was_fenced = before is None or before.fenced
    if was_fenced != now.fenced:
        kind = "fenced" if now.fenced else "unfenced"
        fields = {"broker": broker, "broker_epoch": now.epoch}
        yield Happened(at_ms, kind, UNKNOWN_NODE, None, None, fields)


def _partition(
    name: str, old: PartitionImage, new: PartitionImage, image: MetadataImage, at_ms: int
) -> Iterator[Happened]:
    gone = [id for id in old.isr if id not in new.isr]
    come = [id for id in new.isr if id not in old.isr]
    common = {"leader": new.leader, "leader_epoch": new.leader_epoch}
    isr = {"isr": list(new.isr), "previous_isr": list(old.isr)}
    if gone:
        cause = "fenced" if not any(image.is_alive(id) for id in gone) else None
        yield Happened(
            at_ms, "isr_shrink", UNKNOWN_NODE, name, cause, {**common, **isr, "brokers": gone}
        )
    if new.leader != old.leader:
        if new.leader < 0:
            fields = {"previous_leader": old.leader, "leader_epoch": new.leader_epoch}
            yield Happened(at_ms, "offline", UNKNOWN_NODE, name, None, fields)
        else:
            elected = {
                **common,
                "previous_leader": old.leader,
                "isr": list(new.isr),
                "how": _how(old, new),
            }
            yield Happened(at_ms, "election", UNKNOWN_NODE, name, None, elected)
    if come:
        yield Happened(
            at_ms, "isr_expand", UNKNOWN_NODE, name, "caught_up", {**common, **isr, "brokers": come}
        )
    if (old.adding, old.removing) != (new.adding, new.removing):
        is_over = not new.adding and not new.removing
        step = "completed" if is_over else "changed" if old.adding or old.removing else "started"
        move = {
            "step": step,
            "replicas": list(new.replicas),
            "adding": list(new.adding),
            "removing": list(new.removing),
        }
        yield Happened(at_ms, "reassignment", UNKNOWN_NODE, name, None, move)


def _how(old: PartitionImage, new: PartitionImage) -> str:
    if new.leader in old.isr:
        is_preferred = new.leader == new.replicas[0] and old.leader in new.isr
        return "preferred" if is_preferred else "clean"
    if new.leader in old.elr:
        return "elr"
    return "last_known_leader" if new.leader in old.last_known_elr else "unclean"
