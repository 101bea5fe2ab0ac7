"""Who is in sync, and what that means for the high watermark: the rules of the in-sync replicas, one by one."""

from dataclasses import dataclass

import pytest

from kraftlog.replication.in_sync import InSync, IsrProposal, ReplicaEnds

ME, OTHER, THIRD = 1, 2, 3
LAG_MS = 10_000.0


@dataclass(frozen=True, slots=True)
class Broker:
    broker_epoch: int
    is_fenced: bool = False
    in_controlled_shutdown: bool = False


BROKERS = {ME: Broker(11), OTHER: Broker(12), THIRD: Broker(13)}


def in_sync(*committed: int, now_ms: float = 0.0) -> InSync:
    found = InSync(ME, (ME, OTHER, THIRD), now_ms)
    found.commit(committed or (ME, OTHER, THIRD), 5)
    return found


def report(of: InSync, replica: int, end: int, *, flushed: int | None = None, leader_end: int, now_ms: float) -> None:
    ends = ReplicaEnds(end, end if flushed is None else flushed)
    of.on_report(replica, ends, BROKERS[replica].broker_epoch, leader_end=leader_end, flushed=True, now_ms=now_ms)


def propose(
    of: InSync,
    *,
    leader_end: int,
    high_watermark: int = 0,
    epoch_start: int = 0,
    now_ms: float = 0.0,
    brokers: dict[int, Broker] = BROKERS,
    is_recovering: bool = False,
    end_to_flush: int | None = None,
    leader_start: int = 0,
) -> IsrProposal | None:
    return of.proposal(
        partition_epoch=5,
        leader_start=leader_start,
        leader_end=leader_end,
        high_watermark=high_watermark,
        epoch_start_offset=epoch_start,
        flushed=True,
        is_recovering=is_recovering,
        max_lag_ms=LAG_MS,
        now_ms=now_ms,
        brokers=brokers,
        end_to_flush=end_to_flush,
    )


def members(proposal: IsrProposal | None) -> set[int] | None:
    return None if proposal is None else {replica for replica, _ in proposal.in_sync_replicas}


def test_a_follower_that_reports_nothing_leaves_when_the_lag_is_over() -> None:
    """Not at the bound, but beyond it."""
    state = in_sync()
    report(state, OTHER, 10, leader_end=10, now_ms=5_000)
    report(state, THIRD, 10, leader_end=10, now_ms=5_000)
    state.on_append(10, flushed=True, now_ms=6_000)
    report(state, OTHER, 11, leader_end=11, now_ms=6_010)
    assert propose(state, leader_end=11, now_ms=16_000) is None
    assert members(propose(state, leader_end=11, now_ms=16_001)) == {ME, OTHER}


def test_an_idle_partition_keeps_its_replicas() -> None:
    """S-case: nobody has anything to say for an hour; then one record comes, and everybody has their time for it."""
    state = in_sync()
    report(state, OTHER, 10, leader_end=10, now_ms=0)
    report(state, THIRD, 10, leader_end=10, now_ms=0)
    assert propose(state, leader_end=10, now_ms=3_600_000) is None
    state.on_append(10, flushed=True, now_ms=3_600_000)
    assert propose(state, leader_end=11, now_ms=3_609_999) is None
    assert members(propose(state, leader_end=11, now_ms=3_610_001)) == {ME}


def test_a_follower_that_keeps_pace_under_load_stays() -> None:
    """It is never level, but always has what there was at its last report (KIP-16)."""
    state = in_sync(ME, OTHER)
    end = 0
    for now_ms in range(0, 60_000, 100):
        report(state, OTHER, end, leader_end=end + 50, now_ms=now_ms)
        end += 50
    assert propose(state, leader_end=end + 50, now_ms=60_000) is None


def test_a_follower_whose_disk_hangs_leaves_though_it_has_the_records() -> None:
    """With flush.policy=ack it counts with what it has on disk, or the high watermark would stand for ever."""
    state = in_sync(ME, OTHER)
    report(state, OTHER, 10, leader_end=10, now_ms=0)
    state.on_append(10, flushed=True, now_ms=1)
    for now_ms in range(1_000, 20_000, 1_000):
        report(state, OTHER, 20, flushed=10, leader_end=20, now_ms=now_ms)
    assert members(propose(state, leader_end=20, now_ms=20_000)) == {ME}


@pytest.mark.parametrize(
    ("end", "flushed", "may_enter"), [(10, 10, True), (9, 9, False), (30, 9, False), (30, 10, True), (10, 9, False)]
)
def test_entry_takes_the_high_watermark_on_disk(end: int, flushed: int, may_enter: bool) -> None:
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    report(state, THIRD, end, flushed=flushed, leader_end=30, now_ms=0)
    expected = {ME, OTHER, THIRD} if may_enter else None
    assert members(propose(state, leader_end=30, high_watermark=10)) == expected


def test_entry_takes_the_start_of_the_leaders_log() -> None:
    """Else what was deleted on request would be back with the next leader; those in the set do not leave for it."""
    state = in_sync(ME, OTHER)
    for start, members_then in ((6, None), (7, {ME, OTHER, THIRD})):
        for replica in (OTHER, THIRD):
            ends = ReplicaEnds(10, 10, start if replica == THIRD else 0)
            epoch = BROKERS[replica].broker_epoch
            state.on_report(replica, ends, epoch, leader_end=10, flushed=True, now_ms=1)
        assert state.start(7) == 0, "the lowest of those in sync"
        assert members(propose(state, leader_start=7, leader_end=10, now_ms=1)) == members_then


def test_entry_takes_the_start_of_the_leader_epoch() -> None:
    """A new leader's high watermark may be old: what was acknowledged before is below the start of its epoch."""
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    report(state, THIRD, 19, leader_end=30, now_ms=0)
    assert propose(state, leader_end=30, high_watermark=10, epoch_start=20) is None
    report(state, THIRD, 20, leader_end=30, now_ms=0)
    assert members(propose(state, leader_end=30, high_watermark=10, epoch_start=20)) == {ME, OTHER, THIRD}


@pytest.mark.parametrize(
    "broker", [Broker(13, is_fenced=True), Broker(13, in_controlled_shutdown=True), Broker(14), None]
)
def test_nobody_enters_that_the_controller_would_refuse(broker: Broker | None) -> None:
    """Fenced, about to stop, another process than the one that reported, unknown (KIP-841, 903)."""
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    report(state, THIRD, 30, leader_end=30, now_ms=0)
    brokers = {replica: known for replica, known in {**BROKERS, THIRD: broker}.items() if known is not None}
    assert propose(state, leader_end=30, brokers=brokers) is None


def test_a_restarted_follower_counts_with_what_it_has_now() -> None:
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    state.on_report(OTHER, ReplicaEnds(7, 7), 99, leader_end=30, flushed=True, now_ms=1)
    assert state.end(30, flushed=True) == 7


def test_both_sets_hold_while_a_change_is_under_way() -> None:
    """The maximal ISR: who may be in it by now holds the high watermark back, and nothing else is asked for."""
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    report(state, THIRD, 10, leader_end=30, now_ms=0)
    proposal = propose(state, leader_end=30, high_watermark=10)
    assert members(proposal) == {ME, OTHER, THIRD}
    assert state.end(30, flushed=True) == 10
    assert propose(state, leader_end=30, high_watermark=10) is None
    state.commit((ME, OTHER), 5)  # metadata that are not newer decide nothing
    assert state.pending is proposal
    state.commit((ME, OTHER, THIRD), 6)
    assert state.pending is None
    assert state.end(30, flushed=True) == 10


def test_who_is_to_leave_holds_the_high_watermark_back_until_it_has_left() -> None:
    state = in_sync(ME, OTHER)
    report(state, OTHER, 10, leader_end=10, now_ms=0)
    state.on_append(10, flushed=True, now_ms=0)
    assert members(propose(state, leader_end=20, now_ms=20_000)) == {ME}
    assert state.end(20, flushed=True) == 10
    state.commit((ME,), 6)
    assert state.end(20, flushed=True) == 20


def test_a_refusal_is_for_one_proposal() -> None:
    state = in_sync(ME, OTHER)
    report(state, OTHER, 30, leader_end=30, now_ms=0)
    report(state, THIRD, 30, leader_end=30, now_ms=0)
    first = propose(state, leader_end=30)
    assert first is not None
    assert state.refuse(first)
    second = propose(state, leader_end=30)
    assert second is not None
    assert not state.refuse(first)
    assert state.pending is second


def test_an_unclean_leader_says_that_it_is_ready() -> None:
    """KIP-704: even where the set stays as it is."""
    state = in_sync(ME)
    assert propose(state, leader_end=30) is None
    assert members(propose(state, leader_end=30, is_recovering=True)) == {ME}


def test_a_replica_that_was_added_has_its_time() -> None:
    """KIP-455: it is not in the ISR, and reports of strangers change nothing."""
    state = InSync(ME, (ME, OTHER), 0.0)
    state.commit((ME, OTHER), 5)
    assert not state.on_report(THIRD, ReplicaEnds(5, 5), 13, leader_end=5, flushed=True, now_ms=0)
    state.set_replicas((ME, OTHER, THIRD), 1_000.0)
    assert state.on_report(THIRD, ReplicaEnds(5, 5), 13, leader_end=5, flushed=True, now_ms=0)
    report(state, OTHER, 5, leader_end=5, now_ms=0)
    assert members(propose(state, leader_end=5, high_watermark=5)) == {ME, OTHER, THIRD}


def test_leader_says_that_all_is_flushed_when_each_of_the_isr_has() -> None:
    """After a switch to flush.policy=ack: through the leader's end of that moment, on the disk."""
    partition = in_sync()
    report(partition, OTHER, 10, leader_end=10, now_ms=0)
    report(partition, THIRD, 10, flushed=9, leader_end=10, now_ms=0)
    assert propose(partition, leader_end=10, end_to_flush=10) is None
    report(partition, THIRD, 10, leader_end=10, now_ms=0)
    assert propose(partition, leader_end=10) is None
    proposal = propose(partition, leader_end=10, end_to_flush=10)
    assert proposal is not None
    assert proposal.has_flushed
    assert members(proposal) == {ME, OTHER, THIRD}


def test_what_the_process_before_a_restart_has_flushed_says_nothing() -> None:
    """Its successor may have started with another disk."""
    partition = in_sync()
    for replica in (OTHER, THIRD):
        report(partition, replica, 10, leader_end=10, now_ms=0)
    restarted = {**BROKERS, THIRD: Broker(99)}
    assert propose(partition, leader_end=10, end_to_flush=10, brokers=restarted) is None


def test_a_change_of_the_isr_comes_first_and_a_refusal_is_not_asked_for_again() -> None:
    """One thing at a time; whatever the controller may see otherwise, a newer partition epoch will tell."""
    partition = in_sync(ME, OTHER)
    for replica in (OTHER, THIRD):
        report(partition, replica, 10, leader_end=10, now_ms=0)
    entry = propose(partition, leader_end=10, end_to_flush=10)
    assert entry is not None
    assert not entry.has_flushed
    partition.commit((ME, OTHER, THIRD), 6)
    claim = propose(partition, leader_end=10, end_to_flush=10)
    assert claim is not None
    assert claim.has_flushed
    partition.refuse(claim)
    assert propose(partition, leader_end=10, end_to_flush=10) is None
