"""Settings, checkpoint files and the leader-epoch cache."""

from __future__ import annotations

from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logkit import sim_disk

from ottla.log import checkpoints
from ottla.log.checkpoints import MetaProperties
from ottla.log.config import SETTINGS, InvalidSetting, LogConfig
from ottla.log.errors import CorruptCheckpoint
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.wire.types import TopicPartition

PATH = "/data/file"


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True), st.integers(0, 99)),
        st.integers(0, (1 << 63) - 1),
    )
)
def test_offsets_come_back_as_they_were_written(offsets):
    disk = sim_disk()
    given_offsets = {TopicPartition(*key): offset for key, offset in offsets.items()}
    checkpoints.write_offsets(disk, PATH, given_offsets)
    assert checkpoints.read_offsets(disk, PATH) == given_offsets


def test_an_empty_checkpoint_and_a_missing_one_hold_nothing():
    disk = sim_disk()
    assert checkpoints.read_offsets(disk, PATH) == {}
    checkpoints.write_offsets(disk, PATH, {})
    assert disk.read(PATH) == b"0\n0\n"
    assert checkpoints.read_offsets(disk, PATH) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", 1),
        (b"1\n0\n", 1),
        (b"\xff\n0\n", 1),
        (b"0\n", 2),
        (b"0\nx\n", 2),
        (b"0\n2\nt 0 5\n", 2),
        (b"0\n1\nt 0 5\nt 1 5\n", 2),
        (b"0\n1\nt 0\n", 3),
        (b"0\n1\nt 0 5 6\n", 3),
        (b"0\n1\nt zero 5\n", 3),
        (b"0\n2\nt 0 5\nt 0 6\n", 4),
        (b"0\n1\nt 0 1e3\n", 3),
    ],
)
def test_a_malformed_checkpoint_is_refused_with_its_line(text, line):
    disk = sim_disk()
    disk.replace(PATH, text)
    with pytest.raises(CorruptCheckpoint) as refused:
        checkpoints.read_offsets(disk, PATH)
    assert refused.value.line == line and refused.value.path == PATH


def test_kafkas_empty_file_of_cleaned_offsets_says_that_nothing_is_cleaned():
    disk = sim_disk()
    assert checkpoints.read_cleaned(disk, PATH) == {}
    disk.replace(PATH, b"")
    assert checkpoints.read_cleaned(disk, PATH) == {}
    disk.replace(PATH, b"0")
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_cleaned(disk, PATH)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint_or_refused(data):
    disk = sim_disk()
    disk.replace(PATH, data)
    for read in (
        checkpoints.read_offsets,
        checkpoints.read_epochs,
        checkpoints.read_meta_properties,
        checkpoints.read_partition_metadata,
        checkpoints.read_clean_shutdown,
    ):
        try:
            read(disk, PATH)
        except CorruptCheckpoint:
            continue


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"7"}', b"\xff"])
def test_a_marker_that_no_clean_stop_wrote_is_refused_and_an_empty_one_is_older_kafkas(text):
    disk = sim_disk()
    assert checkpoints.read_clean_shutdown(disk, PATH) is None
    disk.replace(PATH, b"")
    assert checkpoints.read_clean_shutdown(disk, PATH) == -1
    disk.replace(PATH, text)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_clean_shutdown(disk, PATH)


def test_meta_properties_are_kafkas():
    disk = sim_disk()
    disk.replace(
        PATH,
        b"#\n#Sun Nov 15 02:54:41 UTC 2026\nnode.id=100\n"
        b"directory.id=4yF1hsZxSy-9UjSz7val1w\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n",
    )
    found = checkpoints.read_meta_properties(disk, PATH)
    assert (found.cluster_id, found.node_id) == ("MkU3OEVBNTcwNTJENDM2Qg", 100)
    checkpoints.write_meta_properties(disk, PATH, found)
    assert checkpoints.read_meta_properties(disk, PATH) == found
    bare = MetaProperties("c", 1, None)
    checkpoints.write_meta_properties(disk, PATH, bare)
    assert checkpoints.read_meta_properties(disk, PATH) == bare


def test_partition_metadata_is_kafkas():
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.partition_metadata_text(UUID(int=1)) == text
    disk = sim_disk()
    disk.replace(PATH, text)
    assert checkpoints.read_partition_metadata(disk, PATH) == UUID(int=1)


def test_epochs_must_rise_in_both_fields_in_their_file():
    disk = sim_disk()
    assert checkpoints.read_epochs(disk, PATH) is None
    disk.replace(PATH, b"")
    assert checkpoints.read_epochs(disk, PATH) is None, "Kafka's, of a log without records"
    for text in (b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n", b"0\n2\n2 5\n1 6\n", b"0\n1\n-1 0\n"):
        disk.replace(PATH, text)
        with pytest.raises(CorruptCheckpoint):
            checkpoints.read_epochs(disk, PATH)
    disk.replace(PATH, b"0\n2\n0 0\n2 6\n")
    assert checkpoints.read_epochs(disk, PATH) == [(0, 0), (2, 6)]


def test_the_end_of_an_epoch_is_where_the_next_known_one_begins():
    """KIP-279: the answer names the largest epoch not above the asked one."""
    cache = LeaderEpochCache([(2, 10), (4, 20), (7, 30)])
    log_end = 35
    assert [cache.end_offset_for(epoch, log_end) for epoch in range(-1, 9)] == [
        (-1, -1),
        (0, 10),
        (1, 10),
        (2, 20),
        (2, 20),
        (4, 30),
        (4, 30),
        (4, 30),
        (7, 35),
        (-1, -1),
    ]
    assert LeaderEpochCache().end_offset_for(0, 5) == (-1, -1)


def test_an_epoch_that_wrote_nothing_makes_room_for_the_next():
    cache = LeaderEpochCache()
    cache.assign(1, 0)
    cache.assign(2, 5)
    cache.assign(3, 5)
    cache.assign(3, 8)
    assert cache.entries == [(1, 0), (3, 5)] and cache.latest == 3


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_cutting_the_cache_leaves_every_remaining_offset_its_epoch(steps, start, end):
    cache = LeaderEpochCache()
    epoch = offset = 0
    for up, count in steps:
        epoch += up
        cache.assign(epoch, offset)
        offset += count
    before = {at: cache.epoch_for_offset(at) for at in range(offset)}
    cache.truncate_from_end(end)
    cache.truncate_from_start(start)
    cache.invariants()
    for at in range(start, min(end, offset)):
        assert cache.epoch_for_offset(at) == before[at]
    assert all(entry[1] < end or entry[1] == start for entry in cache.entries)
    assert not [entry for entry in cache.entries if entry[1] < start]


def test_settings_have_kafkas_names_defaults_and_limits():
    config = LogConfig.from_settings(
        {
            "segment.bytes": "2000",
            "cleanup.policy": "compact, delete",
            "unclean.leader.election.enable": "true",
            "min.cleanable.dirty.ratio": "0.25",
            "compression.type": "zstd",
        }
    )
    assert config.segment_bytes == 2000 and config.cleanup_policy == ("compact", "delete")
    assert config.unclean_leader_election and config.min_cleanable_dirty_ratio == 0.25
    assert config.retention_ms == 604800000 and config.max_message_bytes == 1048588
    internal = {"internal.segment.bytes": "100", "segment.bytes": "2000"}
    assert LogConfig.from_settings(internal).segment_bytes == 100
    again = LogConfig.from_settings({"segment.ms": "5"}, config)
    assert (again.segment_ms, again.segment_bytes) == (5, 2000)
    settable = {field.name for field in fields(LogConfig) if field.init}
    assert {setting.field for setting in SETTINGS.values()} == settable


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.byte", "1"),
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "many"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "shred"),
        ("message.timestamp.type", "now"),
        ("unclean.leader.election.enable", "yes"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("compression.type", "brotli"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name, value):
    with pytest.raises(InvalidSetting) as refused:
        LogConfig.from_settings({name: value})
    assert refused.value.name == name
