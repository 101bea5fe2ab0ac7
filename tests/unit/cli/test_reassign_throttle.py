"""Throttles of `kraftctl partition reassign`: rates as people write them, and what is said while a move goes on."""

from typing import Any, cast

import pytest

from kraftlog.proto.errors import RequestTimedOutError
from kraftlog.sdk.admin import Admin
from kraftlog.sdk.cli.byte_rates import byte_rate, shown_bytes
from kraftlog.sdk.cli.progress import PLAIN_INTERVAL_S, ProgressBar
from kraftlog.sdk.cli.reassign_throttle import LOOK_INTERVAL_S, Backlog, rates_of
from kraftlog.sdk.types import (
    LogDescription,
    LogDirDescription,
    PartitionReassignment,
    ReplicationThrottle,
    TopicPartition,
)

PARTITION = TopicPartition("orders", 0)
ONGOING = {
    PARTITION: PartitionReassignment(replicas=(1, 2), adding_replicas=(2,), removing_replicas=(), in_sync_replicas=(1,))
}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1", 1),
        ("50000000", 50_000_000),
        ("50MB", 50_000_000),
        (" 50 mb/s ", 50_000_000),
        ("1.5k", 1_500),
        ("2KiB", 2_048),
        ("1G", 1_000_000_000),
        ("1Gi/s", 1 << 30),
        ("10B", 10),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert byte_rate(text) == rate


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (50_000_000, "50.0 MB"), (123e9, "123 GB"), (5e15, "5000 TB")],
)
def test_bytes_as_they_are_shown(count: float, text: str) -> None:
    assert shown_bytes(count) == text


class FakeAdmin:
    """Broker 1 has 1,000 records of 1,000 bytes of the partition, broker 2 some."""

    def __init__(self) -> None:
        self.held: int | None = None
        self.end = 1_000
        self.looks = 0
        self.is_down = False

    def describe_log_dirs(self, *, topics: list[str]) -> list[LogDirDescription]:
        assert topics == ["orders"]
        self.looks += 1
        if self.is_down:
            raise RequestTimedOutError("broker 2 does not answer")
        return [log_dir(1, self.end), *([] if self.held is None else [log_dir(2, self.held)])]


def log_dir(node_id: int, end: int) -> LogDirDescription:
    log = LogDescription(
        topic="orders",
        partition=0,
        size_bytes=1_000 * end,
        segments=1,
        log_start_offset=0,
        log_end_offset=end,
        flushed_end_offset=end,
        recovery_point=0,
        cleanup_policy=("delete",),
        cleaned_to_offset=0,
        problem="",
        uncleanable_reason="",
        uncleanable_since_ms=-1,
    )
    return LogDirDescription(node_id=node_id, path="/data", error="", size_bytes=log.size_bytes, logs=(log,))


def test_a_move_that_gets_no_nearer_to_its_end_says_so() -> None:
    """The throttle lets through no more than the producers write."""
    admin, seconds = FakeAdmin(), [0.0]
    backlog = Backlog(cast(Admin, admin), 50_000, lambda: seconds[0])
    assert backlog.look(ONGOING) == "throttled to 50.0 kB/s, 1.0 MB to copy"
    assert (backlog.look(ONGOING), admin.looks) == ("throttled to 50.0 kB/s, 1.0 MB to copy", 1)

    def later(held: int, end: int = 1_000) -> str:
        seconds[0] += LOOK_INTERVAL_S
        admin.held, admin.end = held, end
        return backlog.look(ONGOING)

    assert later(250) == "throttled to 50.0 kB/s, 750 kB to copy"
    assert "does not become less: as much is written as the throttle lets through" in later(500, 1_250)
    assert "does not become less" in later(500, 1_500)
    assert later(1_000, 1_500) == "throttled to 50.0 kB/s, 500 kB to copy"
    admin.is_down = True
    assert later(1_200, 1_500) == "throttled to 50.0 kB/s, 500 kB to copy"
    assert backlog.look({}) == "throttled to 50.0 kB/s, 500 kB to copy"


def test_the_progress_line_has_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.0]
    monkeypatch.setattr("kraftlog.sdk.cli.progress.time.monotonic", lambda: seconds[0])
    with ProgressBar("reassigning", total=4, unit="partitions") as bar:
        bar.remark = "throttled to 50.0 MB/s"
        seconds[0] += PLAIN_INTERVAL_S
        bar.update(1, 1)
    assert capsys.readouterr().err == "reassigning: 1 partitions (25 %), 0/s, throttled to 50.0 MB/s\n"


def test_the_rate_of_a_move_is_the_lowest_of_its_brokers() -> None:
    lists: dict[str, Any] = {"leader_replicas": {"orders": ("0:1",)}, "follower_replicas": {"orders": ("0:2",)}}
    throttle = ReplicationThrottle(leader_rates={1: 7, 2: 1}, follower_rates={1: 2, 2: 5}, **lists)
    assert rates_of(throttle, ONGOING) == {PARTITION: 5}
    assert rates_of(ReplicationThrottle(), ONGOING) == {PARTITION: None}
