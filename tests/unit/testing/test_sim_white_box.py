"""The rules that look into the node and its disk: node checks and durable group offsets."""

from dataclasses import dataclass, field

import pytest

from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.records import BatchBuilder
from kraftlog.server.coordinator.records import OffsetCommitKey, OffsetCommitValue, offset_commit_record
from kraftlog.testing.filesystem import SimFileSystem
from kraftlog.testing.sim.durable import CachedLogs, DurableOffsets
from kraftlog.testing.sim.history import History
from kraftlog.testing.sim.node_checks import ClusterChecks, NodeChecks

WHERE = ("orders", 0)


@dataclass
class _Log:
    log_start_offset: int = 0
    log_end_offset: int = 10
    flushed_end_offset: int = 8
    size_bytes: int = 100


@dataclass
class _Partition:
    log: _Log = field(default_factory=_Log)
    high_watermark: int = 8
    is_leader: bool = True
    is_in_sync: bool = True
    leader_epoch: int = 0
    is_flushed: bool = True


def test_a_sound_node_passes() -> None:
    """Appends, flushes and a moving high watermark in their order."""
    history, partition = History(), _Partition()
    checks = NodeChecks(history)
    for log_end, flushed_end in ((10, 8), (12, 8), (12, 12)):
        partition.log.log_end_offset, partition.log.flushed_end_offset = log_end, flushed_end
        partition.high_watermark = flushed_end
        checks.check({WHERE: partition})
    assert history.violation is None


def test_a_leader_that_brings_deleted_records_back_is_found() -> None:
    """I-07: whoever leads, and whatever its log was told before."""
    history = History(is_replicated=True)
    history.on_delete_asked(WHERE, 5)
    NodeChecks(history).check({WHERE: _Partition(_Log(5, 10, 8), is_leader=True)})
    history.on_deleted(WHERE, 5)
    assert history.violation is None
    NodeChecks(history).check({WHERE: _Partition(_Log(4, 10, 8), is_leader=True, leader_epoch=1)})
    assert history.violation is not None
    assert history.violation.rule == "I-07"


@pytest.mark.parametrize(
    ("rule", "log", "high_watermark"),
    [
        ("W-1", _Log(0, 10, 8), 11),
        ("W-1", _Log(0, 10, 11), 8),
        ("W-1", _Log(9, 10, 8), 8),
        ("W-2", _Log(0, 9, 8), 8),
        ("W-2", _Log(0, 10, 7), 7),
        ("W-3", _Log(0, 10, 8), 9),
        ("W-4", _Log(0, 10, 10), 10),
    ],
)
def test_a_broken_rule_is_found(rule: str, log: _Log, high_watermark: int) -> None:
    """One wrong number, and the rule that it breaks is named."""
    history, partition = History(), _Partition()
    checks = NodeChecks(history)
    checks.check({WHERE: partition})
    assert history.violation is None
    partition.log, partition.high_watermark = log, high_watermark
    if rule == "W-4":
        history.partition(WHERE).acked_end = 11
    checks.check({WHERE: partition})
    assert history.violation is not None
    assert history.violation.rule == rule


def test_a_follower_may_cut_what_is_not_committed() -> None:
    """Its leader has not got it; but the high watermark stays."""
    history, partition = History(), _Partition(is_leader=False)
    checks = NodeChecks(history)
    checks.check({WHERE: partition})
    partition.log.log_end_offset = 8
    checks.check({WHERE: partition})
    assert history.violation is None
    partition.log, partition.high_watermark = _Log(0, 7, 7), 7
    checks.check({WHERE: partition})
    assert history.violation is not None
    assert history.violation.rule == "W-2"


def test_a_leader_epoch_has_one_leader() -> None:
    """I-08, and W-4 is for the newest leader alone: an older one may lack what was acknowledged since."""
    history = History()
    history.partition(WHERE).acked_end = 11
    cluster = ClusterChecks(history, has_replicas=True)
    NodeChecks(history, cluster, node_id=1).check({WHERE: _Partition(_Log(0, 11, 8), leader_epoch=2)})
    NodeChecks(history, cluster, node_id=2).check({WHERE: _Partition(leader_epoch=1)})
    assert history.violation is None
    NodeChecks(history, cluster, node_id=2).check({WHERE: _Partition(_Log(0, 11, 8), leader_epoch=2)})
    assert history.violation is not None
    assert history.violation.rule == "I-08"


@pytest.mark.parametrize("is_committed", [False, True])
def test_committed_batches_are_equal_on_all_nodes(is_committed: bool) -> None:
    """I-12, from the high watermark down."""
    history = History(is_replicated=True)
    cluster = ClusterChecks(history, has_replicas=True)
    for node_id in (1, 2):
        fs = SimFileSystem()
        fs.mkdir("/data/orders-0")
        second = _commit(1, node_id)
        fs.put("/data/orders-0/00000000000000000000.log", _commit(0, 7) + second)
        checks = NodeChecks(history, cluster, node_id=node_id, logs=CachedLogs(fs, "/data"))
        high_watermark = 2 if is_committed else 1
        checks.check({WHERE: _Partition(_Log(0, 2, 2), high_watermark, is_leader=node_id == 1)})
    assert (history.violation is not None) == is_committed
    assert history.violation is None or history.violation.rule == "I-12"


@pytest.mark.parametrize(("is_in_sync", "gone_below"), [(False, 2), (False, 1), (True, 2)])
def test_what_is_deleted_elsewhere_may_differ_on_a_replica_out_of_sync(is_in_sync: bool, gone_below: int) -> None:
    """I-12: it was told to cut its log only where the leader's history begins, and soon starts there itself."""
    history = History(is_replicated=True)
    history.on_delete_asked(WHERE, gone_below)
    history.on_log_start("node 1", WHERE, gone_below, size_bytes=0, now_ms=0)
    cluster = ClusterChecks(history, has_replicas=True)
    for node_id in (1, 2):
        fs = SimFileSystem()
        fs.mkdir("/data/orders-0")
        fs.put("/data/orders-0/00000000000000000000.log", _commit(0, 7) + _commit(1, node_id))
        checks = NodeChecks(history, cluster, node_id=node_id, logs=CachedLogs(fs, "/data"))
        is_leader = node_id == 1
        partition = _Partition(_Log(0, 2, 2), 2, is_leader=is_leader, is_in_sync=is_leader or is_in_sync)
        checks.check({WHERE: partition})
    assert (history.violation is None) == (not is_in_sync and gone_below == 2)


def test_a_replica_that_was_taken_away_begins_anew() -> None:
    """A reassignment takes its log; the next replica of the partition is empty, and the rules of that one's life hold."""
    history = History(is_replicated=True)
    checks = NodeChecks(history)
    checks.check({WHERE: _Partition(_Log(0, 10, 10), 10, is_leader=False)})
    checks.check({})
    partition = _Partition(_Log(0, 0, 0), 0, is_leader=False)
    checks.check({WHERE: partition})
    assert history.violation is None
    partition.log.log_end_offset = partition.log.flushed_end_offset = partition.high_watermark = 5
    checks.check({WHERE: partition})
    partition.high_watermark = 4
    checks.check({WHERE: partition})
    assert history.violation is not None
    assert history.violation.rule == "W-2"


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({1: (b"a", b"2"), 2: (b"b", b"3")}, ""),
        ({0: (b"a", b"1"), 1: (b"a", b"2"), 2: (b"b", b"3")}, ""),
        ({1: (b"a", b"other"), 2: (b"b", b"3")}, "differ"),
        ({0: (b"a", b"1"), 2: (b"b", b"3")}, "lacks the last record of b'a'"),
    ],
)
def test_compacted_replicas_may_differ_in_what_is_superseded_only(
    other: dict[int, tuple[bytes | None, bytes | None]], complaint: str
) -> None:
    """I-12 after compaction: each node compacts when it likes."""
    history = History(is_compacted=True, is_replicated=True)
    ClusterChecks(history).check_survivors(WHERE, {1: {1: (b"a", b"2"), 2: (b"b", b"3")}, 2: other})
    assert complaint in str(history.violation or "")
    assert (history.violation is not None) == bool(complaint)


def _commit(base_offset: int, offset: int) -> bytes:
    record = offset_commit_record(OffsetCommitKey("g", "orders", 0), OffsetCommitValue(offset, -1, "", 0))
    builder = BatchBuilder()
    builder.append(0, record.key, record.value)
    return builder.build(base_offset=base_offset, leader_epoch=0)


def test_group_offsets_count_once_they_are_synced() -> None:
    """Only what a power loss leaves is a committed offset."""
    fs = SimFileSystem()
    directory = f"/data/{CONSUMER_OFFSETS_TOPIC}-0"
    fs.mkdir(directory)
    offsets = DurableOffsets(fs, "/data")
    first = _commit(0, 7)
    fs.put(f"{directory}/00000000000000000000.log", first)
    for path in ("/data", "/"):
        fs.fsync_dir(path)
    assert offsets.committed("g", "orders", 0) == 7
    assert offsets.committed("other", "orders", 0) == -1
    file = fs.open(f"{directory}/00000000000000000000.log")
    file.pwritev([_commit(1, 9)], len(first))
    assert offsets.committed("g", "orders", 0) == 7
    file.fdatasync()
    assert offsets.committed("g", "orders", 0) == 9
    offsets.forget()
    assert offsets.committed("g", "orders", 0) == 9
