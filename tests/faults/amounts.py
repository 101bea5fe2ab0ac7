"""How often each fault strikes three replicating nodes in `make test-deep`, and which test sees to it.

`FAULTS` says how much of a fault is wanted in one run, `Kind` what of it there is. A test strikes `Kind.times` times, and its
`Run.finish` fails unless so many faults of the kind have taken effect. `test_amounts` holds the sums against what is wanted,
and docs/testing.md against both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    wanted: int
    """In one run of `make test-deep`."""


FAULTS = {
    "F-1": Fault("kill -9", 60),
    "F-2": Fault("SIGSTOP, then SIGCONT after 0.2 to 3 session time-outs", 30),
    "F-3": Fault("power loss: what was not synced is gone", 60),
    "F-7": Fault("EIO", 3),
    "F-8": Fault("full disk, then space again", 4),
    "F-9": Fault("slow disk", 2),
    "F-10": Fault("jump of the wall clock", 6),
    "F-11": Fault("cut of the network", 20),
    "F-12": Fault("loss of frames, narrow links", 4),
    "F-13": Fault("frames late, out of order, twice", 6),
    "F-14": Fault("what operators do", 11),
    "F-15": Fault("faults at the same time", 8),
}

_PROCESSES = "test_replication_processes.py"
_NETWORK = "test_replication_network.py"
_DISKS = "test_replication_disks.py"
_CALLS = "test_replication_calls.py"


class Kind(Enum):
    """The fault, what is done, how often in one run of the test, which test, and how many runs of it there are."""

    KILL_ONE = ("F-1", "a node that leads", 20, _PROCESSES, "test_kills_of_a_leader")
    KILL_MAJORITY = ("F-1", "two nodes at once", 20, _PROCESSES, "test_kills_of_a_majority")
    KILL_ALL = ("F-1", "all three nodes at once", 20, _PROCESSES, "test_kills_of_all")
    PAUSE = ("F-2", "each node in turn, for 0.2 to 3 session time-outs", 18, _PROCESSES, "test_pauses")
    PAUSE_LEADER = ("F-2", "a node that leads, until others do", 6, _PROCESSES, "test_pauses_of_a_leader")
    PAUSE_ALL = ("F-2", "all three nodes at once, for 0.2 to 3 session time-outs", 6, _PROCESSES, "test_pauses_of_all")
    POWER_ONE_FLUSHED = (
        "F-3",
        "of a node that leads, the journal written",
        10,
        _DISKS,
        "test_power_that_one_node_loses",
    )
    POWER_ONE_DROPPED = ("F-3", "of a node that leads, the journal lost", 10, _DISKS, "test_power_that_one_node_loses")
    POWER_ALL_FLUSHED = ("F-3", "of all nodes, the journal written", 15, _DISKS, "test_power_that_all_nodes_lose")
    POWER_ALL_DROPPED = ("F-3", "of all nodes, the journal lost", 15, _DISKS, "test_power_that_all_nodes_lose")
    POWER_INTERVAL_FLUSHED = (
        "F-3",
        "of a node that leads with flush.policy=interval, the journal written",
        5,
        _DISKS,
        "test_power_that_one_node_loses_before_its_interval_is_over",
    )
    POWER_INTERVAL_DROPPED = (
        "F-3",
        "of a node that leads with flush.policy=interval, the journal lost",
        5,
        _DISKS,
        "test_power_that_one_node_loses_before_its_interval_is_over",
    )
    EIO = ("F-7", "from fdatasync, pwritev, pread of a node that leads", 1, _CALLS, "test_a_disk_that_fails", 3)
    FULL_LEADER = ("F-8", "of a node that leads and follows", 1, _DISKS, "test_a_full_disk")
    FULL_CONTROLLER = ("F-8", "of the leader of the quorum", 1, _DISKS, "test_a_full_disk_of_the_controller")
    FULL_RESTART = ("F-8", "of a node that is killed and started on it", 1, _DISKS, "test_a_start_on_a_full_disk")
    FULL_MAJORITY = ("F-8", "of two nodes", 1, _DISKS, "test_two_full_disks")
    SLOW_SYNC = ("F-9", "50 ms and 5 s for a sync, of a node that leads", 1, _CALLS, "test_a_slow_disk", 2)
    CLOCK_JUMP = (
        "F-10",
        "one hour and ten years, there and back; to and fro; another one on each node",
        1,
        _CALLS,
        "test_a_wall_clock_that_jumps",
        6,
    )
    CUT_OFF = ("F-11", "a node that leads and all others", 4, _NETWORK, "test_leaders_that_are_cut_off")
    CUT_DEAF = ("F-11", "a node that leads does not hear the others", 3, _NETWORK, "test_leaders_that_do_not_hear")
    CUT_MUTE = ("F-11", "a node that leads is not heard", 3, _NETWORK, "test_leaders_that_are_not_heard")
    CUT_FROM_NODES = (
        "F-11",
        "a node that leads and the other nodes; clients reach it",
        3,
        _NETWORK,
        "test_leaders_that_only_clients_reach",
    )
    CUT_RING = (
        "F-11",
        "two nodes from each other; each has a majority",
        4,
        _NETWORK,
        "test_two_nodes_that_do_not_reach_each_other",
    )
    CUT_CLIENTS = ("F-11", "the clients and a node that leads", 3, _NETWORK, "test_clients_that_do_not_reach_a_leader")
    LOSS = ("F-12", "1, 10 and 30 % of all frames lost", 1, _NETWORK, "test_frames_that_are_lost", 3)
    NARROW = ("F-12", "50 kB/s on each link", 1, _NETWORK, "test_narrow_links")
    DISORDER = (
        "F-13",
        "late, at different times, held back, twice, all of that, one node far away",
        1,
        _NETWORK,
        "test_frames_in_disorder",
        6,
    )
    ROLLING_RESTART = ("F-14", "a restart node by node", 1, _PROCESSES, "test_a_rolling_restart")
    MOVE = ("F-14", "replicas move to another of four nodes", 10, _PROCESSES, "test_moves")
    CLEAN_STOP = ("F-14", "SIGTERM to a node that leads", 3, _PROCESSES, "test_stops_of_a_leader")
    ELECTION = ("F-14", "other leaders, of a partition and of the quorum, at a word", 6, _PROCESSES, "test_elections")
    EPISODE = (
        "F-15",
        "20 s of kill -9, SIGSTOP, SIGTERM, cuts and clocks, two or three at a time",
        1,
        "test_replication_episodes.py",
        "test_an_episode_of_faults_at_the_same_time",
        8,
    )

    def __init__(self, fault: str, what: str, times: int, file: str, test: str, runs: int = 1) -> None:
        self.fault = fault
        self.what = what
        self.times = times
        self.file = file
        self.test = test
        self.runs = runs

    @property
    def amount(self) -> int:
        return self.times * self.runs


def total(fault: str) -> int:
    return sum(kind.amount for kind in Kind if kind.fault == fault)


def markdown() -> Iterator[str]:
    """The lines of the table in docs/testing.md."""
    yield "| fault | of what, how | times | test in tests/faults |"
    yield "|---|---|---|---|"
    for name, fault in FAULTS.items():
        yield f"| **{name}** {fault.what} | at least {fault.wanted} | **{total(name)}** | |"
        for kind in Kind:
            if kind.fault == name:
                yield f"| | {kind.what} | {kind.amount} | `{kind.file.removesuffix('.py')}`: `{kind.test}` |"


if __name__ == "__main__":
    print("\n".join(markdown()))
