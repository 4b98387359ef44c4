"""All logs of a broker: whose directories they are, clean and unclean stops, failing disks, corrupt logs."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest
from logkit import SMALL, append, batch_of, content, sim_disk

from ottla.log.checkpoints import LEADER_EPOCHS, epochs_text, read_epochs
from ottla.log.errors import CorruptCheckpoint, LogDirError, WrongDirectory
from ottla.log.manager import LogManager
from ottla.raft.format import format_directory, load_properties
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = UUID(int=40)
ZERO = TopicPartition("t", 0)


def managed(
    disk, directories=("/data",), *, start: bool = True, node: int = 1, **options
) -> LogManager:
    ids = count(1000)
    manager = LogManager(
        disk, list(directories), SMALL, new_id=lambda: UUID(int=next(ids)), **options
    )
    if start:
        manager.start(CLUSTER, node, 0)
    return manager


def create(manager: LogManager, topic: str = "t", partition: int = 0, **options):
    return manager.create(topic, TOPIC_ID, partition, SMALL, 0, **options)


def killed(disk):
    disk.forget_process()


def test_a_new_directory_gets_an_identity_and_keeps_it():
    disk = sim_disk()
    first = managed(disk)
    identity = first.directory_ids["/data"]
    first.close(clean=True, broker_epoch=5)
    assert managed(disk).directory_ids == {"/data": identity}
    text = disk.read("/data/meta.properties").decode()
    assert f"cluster.id={CLUSTER}\n" in text and "node.id=1\n" in text and "version=1\n" in text


def test_a_directory_of_another_cluster_node_or_process_is_not_touched():
    disk = sim_disk()
    first = managed(disk)
    with pytest.raises(WrongDirectory, match="another process"):
        managed(disk)
    first.close(clean=True)
    with pytest.raises(WrongDirectory, match="node 1"):
        managed(disk, node=2)
    killed(disk)
    other = LogManager(disk, ["/data"], SMALL, new_id=lambda: UUID(int=1))
    with pytest.raises(WrongDirectory, match="cluster"):
        other.start("another", 1, 0)


def test_a_clean_stop_is_remembered_once():
    disk = sim_disk()
    manager = managed(disk)
    assert manager.previous_broker_epoch == -1
    log = create(manager)
    append(log, 3)
    manager.close(clean=True, broker_epoch=330)
    assert disk.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":330}'
    again = managed(disk)
    assert again.previous_broker_epoch == 330
    assert again.logs[ZERO].log_end == again.logs[ZERO].recovery_point == 3
    assert not disk.exists("/data/.kafka_cleanshutdown")
    killed(disk)
    assert managed(disk).previous_broker_epoch == -1


def test_P08_the_checkpoints_keep_every_partitions_marks_across_restarts():
    disk = sim_disk()
    manager = managed(disk)
    for partition in range(3):
        log = create(manager, partition=partition)
        append(log, 5)
        log.advance_high_watermark(partition + 2)
    manager.logs[ZERO].advance_log_start(1)
    manager.logs[TopicPartition("t", 1)].flush()
    manager.checkpoint()
    assert disk.read("/data/replication-offset-checkpoint") == b"0\n3\nt 0 2\nt 1 3\nt 2 4\n"
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n3\nt 0 0\nt 1 5\nt 2 0\n"
    assert disk.read("/data/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert disk.read("/data/t-2/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    killed(disk)
    again = managed(disk)
    assert [log.high_watermark for log in again.logs.values()] == [2, 3, 4]
    assert [log.log_start for log in again.logs.values()] == [1, 0, 0]
    assert again.logs[ZERO].topic_id == TOPIC_ID


def test_flushed_data_that_rots_keeps_its_log_out_until_it_is_made_anew():
    disk = sim_disk()
    manager = managed(disk)
    for partition in range(2):
        append(create(manager, partition=partition), 4)
        manager.logs[TopicPartition("t", partition)].flush()
    manager.checkpoint()
    killed(disk)
    disk.rot("/data/t-0/00000000000000000000.log", 30)
    again = managed(disk)
    assert list(again.logs) == [TopicPartition("t", 1)]
    assert list(again.corrupt) == [ZERO]
    log = create(again)
    assert log.log_end == 0 and not again.corrupt
    assert [name for name in disk.list_dir("/data") if name.endswith("-stray")]
    append(log, 1)
    killed(disk)
    assert managed(disk).logs[ZERO].log_end == 1, "the marks of the corrupt log are gone too"


def test_a_log_that_is_found_corrupt_in_use_is_kept_as_it_is_until_it_is_made_anew():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 4)
    log.flush()
    manager.checkpoint()
    disk.rot("/data/t-0/00000000000000000000.log", 30)
    manager.found_corrupt(ZERO, "its CRC is wrong")
    assert not manager.logs and "its CRC is wrong" in str(manager.corrupt[ZERO])
    manager.checkpoint()
    killed(disk)
    again = managed(disk)
    assert list(again.corrupt) == [ZERO], "what was flushed is not cut as if it was torn"
    again.checkpoint()
    assert create(again).log_end == 0 and not again.corrupt
    assert [name for name in disk.list_dir("/data") if name.endswith("-stray")]
    killed(disk)
    assert managed(disk).logs[ZERO].log_end == 0, "the marks of the corrupt log are gone too"


def test_a_partition_whose_creation_did_not_survive_a_power_loss_is_as_if_it_was_never_there():
    for seed in range(60):
        disk = sim_disk(seed)
        manager = managed(disk)
        log = create(manager)
        append(log, 1)
        disk.lose_power()
        again = managed(disk)
        if ZERO in again.logs:
            assert again.logs[ZERO].log_end <= 1
        elif ZERO in again.corrupt:
            assert disk.file_size("/data/t-0/00000000000000000000.log")
            assert create(again).log_end == 0
        else:
            create(again)


def remove_doomed(manager, now_ms):
    plan = manager.removal_plan(now_ms)
    plan.run()
    manager.removed(plan)


def test_a_deleted_log_is_gone_at_once_and_its_files_after_a_while():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 1)
    kept = log.read(0, max_bytes=100, end_offset=1).range
    manager.delete(ZERO, 1000)
    assert ZERO not in manager.logs
    (name,) = [name for name in disk.list_dir("/data") if name.startswith("t-0")]
    assert name == f"t-0.{TOPIC_ID.hex}-delete"
    assert kept.read()
    remove_doomed(manager, 1000 + SMALL.file_delete_delay_ms - 1)
    assert disk.exists(f"/data/{name}")
    remove_doomed(manager, 1000 + SMALL.file_delete_delay_ms)
    assert not disk.exists(f"/data/{name}")


def test_a_partition_that_comes_back_and_goes_again_is_removed_once():
    """Seed 72: the second removal found nothing, and the whole directory went offline."""
    disk = sim_disk()
    manager = managed(disk)
    for now_ms in (0, 1000):
        append(create(manager), 1)
        manager.delete(ZERO, now_ms)
    for now_ms in (0, 1000):
        remove_doomed(manager, now_ms + SMALL.file_delete_delay_ms)
    assert not manager.offline_directories
    assert not [name for name in disk.list_dir("/data") if name.endswith("-delete")]


def test_a_partition_may_go_again_while_what_remained_of_it_is_being_removed():
    disk = sim_disk()
    manager = managed(disk)
    append(create(manager), 1)
    manager.delete(ZERO, 0)
    under_way = manager.removal_plan(SMALL.file_delete_delay_ms)
    append(create(manager), 1)
    manager.delete(ZERO, 1)
    under_way.run()
    manager.removed(under_way)
    assert not manager.offline_directories
    (name,) = [name for name in disk.list_dir("/data") if name.startswith("t-0")]
    assert name == f"t-0.{TOPIC_ID.hex}.1-delete"


def test_a_log_may_be_deleted_while_its_dropped_segments_are_being_removed():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    log.config = replace(SMALL, retention_ms=0, file_delete_delay_ms=0)
    append(log, 1)
    log.advance_high_watermark(1)
    assert manager.retention(5000) == {ZERO: 1}
    under_way = manager.removal_plan(5000)
    assert under_way.files
    manager.delete(ZERO, 5000)
    under_way.run()
    manager.removed(under_way)
    assert not manager.offline_directories


def test_a_directory_in_which_nothing_can_be_removed_goes_offline():
    disk = sim_disk()
    manager = managed(disk)
    create(manager)
    manager.delete(ZERO, 0)
    plan = manager.removal_plan(SMALL.file_delete_delay_ms)
    disk.fail("remove", "/data")
    plan.run()
    manager.removed(plan)
    assert list(manager.offline_directories) == ["/data"]


def test_what_is_left_of_a_deleted_log_goes_after_a_restart():
    disk = sim_disk()
    manager = managed(disk)
    create(manager)
    manager.delete(ZERO, 0)
    killed(disk)
    again = managed(disk)
    assert not again.logs
    remove_doomed(again, 0)
    assert not [name for name in disk.list_dir("/data") if name.endswith("-delete")]


@pytest.mark.parametrize("steps", range(4))
def test_a_log_of_the_same_name_does_not_inherit_the_marks_of_a_deleted_one(steps):
    """Whatever of a checkpoint that was under way is done when the node is killed (seed 921)."""
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 9)
    log.advance_high_watermark(9)
    log.advance_log_start(7)
    log.flush()
    manager.checkpoint()
    plan = manager.checkpoint_plan() if steps else None
    manager.delete(ZERO, 0)
    log = manager.create("t", UUID(int=41), 0, SMALL, 0)
    append(log, 2)
    if plan is not None and steps > 1:
        plan.run()
    if plan is not None and steps > 2:
        manager.checkpointed(plan)
    killed(disk)
    again = managed(disk).logs[ZERO]
    assert (again.log_start, again.high_watermark, again.log_end) == (0, 0, 2)


def test_a_log_of_the_same_name_has_marks_of_its_own_once_they_are_written():
    disk = sim_disk()
    manager = managed(disk)
    append(create(manager), 9)
    manager.checkpoint()
    plan = manager.checkpoint_plan()
    manager.delete(ZERO, 0)
    log = manager.create("t", UUID(int=41), 0, SMALL, 0)
    append(log, 4)
    log.advance_high_watermark(3)
    log.advance_log_start(1)
    plan.run()
    manager.checkpointed(plan)
    killed(disk)
    again = managed(disk).logs[ZERO]
    assert (again.log_start, again.high_watermark, again.log_end) == (1, 3, 4)


@pytest.mark.parametrize("goes", ["deleted", "found corrupt"])
def test_a_log_of_the_same_name_does_not_get_the_epochs_of_a_former_one(goes: str) -> None:
    """Found by a hostile reader: the plan is made on the loop, and carried out in a thread when the name belongs to
    another log whose own epochs are on disk already."""
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    for epoch in range(4):
        append(log, 2, epoch=epoch)
    plan = manager.checkpoint_plan()
    flush = log.flush_plan()
    if goes == "deleted":
        manager.delete(ZERO, 0)
    else:
        manager.found_corrupt(ZERO, "damaged")
    successor = manager.create("t", UUID(int=41), 0, SMALL, 0)
    append(successor, 9, epoch=0)
    successor.flush()
    plan.run()
    flush()
    assert read_epochs(disk, f"{successor.path}/{LEADER_EPOCHS}") == [(0, 0)]
    manager.checkpointed(plan)
    manager.close(clean=True)
    assert managed(disk).logs[ZERO].epochs.entries == [(0, 0)]


def test_epochs_that_a_thread_was_writing_for_a_former_log_are_written_over() -> None:
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 2, epoch=3)
    plan = manager.checkpoint_plan()
    manager.delete(ZERO, 0)
    successor = manager.create("t", UUID(int=41), 0, SMALL, 0)
    append(successor, 9, epoch=0)
    successor.flush()
    path = f"{successor.path}/{LEADER_EPOCHS}"
    disk.replace(path, epochs_text([(3, 0)]))  # as a thread that was past the last check
    manager.checkpointed(plan)
    manager.checkpoint()
    assert read_epochs(disk, path) == [(0, 0)]


def test_a_recovery_point_that_falls_is_on_disk_before_the_log_is_cut():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    for _ in range(3):
        append(log, 2)
    log.flush()
    plan = manager.checkpoint_plan()
    log.truncate_to(2)
    plan.run()
    manager.checkpointed(plan)
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"
    disk.lose_power()
    assert managed(disk).logs[ZERO].log_end >= 2


def test_one_failed_directory_takes_its_logs_and_the_others_live_on():
    disk = sim_disk()
    manager = managed(disk, ("/a", "/b"))
    logs = [create(manager, partition=partition) for partition in range(4)]
    assert [log.directory for log in logs] == ["/a", "/b", "/a", "/b"]
    lost = []
    manager.on_offline.append(lambda directory, keys: lost.append((directory, keys)))
    disk.fail("write", "/a", error=errno.EIO)
    with pytest.raises(LogDirError) as failure:
        append(logs[0], 1)
    manager.mark_offline(failure.value.directory, failure.value.cause)
    assert lost == [("/a", [ZERO, TopicPartition("t", 2)])]
    assert list(manager.offline_directories) == ["/a"]
    with pytest.raises(KafkaError, match=ErrorCode.KAFKA_STORAGE_ERROR.name):
        append(logs[2], 1)
    append(logs[1], 1)
    assert create(manager, partition=9).directory == "/b"
    manager.checkpoint()
    manager.retention(0)
    manager.close(clean=True, broker_epoch=3)
    assert disk.exists("/b/.kafka_cleanshutdown") and not disk.exists("/a/.kafka_cleanshutdown")
    disk.mend()
    assert managed(disk, ("/a", "/b")).previous_broker_epoch == -1


@pytest.mark.parametrize("operation", ["write", "flush", "flush_dir"])
def test_a_directory_that_fails_in_the_background_goes_offline(operation):
    disk = sim_disk()
    manager = managed(disk, ("/a", "/b"))
    for partition in range(2):
        append(create(manager, partition=partition), 1)
    disk.fail(operation, "/b")
    manager.checkpoint()
    assert list(manager.offline_directories) == ["/b"]
    assert list(manager.logs) == [ZERO]


def test_a_stop_is_not_clean_after_a_flush_that_failed_unheard():
    """Seed 259: the flush failed in a thread while the broker was stopping; the marker then vouched for
    epochs, and would have for batches, that are not on the disk."""
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 1)
    disk.fail("flush", "/data/t-0", times=1)
    with pytest.raises(LogDirError):
        log.flush_plan()()
    manager.close(clean=True, broker_epoch=7)
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert managed(disk).previous_broker_epoch == -1


def test_a_directory_that_cannot_be_read_at_the_start_is_offline_and_all_is_too_many():
    disk = sim_disk()
    managed(disk, ("/a", "/b")).close(clean=True)
    disk.fail("lock", "/a")
    manager = managed(disk, ("/a", "/b"))
    assert list(manager.offline_directories) == ["/a"]
    manager.close(clean=True)
    disk.fail("lock", "/b")
    with pytest.raises(WrongDirectory):
        managed(disk, ("/a", "/b"))


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    ],
)
def test_a_damaged_checkpoint_is_refused_before_anything_is_written(name):
    """Without it nobody knows what was flushed, committed or deleted, and so what may be done."""
    disk = sim_disk()
    manager = managed(disk, ("/a", "/b"))
    create(manager)
    manager.close(clean=True)
    disk.replace(f"/b/{name}", b"0\n7\n")
    before = everything(disk)
    with pytest.raises(CorruptCheckpoint, match=f"/b/{name}, line"):
        managed(disk, ("/a", "/b"))
    assert everything(disk) == before
    with pytest.raises(CorruptCheckpoint):  # and the locks were let go
        managed(disk, ("/a", "/b"))


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_file_of_one_log_keeps_only_that_one_out(name, clean):
    disk = sim_disk()
    manager = managed(disk)
    for partition in range(2):
        append(create(manager, partition=partition), 3)
    manager.checkpoint()
    manager.close(clean=clean)
    disk.replace(f"/data/t-0/{name}", b"garbage")
    again = managed(disk)
    assert list(again.corrupt) == [ZERO] and name in str(again.corrupt[ZERO])
    assert list(again.logs) == [TopicPartition("t", 1)]


def test_logs_that_were_not_all_opened_are_not_closed_as_clean():
    disk = sim_disk()
    manager = managed(disk)
    append(create(manager), 3)
    manager.logs[ZERO].flush()
    manager.checkpoint()
    killed(disk)
    marks = disk.read("/data/recovery-point-offset-checkpoint")
    interrupted = managed(disk, start=False)
    interrupted.take(CLUSTER, 1)
    interrupted.close(clean=True, broker_epoch=5)
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert disk.read("/data/recovery-point-offset-checkpoint") == marks


def everything(disk, path="/"):
    found = {}
    for name in disk.list_dir(path):
        inner = f"{path.rstrip('/')}/{name}"
        found[inner] = everything(disk, inner) if disk.is_dir(inner) else disk.read(inner)
    return found


def test_whose_log_it_is_survives_a_power_loss_once_the_identity_was_flushed():
    for seed in range(30):
        disk = sim_disk(seed)
        manager = managed(disk)
        log = create(manager)
        plan = manager.identity_plan([log])
        plan.run()
        manager.flushed(plan)
        assert not manager.identity_plan([log])
        append(log, 3)
        disk.lose_power()
        again = managed(disk)
        assert again.logs[ZERO].topic_id == TOPIC_ID and not again.corrupt
        assert log.recovery_point == 0, "the data is another matter"


def test_the_quorums_log_and_other_files_are_left_alone():
    disk = sim_disk()
    managed(disk).close(clean=True)
    for name in ("__cluster_metadata-0", "not a partition", "t-x", "t-007", "t-1.abc-stray"):
        disk.make_dirs(f"/data/{name}")
    manager = managed(disk)
    assert not manager.logs and not manager.corrupt


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
def test_a_name_that_is_no_topics_never_becomes_a_path(name):
    manager = managed(sim_disk())
    with pytest.raises(KafkaError, match=ErrorCode.INVALID_TOPIC_EXCEPTION.name):
        create(manager, name)


def test_a_long_name_still_fits_when_it_is_deleted():
    disk = sim_disk()
    manager = managed(disk)
    create(manager, "x" * 249, 12345)
    manager.delete(TopicPartition("x" * 249, 12345), 0)
    assert max(len(name) for name in disk.list_dir("/data")) == 255


def test_retention_runs_over_all_logs_and_forgets_silent_producers():
    manager = managed(sim_disk(), producer_id_expiration_ms=1000)
    for partition in range(2):
        log = create(manager, partition=partition)
        log.config = replace(SMALL, retention_ms=0)
        log.append_as_leader(batch_of(1, producer_id=4, producer_epoch=0, base_sequence=0), 0, 0)
        log.advance_high_watermark(1)
    assert sum(manager.retention(5000).values()) == 2
    assert all(log.producers.producers for log in manager.logs.values()), "heard of just now"
    manager.retention(6001)
    assert not any(log.producers.producers for log in manager.logs.values())


def test_a_cluster_of_crashes_never_loses_what_was_checkpointed():
    """Append, flush, checkpoint, cut and lose power in turns: no flushed batch goes, no false alarm."""
    for seed in range(40):
        disk = sim_disk(seed)
        manager = managed(disk)
        create(manager).flush()
        for _ in range(6):
            log = manager.logs[ZERO]
            for _ in range(disk.random.randrange(12)):
                append(log, 1 + disk.random.randrange(3), epoch=log.epochs.latest or 0)
            if disk.random.random() < 0.5:
                log.flush()
            if disk.random.random() < 0.5:
                manager.checkpoint()
            promised = content(log, 0, log.recovery_point)
            if disk.random.random() < 0.5:
                log.truncate_to(disk.random.randint(0, log.log_end))
                promised = content(log, 0, log.recovery_point)
            disk.lose_power()
            manager = managed(disk)
            assert not manager.corrupt, (seed, manager.corrupt)
            assert content(manager.logs[ZERO]).startswith(promised)


def test_a_restart_does_not_take_for_committed_what_was_written_after_a_cut():
    """The high watermark on disk may be that of the records that were cut."""
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 9)
    log.advance_high_watermark(9)
    log.flush()
    manager.checkpoint()
    log.truncate_to(0)
    append(log, 9, epoch=2)
    killed(disk)
    again = managed(disk).logs[ZERO]
    assert (again.high_watermark, again.log_end) == (0, 9)


def test_a_second_restart_does_not_take_for_committed_what_was_written_after_a_loss():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 3)
    log.flush()
    append(log, 6)
    log.advance_high_watermark(9)
    manager.checkpoint()
    while manager.logs[ZERO].log_end == 9:
        disk.lose_power()  # of what is not flushed
        manager = managed(disk)
    lost = manager.logs[ZERO]
    assert lost.high_watermark == lost.log_end == 3
    append(lost, 6, epoch=2)
    killed(disk)
    again = managed(disk).logs[ZERO]
    assert (again.high_watermark, again.log_end) == (3, 9)


def test_a_checkpoint_under_way_does_not_bring_back_a_high_watermark_that_fell():
    disk = sim_disk()
    manager = managed(disk)
    log = create(manager)
    append(log, 9)
    log.advance_high_watermark(9)
    plan = manager.checkpoint_plan()
    log.truncate_to(0)
    append(log, 9, epoch=2)
    plan.run()
    manager.checkpointed(plan)
    killed(disk)
    assert managed(disk).logs[ZERO].high_watermark == 0


def test_a_directory_that_is_formatted_after_it_was_taken_keeps_its_id():
    """The controller of a combined node votes with this id, so the next start must find the same one."""
    disk, formatted = sim_disk(), UUID(int=5)
    manager = managed(disk, start=False)
    manager.take(CLUSTER, 1)
    format_directory(
        disk, "/data", cluster_id=CLUSTER, node_id=1, directory_id=formatted, voters=None
    )
    manager.start(CLUSTER, 1, 0)
    assert manager.directory_ids == {"/data": formatted}
    assert load_properties(disk, "/data").directory_id == formatted
