"""The faults of the quorum's simulator do what they are named for: a fault that does nothing proves nothing."""

from random import Random

import pytest

from kraftlog.kraft.raft import AppendRequest
from kraftlog.testing.raft_sim import Lab
from kraftlog.testing.raft_sim.disk import DAMAGED, Crash, Disk, LogItem, is_damaged
from kraftlog.testing.raft_sim.lab import DATAGRAMS, LOSSY, QUIET


def disk_with(*offsets: int, flushed_end: int = -1) -> Disk:
    """A log with its marker and these entries, all synced."""
    disk = Disk()
    for offset in (-1, *offsets):
        disk.log_add(LogItem(offset, 1, b"%d" % offset))
    disk.sync()
    disk.record_flushed_end(flushed_end)
    return disk


def offsets(disk: Disk) -> list[int]:
    return [item.offset for item in disk.log.current[1:]]


class TestDisk:
    def test_a_power_cut_keeps_what_was_synced_and_a_prefix_of_the_rest(self) -> None:
        left = set()
        for seed in range(50):
            disk = disk_with(0, 1)
            for offset in (2, 3):
                disk.log_add(LogItem(offset, 1, b""))
            disk.crash(is_lossy=True, random=Random(seed))
            left.add(tuple(offsets(disk)))
        assert left == {(0, 1), (0, 1, 2), (0, 1, 2, 3)}

    def test_a_kill_loses_nothing(self) -> None:
        disk = disk_with(0)
        disk.log_add(LogItem(1, 1, b""))
        disk.crash(is_lossy=False, random=Random(1))
        assert offsets(disk) == [0, 1]

    def test_a_torn_entry_is_cut_by_recovery(self) -> None:
        torn = 0
        for seed in range(20):
            disk = disk_with(0)
            disk.log_add(LogItem(1, 1, b""))
            disk.crash(is_lossy=True, random=Random(seed), torn=1.0)
            torn += is_damaged(disk.log.current[-1])
            assert disk.find_damage() is None
            assert not is_damaged(disk.log.current[-1])
            assert offsets(disk) in ([0], [0, 1])
        assert torn > 5

    @pytest.mark.parametrize("bad", [0, 1, 2])
    def test_damage_before_the_end_is_no_torn_tail(self, bad: int) -> None:
        """A sound entry follows, or the flushed end is recorded behind it."""
        disk = disk_with(0, 1, 2, flushed_end=2)
        disk.log.spoil([item._replace(payload=DAMAGED) if item.offset == bad else item for item in disk.log.current])
        assert disk.find_damage() == f"log at {bad}"
        assert offsets(disk) == [0, 1, 2], "nothing is cut"

    def test_bits_flip_in_every_file_and_never_in_a_tail_that_may_be_torn(self) -> None:
        found = set()
        for part in range(100):
            disk = disk_with(0, 1, 2, flushed_end=1)
            disk.meta_write(term=1, vote=None)
            disk.file_write("snapshot", b"state")
            disk.file("snapshot").sync()
            disk.sync()
            found.add(disk.flip_bits(part / 100))
            assert disk.find_damage() in found
        assert found == {"log at 0", "log at 1", "snapshot", "meta"}

    def test_a_planned_crash_comes_between_two_operations(self) -> None:
        disk = disk_with(0)
        disk.operations_left = 1
        disk.meta_write(term=1)
        with pytest.raises(Crash):
            disk.meta_write(term=2)
        assert disk.meta.current["term"] == 1
        assert disk.is_dead


class TestWorld:
    def test_a_lost_voter_gets_its_vote_again_as_another_replica(self) -> None:
        lab = Lab(mode=LOSSY)
        leader = lab.elect("n0")
        lost, kept = lab.others(leader)
        lab.put(leader, 3, 6)
        lab.go(3)
        lab.on_lost_disk(lost, 2)
        assert not lab.can_lose(kept), "one of three is all that they can bear"
        assert lab.go(60, lambda: f"{lost}#1" in (lab.hosts[leader].running.voters() or ()))
        assert lost not in (lab.hosts[leader].running.voters() or ())
        assert lab.end() is None
        assert lab.can_lose(kept)

    def test_a_voter_with_a_damaged_disk_refuses_to_start_and_comes_back_empty(self) -> None:
        lab = Lab(mode=LOSSY)
        leader = lab.elect("n0")
        lost = lab.others(leader)[0]
        lab.put(leader, 3, 6)
        lab.go(8)
        lab.on_damage(lost, 0.5, 1)
        assert lab.hosts[lost].damage is not None
        lab.go(2)
        assert (lab.hosts[lost].engine, lab.hosts[lost].directory) == (None, 1)
        assert lab.end() is None
        assert f"{lost}#1" in (lab.hosts[str(lab.leader())].running.voters() or ())

    def test_a_fast_clock_brings_the_election_forward(self) -> None:
        def steps_to_a_leader(rate: float) -> int:
            lab = Lab(mode=QUIET)
            for host in lab.hosts.values():
                host.rate = rate
            assert lab.go(200, lab.leader)
            return lab.step

        assert steps_to_a_leader(2.5) < steps_to_a_leader(1.0) < steps_to_a_leader(0.4)

    def test_a_doomed_leader_dies_within_its_first_messages(self) -> None:
        lab = Lab(mode=DATAGRAMS)
        lab.on_doom(2)
        assert lab.go(60, lambda: lab.checker.leaders)
        (leader,) = lab.checker.leaders[1]
        assert lab.go(3, lambda: lab.hosts[leader].engine is None)
        appends = [message for src, _, message in lab.sent if src == leader and isinstance(message, AppendRequest)]
        assert len(appends) == 2 + 2 + 1, "two with the election, two more, and one that does not leave"
        assert lab.end() is None
