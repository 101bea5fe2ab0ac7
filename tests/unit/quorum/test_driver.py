"""The driver's one duty: effects in the order that `Ready` gives."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from kraftlog.kraft.image import EMPTY_IMAGE
from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Message,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    Snapshot,
    SnapshotRequest,
    VoteRequest,
    VoteResponse,
)
from kraftlog.kraft.snapshot import SnapshotContents
from kraftlog.proto.errors import StorageError
from kraftlog.server.quorum.driver import QuorumDriver
from kraftlog.testing.raft_sim.core_engine import PlainControl

T = TypeVar("T")
ME, LEADER, THIRD = ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)


class Recorder:
    """Storage, executor and callbacks that write down what happens, in which order and where."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.fails_at = ""

    def note(self, effect: str) -> None:
        self.effects.append(effect)
        if self.fails_at and effect.startswith(self.fails_at):
            raise StorageError("input/output error")

    def write_hard_state(self, hard_state: HardState) -> None:
        self.note(f"term {hard_state.term}")

    def install_snapshot(self, snapshot: Snapshot) -> SnapshotContents:
        self.note(f"install {snapshot.last_offset}")
        return SnapshotContents(0, snapshot.voters, {}, [], EMPTY_IMAGE)

    def truncate_to(self, last_offset: int) -> None:
        self.note(f"truncate to {last_offset}")

    def append(self, entries: Sequence[Entry]) -> None:
        self.note(f"append {[entry.last_offset for entry in entries]}")

    def flush(self) -> None:
        self.note("flush")

    async def run(self, work: Callable[[], T]) -> T:
        self.note("(off the loop)")
        await asyncio.sleep(0)
        result = work()
        await asyncio.sleep(0)
        return result

    def close(self) -> None:
        """Nothing runs outside of `run`."""

    def send(self, message: Message) -> None:
        self.note(f"send {type(message).__name__}")

    def load(self, snapshot: Snapshot, contents: SnapshotContents) -> None:
        self.note(f"load {snapshot.last_offset}")

    def apply(self, ready: Ready) -> None:
        self.note(f"apply {[entry.last_offset for entry in ready.committed]}")


def make_core(*voters: ReplicaKey) -> RaftCore:
    return RaftCore(
        ME,
        config=RaftConfig(),
        random=random.Random(1),
        control=PlainControl(),
        hard_state=HardState(0, None),
        snapshot=Snapshot(NO_OFFSET, 0, frozenset(voters), b""),
    )


def make_driver(core: RaftCore, recorder: Recorder) -> QuorumDriver:
    return QuorumDriver(
        core=core,
        storage=recorder,
        executor=recorder,
        gather=lambda: None,
        send=recorder.send,
        load=recorder.load,
        apply=recorder.apply,
    )


def append(term: int, prev: int, prev_term: int, *entries: Entry, commit: int = NO_OFFSET) -> AppendRequest:
    return AppendRequest(LEADER, ME, term, prev, prev_term, entries, commit, 1)


def entry(offset: int, term: int) -> Entry:
    return Entry(offset, term, EntryKind.DATA, b"x")


async def run_until_idle(driver: QuorumDriver) -> None:
    task = asyncio.ensure_future(driver.run())
    for _ in range(30):
        await asyncio.sleep(0)
    driver.stop()
    await task


async def test_follower_persists_and_syncs_before_it_answers_and_applies() -> None:
    """Term first and durable, then the entries, fsync, then the acknowledgement, then the state machine."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    core.step(append(3, NO_OFFSET, 0, entry(0, 3), entry(1, 3), commit=0))
    await run_until_idle(make_driver(core, recorder))
    assert recorder.effects == [
        "(off the loop)",
        "term 3",
        "append [0, 1]",
        "(off the loop)",
        "flush",
        "send AppendResponse",
        "apply [0]",
    ]


async def test_conflicting_tail_is_cut_before_the_new_entries_are_written() -> None:
    """Cut, append, fsync, then the answer that says that it matches."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    core.step(append(3, NO_OFFSET, 0, entry(0, 3), entry(1, 3)))
    driver = make_driver(core, recorder)
    await run_until_idle(driver)
    recorder.effects.clear()
    core.step(append(4, 0, 3, entry(1, 4), entry(2, 4)))
    await run_until_idle(make_driver(core, recorder))
    assert recorder.effects == [
        "(off the loop)",
        "term 4",
        "(off the loop)",
        "truncate to 0",
        "append [1, 2]",
        "(off the loop)",
        "flush",
        "send AppendResponse",
        "apply []",
    ]


async def test_received_snapshot_is_durable_before_it_is_answered_and_loaded() -> None:
    """In the place of the log, before the entries that follow it."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    core.step(append(3, NO_OFFSET, 0, entry(0, 3)))
    driver = make_driver(core, recorder)
    await run_until_idle(driver)
    recorder.effects.clear()
    core.step(SnapshotRequest(LEADER, ME, 4, 9, 3, frozenset({ME, LEADER}), 0, b"x", is_last=True, round=1))
    core.step(append(4, 9, 3, entry(10, 4), commit=10))
    await run_until_idle(make_driver(core, recorder))
    assert recorder.effects == [
        "(off the loop)",
        "term 4",
        "(off the loop)",
        "install 9",
        "append [10]",
        "(off the loop)",
        "flush",
        "send AppendResponse",
        "send AppendResponse",
        "load 9",
        "apply [10]",
    ]


async def test_jobs_run_between_readys() -> None:
    """Never while an effect is under way: both would write the log."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    driver = make_driver(core, recorder)

    async def job() -> None:
        recorder.note("job begins")
        await asyncio.sleep(0)
        recorder.note("job ends")

    core.step(append(3, NO_OFFSET, 0, entry(0, 3)))
    task = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    assert recorder.effects == ["(off the loop)"]
    driver.submit(job)
    core.step(append(3, 0, 3, entry(1, 3)))
    for _ in range(30):
        await asyncio.sleep(0)
    driver.stop()
    await task
    began = recorder.effects.index("job begins")
    assert recorder.effects[began - 1].startswith("apply")
    assert recorder.effects[began + 1] == "job ends"
    assert recorder.effects[began + 2 :].count("append [1]") == 1


async def test_failing_job_ends_the_driver() -> None:
    """As any effect."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    driver = make_driver(core, recorder)

    async def job() -> None:
        raise StorageError("input/output error")

    driver.submit(job)
    with pytest.raises(StorageError):
        await driver.run()


async def test_single_voter_commits_only_after_its_own_fsync() -> None:
    """The leader's own entry counts from `advance` on."""
    core, recorder = make_core(ME), Recorder()
    core.campaign()
    await run_until_idle(make_driver(core, recorder))
    assert recorder.effects[-4:] == ["(off the loop)", "flush", "apply []", "apply [0]"]


async def test_the_appends_of_a_leader_leave_before_its_own_fsync() -> None:
    """Raft thesis §10.2.1; its own copy counts only afterwards."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    await lead(core)
    assert core.commit_offset == 0
    core.propose(b"x")
    driver = make_driver(core, recorder)
    await run_until_idle(driver)
    assert recorder.effects == [
        *["append [1]", "send AppendRequest", "send AppendRequest", "(off the loop)", "flush", "apply []"]
    ]
    assert core.commit_offset == 0
    core.step(AppendResponse(THIRD, ME, core.term, is_accepted=True, match_offset=1))
    assert core.commit_offset == 1


async def test_what_a_majority_of_the_others_has_is_committed_and_not_applied_before_it_is_durable_here() -> None:
    """They may be faster than the leader's own disk, which then loses power: nothing here was ahead of it."""
    core = make_core(ME, LEADER, THIRD)
    await lead(core)
    core.propose(b"x")
    slow = core.ready()
    assert [message.dst for message in slow.early_messages] == [LEADER, THIRD]
    for follower in (LEADER, THIRD):
        core.step(AppendResponse(follower, ME, core.term, is_accepted=True, match_offset=1))
    assert core.commit_offset == 1
    assert slow.committed == ()
    core.advance(slow)
    assert [each.last_offset for each in core.ready().committed] == [1]


def test_a_new_leader_sends_nothing_before_its_term_is_durable() -> None:
    """Where one Ready holds both. It would be another leader of that term if it lost power and voted again."""
    core = make_core(ME, LEADER)
    core.campaign()
    core.step(VoteResponse(LEADER, ME, 1, is_pre_vote=True, is_granted=True))
    core.step(VoteResponse(LEADER, ME, 1, is_pre_vote=False, is_granted=True))
    ready = core.ready()
    assert core.is_leader
    assert ready.hard_state == HardState(1, ME)
    assert ready.early_messages == ()
    assert any(isinstance(message, AppendRequest) for message in ready.messages)


async def lead(core: RaftCore) -> None:
    """An election, and the commit of its first entry."""
    core.campaign()
    core.step(VoteResponse(LEADER, ME, 1, is_pre_vote=True, is_granted=True))
    await run_until_idle(make_driver(core, Recorder()))
    core.step(VoteResponse(LEADER, ME, 1, is_pre_vote=False, is_granted=True))
    await run_until_idle(make_driver(core, Recorder()))
    for follower in (LEADER, THIRD):
        core.step(AppendResponse(follower, ME, 1, is_accepted=True, match_offset=0))
    await run_until_idle(make_driver(core, Recorder()))


async def test_messages_that_need_no_disk_do_not_wait_for_it() -> None:
    """A refusal promises nothing."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    core.step(append(3, NO_OFFSET, 0))
    await run_until_idle(make_driver(core, recorder))
    recorder.effects.clear()
    core.step(append(3, 7, 3))
    await run_until_idle(make_driver(core, recorder))
    assert recorder.effects == ["send AppendResponse", "apply []"]


@pytest.mark.parametrize("effect", ["term", "append", "flush"])
async def test_failing_disk_ends_the_driver_before_anything_is_promised(effect: str) -> None:
    """No message and no commit after a failed write: nothing is retried into success."""
    core, recorder = make_core(ME, LEADER, THIRD), Recorder()
    recorder.fails_at = effect
    core.step(append(3, NO_OFFSET, 0, entry(0, 3)))
    with pytest.raises(StorageError):
        await make_driver(core, recorder).run()
    assert not [effect for effect in recorder.effects if effect.startswith(("send", "apply"))]


def test_entries_cut_while_they_are_written_do_not_count_as_durable() -> None:
    """During a slow fsync the tail is cut, and the very same entries come back from a third leader: the next Ready cuts
    the disk first, so it must write them again."""
    core = make_core(ME, LEADER, THIRD)
    core.step(append(2, NO_OFFSET, 0, entry(0, 2), entry(1, 2)))
    slow = core.ready()
    core.step(append(3, NO_OFFSET, 0, entry(0, 3)))
    core.step(append(4, NO_OFFSET, 0, entry(0, 2), entry(1, 2)))
    core.advance(slow)
    ready = core.ready()
    assert ready.truncate_to == NO_OFFSET
    assert [e.last_offset for e in ready.entries] == [0, 1]


def test_votes_are_durable_before_they_are_sent() -> None:
    """One Ready holds the vote and the hard state that must be persisted before it."""
    core = make_core(ME, LEADER, THIRD)
    core.step(VoteRequest(LEADER, ME, 5, NO_OFFSET, 0, is_pre_vote=False, is_forced=False))
    ready = core.ready()
    assert ready.hard_state == HardState(5, LEADER)
    assert ready.must_sync
    (answer,) = ready.messages
    assert isinstance(answer, VoteResponse)
    assert answer.is_granted
