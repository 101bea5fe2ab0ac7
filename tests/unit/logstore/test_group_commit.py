"""Who waits for one log's bytes to be durable shares a sync with all others who do."""

import pytest

from kraftlog.logstore import GroupCommit
from kraftlog.proto.errors import StorageError


def test_waiters_share_one_sync() -> None:
    commit: GroupCommit[str] = GroupCommit()
    assert commit.request(10, "a")
    assert commit.begin() == 10
    assert not commit.request(12, "b"), "a sync runs: its driver goes on by itself"
    assert not commit.request(11, "c")
    assert commit.begin() is None, "one at a time"
    assert commit.complete(10) == ["a"]
    assert commit.begin() == 12
    assert commit.complete(15) == ["c", "b"]
    assert commit.begin() is None


def test_a_sync_serves_whoever_it_covers() -> None:
    """It may cover more than was asked for when it began."""
    commit: GroupCommit[str] = GroupCommit(flushed_end_offset=3)
    commit.request(10, "a")
    commit.begin()
    commit.request(20, "b")
    commit.request(20, "c")
    assert commit.complete(20) == ["a", "b", "c"]
    assert commit.is_durable(20)
    with pytest.raises(ValueError, match="durable already"):
        commit.request(20, "d")


def test_a_sync_that_reaches_less_leaves_them_waiting() -> None:
    commit: GroupCommit[str] = GroupCommit()
    commit.request(10, "a")
    commit.begin()
    assert commit.complete(9) == []
    assert len(commit) == 1
    assert commit.begin() == 10


def test_a_failure_is_told_to_everybody_for_good() -> None:
    commit: GroupCommit[str] = GroupCommit()
    commit.request(10, "a")
    commit.begin()
    commit.request(5, "b")
    assert commit.fail(StorageError("disk on fire")) == ["b", "a"]
    assert len(commit) == 0
    with pytest.raises(StorageError, match="disk on fire"):
        commit.request(30, "c")


def test_a_truncation_tells_those_who_wait_for_what_is_gone() -> None:
    commit: GroupCommit[str] = GroupCommit(flushed_end_offset=8)
    for offset, waiter in ((10, "a"), (15, "b"), (12, "c")):
        commit.request(offset, waiter)
    assert commit.truncate(10) == ["c", "b"]
    assert commit.truncate(5) == ["a"]
    assert not commit.is_durable(8)
    assert commit.begin() is None


def test_flushed_never_goes_back_by_itself() -> None:
    commit: GroupCommit[str] = GroupCommit(flushed_end_offset=8)
    assert commit.complete(5) == []
    assert commit.flushed_end_offset == 8
