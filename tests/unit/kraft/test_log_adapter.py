"""What the quorum keeps on disk: the log's batches as entries, and term and vote in quorum-state."""

import base64
import contextlib
import json
import random

import pytest

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import MetadataDelta, MetadataImage
from kraftlog.kraft.log_adapter import (
    METADATA_LOG_CONFIGS,
    METADATA_TOPIC_ID,
    MetadataLog,
    SnapshotFiles,
    format_metadata_log,
)
from kraftlog.kraft.raft import NO_OFFSET, Entry, EntryKind, HardState, ReplicaKey, Snapshot, Voters
from kraftlog.kraft.records import ControlBatches, decode_records, entry_of
from kraftlog.kraft.snapshot import GENESIS, SnapshotId, encode_snapshot
from kraftlog.logstore import DiskFullError, LogDir, format_log_dir, validate_topic_configs
from kraftlog.logstore.filesystem import atomic_write, read_file
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, InconsistentClusterIdError, StorageError
from kraftlog.proto.metadata_pb2 import MetadataRecord, TopicRecord
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.kraft.batches import encode_records
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

    def fill(self, end_offset: int) -> None:
        """Batches of one record in term 1, from the log's end on."""
        log = self.open()
        log.write_hard_state(HardState(1, ME))
        start = self.log.log_end_offset
        log.append([data(n, 1, 1) if n else leader_change(0, 1) for n in range(start, end_offset)])

    def snapshot(self, end_offset: int, term: int = 1) -> bytes:
        snapshot = snapshot_of(end_offset, term if end_offset else 0, frozenset({ME}))
        snapshot_id = SnapshotId(end_offset, term) if end_offset else GENESIS
        SnapshotFiles(self.fs, self.log.directory).write(snapshot_id, [snapshot])
        return snapshot

    def damage(self, snapshot_id: SnapshotId) -> None:
        path = f"{self.log.directory}/{snapshot_id.file_name}"
        content = bytearray(read_file(self.fs, path))
        content[len(content) // 2] ^= 1
        atomic_write(self.fs, path, bytes(content))

    def state(self) -> dict[str, object]:
        state: dict[str, object] = json.loads(read_file(self.fs, self.state_path))
        return state


def data(offset: int, count: int, term: int) -> Entry:
    records = [
        MetadataRecord(topic=TopicRecord(name=f"t{offset + i}", topic_id=(offset + i).to_bytes(16, "big")))
        for i in range(count)
    ]
    return entry_of(encode_records(records, base_offset=offset, leader_epoch=term, timestamp_ms=0))


def image_at(end_offset: int, term: int = 1) -> MetadataImage:
    """After the records that `data` gives below `end_offset`."""
    delta = MetadataDelta()
    for offset in range(1, end_offset):
        for each in decode_records(data(offset, 1, 1).data):
            delta.replay(each.record, offset)
    return delta.apply(end_offset - 1, term)


def snapshot_of(end_offset: int, term: int, voters: Voters) -> bytes:
    return b"".join(encode_snapshot(image_at(end_offset, term), voters, {}, timestamp_ms=0))


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
    disk.snapshot(2)
    with pytest.raises(StorageError, match=r"starts at offset 3.*\(2 is the end"):
        disk.open().load()
    disk.snapshot(3)
    disk.open().write_hard_state(HardState(1, ME))
    assert disk.open().load().snapshot.last_offset == 2


def test_newest_snapshot_and_the_log_after_it_are_loaded() -> None:
    """What lies before it is not read."""
    disk = Disk()
    disk.fill(10)
    first, second = disk.snapshot(3), disk.snapshot(7)
    loaded = disk.open().load()
    assert loaded.snapshot == Snapshot(6, 1, frozenset({ME}), second)
    assert loaded.contents is not None
    assert loaded.contents.image == image_at(7)
    assert [entry.base_offset for entry in loaded.entries] == [7, 8, 9]
    assert first != second


def test_damaged_newest_snapshot_is_set_aside_where_the_log_goes_back_further() -> None:
    """The older one and the log say the same; the evidence stays."""
    disk = Disk()
    disk.fill(10)
    older, newer = disk.snapshot(3), disk.snapshot(7)
    disk.log.trim_to(3, now_ms=0)
    disk.damage(SnapshotId(7, 1))
    loaded = disk.open().load()
    assert loaded.snapshot == Snapshot(2, 1, frozenset({ME}), older)
    assert [entry.base_offset for entry in loaded.entries] == list(range(3, 10))
    damaged = f"{disk.log.directory}/{SnapshotId(7, 1).file_name}.damaged"
    assert len(disk.fs.contents(damaged)) == len(newer)
    assert SnapshotFiles(disk.fs, disk.log.directory).ids() == [SnapshotId(3, 1)]


def test_damaged_newest_snapshot_stops_the_node_where_the_log_starts_at_it() -> None:
    """As after an installation: nothing else has what it had."""
    disk = Disk()
    disk.fill(10)
    disk.snapshot(3)
    disk.snapshot(7)
    disk.log.trim_to(7, now_ms=0)
    disk.damage(SnapshotId(7, 1))
    with pytest.raises(StorageError, match="starts at offset 7"):
        disk.open().load()


def test_damaged_genesis_is_never_taken_for_none() -> None:
    """Without the first voters this node would think that it is alone, and lead."""
    disk = Disk()
    disk.snapshot(0)
    disk.damage(GENESIS)
    with pytest.raises(StorageError, match="no snapshot is sound"):
        disk.open().load()


def test_interrupted_installation_is_completed() -> None:
    """The snapshot was there, the log not yet replaced: too short, or of another leader, or with a batch across."""
    for log in ([data(0, 2, 1)], [data(n, 1, 1) for n in range(9)], [data(0, 4, 2), data(4, 4, 2)]):
        disk = Disk()
        disk.open().append(log)
        disk.snapshot(5, term=2)
        disk.open().write_hard_state(HardState(2, ME))
        loaded = disk.open().load()
        assert (loaded.snapshot.last_offset, loaded.entries) == (4, [])
        assert (disk.log.log_start_offset, disk.log.log_end_offset) == (5, 5)


def test_lost_vote_is_noticed_with_a_snapshot_too() -> None:
    """Not with the genesis, which is older than any vote."""
    disk = Disk()
    disk.snapshot(0)
    assert disk.open().load().hard_state == HardState(0, None)
    disk.fill(5)
    disk.snapshot(5)
    disk.fs.unlink(disk.state_path)
    with pytest.raises(StorageError, match="the vote of this node is lost"):
        disk.open().load()


def test_snapshot_taken_keeps_the_one_before_and_the_log_from_there() -> None:
    """The log is trimmed only to the older of two; the flushed end is recorded with each."""
    disk = Disk()
    disk.fill(20)
    disk.snapshot(0)
    storage = disk.open()
    disk.log.effects.clear()
    for end in (5, 9, 14):
        data = storage.write_snapshot(image_at(end), frozenset({ME}), {}, timestamp_ms=0)
        assert disk.fs.contents(f"{disk.log.directory}/{SnapshotId(end, 1).file_name}") == data
        storage.trim(now_ms=0)
    assert SnapshotFiles(disk.fs, disk.log.directory).ids() == [SnapshotId(9, 1), SnapshotId(14, 1)]
    recorded = "record the flushed end"
    assert disk.log.effects == [recorded, recorded, "trim to 5", recorded, "trim to 9"]


def test_start_removes_what_a_stop_left() -> None:
    """A snapshot was written, and the process ended before it removed the oldest."""
    disk = Disk()
    disk.fill(20)
    for end in (4, 8, 12, 16):
        disk.snapshot(end)
    disk.open().load()
    assert SnapshotFiles(disk.fs, disk.log.directory).ids() == [SnapshotId(12, 1), SnapshotId(16, 1)]


def test_installed_snapshot_takes_the_place_of_everything() -> None:
    """In this order: file, the tail, the log, the other snapshots."""
    disk = Disk()
    disk.fill(20)
    disk.snapshot(4)
    storage = disk.open()
    storage.load()
    disk.log.effects.clear()
    storage.write_hard_state(HardState(3, OTHER))
    received = Snapshot(11, 3, frozenset({ME, OTHER}), snapshot_of(12, 3, frozenset({ME, OTHER})))
    contents = storage.install_snapshot(received)
    assert contents.image == image_at(12, term=3)
    assert disk.log.effects == ["truncate to 12", "start at 12", "record the flushed end"]
    loaded = disk.open().load()
    assert (loaded.snapshot, loaded.entries) == (received, [])
    assert SnapshotFiles(disk.fs, disk.log.directory).ids() == [SnapshotId(12, 3)]


def test_unsound_snapshot_is_not_installed() -> None:
    """It is read before anything of this node's own goes."""
    disk = Disk()
    disk.fill(20)
    storage = disk.open()
    sound = snapshot_of(30, 3, frozenset({ME}))
    disk.log.effects.clear()
    for received in (
        Snapshot(29, 3, frozenset({ME}), sound[:-1]),
        Snapshot(29, 4, frozenset({ME}), sound),
        Snapshot(29, 3, frozenset({OTHER}), sound),
    ):
        with pytest.raises(CorruptRecordError):
            storage.install_snapshot(received)
    assert disk.log.effects == []
    assert SnapshotFiles(disk.fs, disk.log.directory).ids() == []


def test_full_disk_leaves_no_half_snapshot() -> None:
    """And nothing to clean up: the room is needed."""
    disk = Disk()
    disk.fill(3)
    disk.fs.capacity_bytes = len(disk.fs.contents(disk.state_path)) + 100
    with pytest.raises(DiskFullError):
        disk.open().write_snapshot(image_at(3), frozenset({ME}), {}, timestamp_ms=0)
    assert disk.fs.listdir(disk.log.directory) == ["quorum-state"]
    disk.fs.capacity_bytes = None
    disk.open().write_snapshot(image_at(3), frozenset({ME}), {}, timestamp_ms=0)
    assert disk.open().load().snapshot.last_offset == 2


def test_leftovers_are_removed() -> None:
    """What a crash left half written, and nothing else."""
    disk = Disk()
    for name in ("00000000000000000005-0000000001.checkpoint.part", "other.part"):
        atomic_write(disk.fs, f"{disk.log.directory}/{name}", b"x")
    disk.open().load()
    assert disk.fs.listdir(disk.log.directory) == ["other.part"]


def test_formatted_directory_has_the_first_voters() -> None:
    """The genesis; repeated it is the same, and it never replaces a log."""
    fs, voters = SimFileSystem(), frozenset({ME, OTHER})
    endpoints = {ME: Endpoint("here", 9093)}

    def format_it() -> None:
        format_metadata_log(
            fs,
            "/data",
            voters=voters,
            endpoints=endpoints,
            feature_levels={"metadata.version": 1},
            timestamp_ms=5,
        )

    format_it()
    fs.crash(random.Random(1))
    format_it()
    format_log_dir("/data", fs, cluster_id="cluster", node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAA")
    log_dir = LogDir.open("/data", fs=fs, node_id=1, cluster_id="cluster", now_ms=0)
    assert log_dir.topic_id("__cluster_metadata", 0) == METADATA_TOPIC_ID
    log = log_dir.logs["__cluster_metadata", 0]
    loaded = MetadataLog(log, fs, cluster_id="cluster", voters=frozenset(), node_id=1).load()
    assert (loaded.snapshot.last_offset, loaded.snapshot.term, loaded.snapshot.voters) == (NO_OFFSET, 0, voters)
    assert loaded.contents is not None
    assert loaded.contents.endpoints == endpoints
    assert dict(loaded.contents.image.features) == {"metadata.version": 1}
    log_dir.close()
    with pytest.raises(StorageError, match="format an empty directory"):
        format_it()


@pytest.mark.parametrize(
    "entries",
    [
        [leader_change(1, 1)],
        [leader_change(0, 1), data(2, 1, 1)],
        [leader_change(0, 1), data(1, 2, 1), data(2, 1, 1)],
        [data(0, 1, 1)],
        [leader_change(0, 1), data(1, 1, 2)],
        [leader_change(0, 2), leader_change(1, 1)],
        [leader_change(0, 2), data(1, 1, 1)],
        [leader_change(0, 1), leader_change(1, 1)],
        [leader_change(0, 1), leader_change(1, 4)],
    ],
)
def test_offsets_and_epochs_that_do_not_follow_are_damage(entries: list[Entry]) -> None:
    """They are under no CRC: a bit there would be believed, and an epoch decides elections."""
    disk = Disk()
    disk.open().write_hard_state(HardState(3, ME))
    for each in entries:
        disk.log.batches.append((each.base_offset, each.last_offset + 1, each.data))
    with pytest.raises((CorruptRecordError, StorageError), match=r"damaged|nothing can be read"):
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
