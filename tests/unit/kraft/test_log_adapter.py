"""What the quorum keeps on disk: the log's batches as entries, and term and vote in quorum-state."""

import base64
import contextlib
import json
import random

import pytest

from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS, MetadataLog
from kraftlog.kraft.raft import Entry, EntryKind, HardState, ReplicaKey
from kraftlog.kraft.records import ControlBatches, encode_records, entry_of
from kraftlog.logstore import validate_topic_configs
from kraftlog.logstore.filesystem import atomic_write, read_file
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, InconsistentClusterIdError, StorageError
from kraftlog.proto.metadata_pb2 import MetadataRecord, TopicRecord
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.quorum.fakes import FakeLog

ME = ReplicaKey(1, bytes(range(16)))
OTHER = ReplicaKey(2)


class Disk:
    def __init__(self) -> None:
        self.fs = SimFileSystem()
        self.log = FakeLog()
        self.fs.mkdir(self.log.directory)
        self.fs.fsync_dir("/data")
        self.fs.fsync_dir("/")
        self.state_path = f"{self.log.directory}/quorum-state"

    def open(self, cluster_id: str = "cluster") -> MetadataLog:
        return MetadataLog(self.log, self.fs, cluster_id=cluster_id, voters=frozenset({ME, OTHER}), node_id=1)

    def state(self) -> dict[str, object]:
        state: dict[str, object] = json.loads(read_file(self.fs, self.state_path))
        return state


def data(offset: int, count: int, term: int) -> Entry:
    records = [MetadataRecord(topic=TopicRecord(name=f"t{offset + i}", topic_id=bytes(16))) for i in range(count)]
    return entry_of(encode_records(records, base_offset=offset, leader_epoch=term, timestamp_ms=0))


def leader_change(offset: int, term: int) -> Entry:
    return entry_of(ControlBatches(lambda: 0).leader_change(offset, term, ME, frozenset({ME, OTHER})))


def test_entries_come_back_as_they_were_written() -> None:
    """Kinds, offsets, terms and bytes, over several reads."""
    disk = Disk()
    entries = [leader_change(0, 1), data(1, 3, 1), leader_change(4, 2), data(5, 1, 2)]
    log = disk.open()
    log.write_hard_state(HardState(2, ME))
    log.append(entries[:2])
    log.append(entries[2:])
    loaded = disk.open().load()
    assert loaded.entries == entries
    assert loaded.hard_state == HardState(2, ME)
    assert [entry.kind for entry in loaded.entries] == [
        EntryKind.LEADER_CHANGE,
        EntryKind.DATA,
        EntryKind.LEADER_CHANGE,
        EntryKind.DATA,
    ]


def test_truncation_is_between_batches() -> None:
    """`truncate_to` names the last offset that stays."""
    disk = Disk()
    log = disk.open()
    log.append([leader_change(0, 1), data(1, 3, 1), data(4, 2, 1)])
    log.truncate_to(3)
    assert disk.log.log_end_offset == 4
    log.append([data(4, 1, 2)])
    assert disk.log.log_end_offset == 5


def test_append_that_leaves_a_gap_is_a_bug() -> None:
    """It guards durable data, so it is not an assert."""
    log = Disk().open()
    with pytest.raises(IllegalStateError, match="does not follow the log end 0"):
        log.append([data(3, 1, 1)])


def test_quorum_state_has_kafkas_fields() -> None:
    """What people and tools know; the directory of the vote is KIP-853's."""
    disk = Disk()
    log = disk.open()
    log.write_hard_state(HardState(5, ME))
    assert disk.state() == {
        "clusterId": "cluster",
        "leaderId": 1,
        "leaderEpoch": 5,
        "votedId": 1,
        "votedDirectoryId": base64.urlsafe_b64encode(bytes(range(16))).decode(),
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}],
        "data_version": 0,
    }
    log.write_hard_state(HardState(6, None))
    assert (disk.state()["votedId"], disk.state()["leaderId"], disk.state()["leaderEpoch"]) == (-1, -1, 6)
    assert disk.open().load().hard_state == HardState(6, None)


def test_quorum_state_survives_power_loss_at_any_moment() -> None:
    """Replaced in one step: the old or the new vote, never none."""
    for operations in range(12):
        disk = Disk()
        disk.open().write_hard_state(HardState(1, OTHER))
        disk.fs.stop_after(operations)
        finished = False
        with contextlib.suppress(SimulatedPowerLoss):
            disk.open().write_hard_state(HardState(2, ME))
            finished = True
        disk.fs.crash(random.Random(operations))
        loaded = disk.open().load().hard_state
        assert loaded == HardState(2, ME) or (not finished and loaded == HardState(1, OTHER))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"clusterId": "cluster", "leaderEpoch": "5", "votedId": -1}',
        b'{"clusterId": "cluster", "leaderEpoch": -1, "votedId": -1}',
        b'{"clusterId": "cluster", "leaderEpoch": 1, "votedId": null}',
        b'{"clusterId": "cluster", "leaderEpoch": 1, "votedId": 1, "votedDirectoryId": "AAAA"}',
        b'{"clusterId": "cluster", "leaderEpoch": 1, "votedId": 1, "votedDirectoryId": "!"}',
        b'{"clusterId": "cluster", "leaderEpoch": 1, "votedId": 1, "votedDirectoryId": 5}',
        b"\xff\xfe",
    ],
)
def test_broken_quorum_state_stops_the_node(content: bytes) -> None:
    """Never read as term 0 without a vote."""
    disk = Disk()
    atomic_write(disk.fs, disk.state_path, content)
    with pytest.raises(StorageError, match="the vote of this node is lost"):
        disk.open().load()


def test_state_of_another_cluster_is_refused() -> None:
    """A directory that was copied or mounted in the wrong place."""
    disk = Disk()
    disk.open().write_hard_state(HardState(1, ME))
    with pytest.raises(InconsistentClusterIdError, match="'other'"):
        disk.open("other").load()


def test_log_without_its_beginning_is_refused() -> None:
    """Without a snapshot of what came before, the state would be half."""
    disk = Disk()
    disk.log.log_start_offset = 3
    with pytest.raises(StorageError, match="starts at offset 3"):
        disk.open().load()


def test_damaged_log_is_refused() -> None:
    """See `load`."""
    disk = Disk()
    disk.log.damage = CorruptRecordError("batch at position 61 is damaged")
    with pytest.raises(CorruptRecordError, match="position 61"):
        disk.open().load()


def test_log_configs_are_legal() -> None:
    """The metadata log is an ordinary log."""
    validate_topic_configs(METADATA_LOG_CONFIGS)
