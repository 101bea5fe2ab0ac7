"""Operations that are decided while the disk is busy share a batch."""

import random

import pytest

from kraftlog.kraft.gathering import GatheringLog
from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    HardState,
    RaftConfig,
    RaftCore,
    ReplicaKey,
    Snapshot,
)
from kraftlog.kraft.records import ControlBatches
from kraftlog.proto.errors import NotControllerError, ThrottlingQuotaExceededError
from kraftlog.proto.records import decode_batch, read_header

ME, OTHER, THIRD = ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)


def leading_core(*others: ReplicaKey, max_append_bytes: int = 1_000, max_uncommitted_bytes: int = 2_000) -> RaftCore:
    """Leads; the entry of its term is the only one."""
    voters = frozenset({ME, *others})
    core = RaftCore(
        ME,
        config=RaftConfig(max_append_bytes=max_append_bytes, max_uncommitted_bytes=max_uncommitted_bytes),
        random=random.Random(1),
        control=ControlBatches(lambda: 0),
        hard_state=HardState(4, None),
        snapshot=Snapshot(NO_OFFSET, 0, frozenset({ME}), b""),
    )
    core.campaign()
    assert core.is_leader
    while core.has_ready():
        core.advance(core.ready())
    for other in voters - {ME}:
        core.observe(other)
    return core


def batches(core: RaftCore) -> list[list[tuple[int, bytes | None]]]:
    """Offsets and values of what was proposed, batch by batch."""
    entries = core.log.between(0, core.log.last_offset)
    for entry in entries:
        header = read_header(entry.data)
        assert (header.last_offset, header.leader_epoch) == (entry.last_offset, entry.term)
    return [[(record.offset, record.value) for record in decode_batch(entry.data)] for entry in entries]


def test_operations_up_to_a_close_are_one_batch() -> None:
    """In their order, with the offsets that they were told."""
    core = leading_core()
    log = GatheringLog(core)
    assert (log.next_offset, log.leader_epoch) == (1, core.term)
    log.append([b"a", b"b"], 10)
    assert log.next_offset == 3
    log.append([b"c"], 20)
    assert (log.next_offset, core.next_offset) == (4, 1)
    log.close()
    assert (log.next_offset, core.next_offset) == (4, 4)
    log.append([b"d"], 30)
    log.close()
    log.close()
    assert batches(core) == [[(1, b"a"), (2, b"b"), (3, b"c")], [(4, b"d")]]
    (first, _) = core.log.between(0, 4)
    assert read_header(first.data).max_timestamp == 20


def test_batch_is_closed_before_it_exceeds_what_one_append_carries() -> None:
    """An operation is never divided, be it larger than that."""
    core = leading_core(max_uncommitted_bytes=5_000)
    log = GatheringLog(core)
    log.append([b"x" * 400], 0)
    log.append([b"y" * 400, b"z" * 100], 0)
    log.append([b"w" * 1_100], 0)
    log.close()
    assert [[offset for offset, _ in batch] for batch in batches(core)] == [[1], [2, 3], [4]]


def test_what_is_open_counts_as_uncommitted() -> None:
    """Refused when the operation comes, never when the batch is closed."""
    core = leading_core(max_uncommitted_bytes=1_700)
    log = GatheringLog(core)
    taken = 9
    for _ in range(taken):
        log.append([b"x" * 150], 0)
    with pytest.raises(ThrottlingQuotaExceededError, match="max_uncommitted_bytes=1700"):
        log.append([b"x" * 250], 0)
    assert log.next_offset == 1 + taken
    log.close()
    assert sum(map(len, batches(core))) == taken
    assert 1_200 < core.log.bytes_between(0, core.log.last_offset) <= 1_700
    while core.has_ready():
        core.advance(core.ready())
    log.append([b"x" * 150], 0)
    assert log.next_offset == 2 + taken


def test_another_leader_ends_it() -> None:
    """What was open is dropped, also when this node leads once more: the operations fail when the controller resigns."""
    core = leading_core()
    log = GatheringLog(core)
    log.append([b"a"], 0)
    core.step(AppendRequest(OTHER, ME, core.term + 1, 0, 4 + 1, (), NO_OFFSET, 1))
    assert not core.is_leader
    log.append([b"b"], 0)  # what was begun goes the same way
    log.close()
    with pytest.raises(NotControllerError):
        log.append([b"c"], 0)
    core.campaign()
    assert core.is_leader
    log.close()
    assert not {b"a", b"b", b"c"} & {value for batch in batches(core) for _, value in batch}


def test_nothing_else_may_be_appended_before_it_is_closed() -> None:
    """The records in it know their offsets already."""
    core = leading_core(OTHER)
    log = GatheringLog(core)
    log.append([b"a"], 0)
    core.propose(b"something else")
    with pytest.raises(AssertionError, match="before this batch was closed"):
        log.close()
