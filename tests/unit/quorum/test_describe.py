"""When a replica was heard, and when it last had everything (KIP-836)."""

from kraftlog.kraft.raft import ReplicaKey
from kraftlog.server.quorum.describe import UNKNOWN, FetchTimes

KEY = ReplicaKey(2)


def test_replica_that_has_all_is_caught_up_now() -> None:
    times = FetchTimes()
    assert times.of(KEY) == (UNKNOWN, UNKNOWN)
    times.heard(KEY, replica_end=10, leader_end=10, now_ms=100)
    assert times.of(KEY) == (100, 100)


def test_replica_under_steady_load_is_caught_up_to_its_last_fetch() -> None:
    """It never has all, since more is written meanwhile, but always what there was when it was last heard."""
    times = FetchTimes()
    times.heard(KEY, replica_end=5, leader_end=10, now_ms=100)
    assert times.of(KEY) == (100, UNKNOWN)
    times.heard(KEY, replica_end=10, leader_end=15, now_ms=200)
    assert times.of(KEY) == (200, 100)
    times.heard(KEY, replica_end=14, leader_end=20, now_ms=300)
    assert times.of(KEY) == (300, 100), "one short of what there was at 200"


def test_replicas_that_are_not_fed_any_more_are_forgotten() -> None:
    times = FetchTimes()
    times.heard(KEY, replica_end=10, leader_end=10, now_ms=100)
    times.keep({KEY})
    assert times.of(KEY) == (100, 100)
    times.keep(set())
    assert times.of(KEY) == (UNKNOWN, UNKNOWN)
