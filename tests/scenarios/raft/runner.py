"""Scenario files for the Raft core: commands, a line of dashes, and what they bring about.

    python -m tests.scenarios.raft.runner --rewrite     write the outcomes into the files; explain each changed line

Commands, one a line; blocks end with `----` and the outcome, up to a blank line. `#` starts a comment.

    add-nodes 3 [observers=(4)]     voters 1, 2, 3
    elect 1                         an election to its end, without the messages
    campaign 1                      start an election now
    tick 1 [count=10]
    propose 1 x [records=3]         one batch
    propose-many 1 x count=20
    deliver [drop=(3)]              what is under way now; its answers stay under way
    stabilize [drop=(3)]            until nothing is under way
    lose                            all that is under way
    cut 3 / heal                    lose every message from and to these nodes
    restart 2                       with what is on its disk
    change-voter 1 add=4 | remove=2
    observe 1 4 / forget 1 4        node 4 asks node 1 for the log; it has gone
    read 1 name
    transfer 1 2
    compact 1                       snapshot of what is applied
    log                             every node's log: offset/term, in front of | what is committed
    status

Every node writes and syncs at once, so what it sends is durable. Entries read `offset/term`; a leader change is `L`.
"""

import random
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    BusyError,
    Entry,
    EntryKind,
    HardState,
    Message,
    NotLeaderError,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    Role,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    Voters,
)

FOLDER = Path(__file__).parent
CONFIG = RaftConfig(
    election_ticks=10, heartbeat_ticks=2, max_append_bytes=8, max_inflight_bytes=24, max_snapshot_chunk_bytes=16
)
MAX_ROUNDS = 100


class Control:
    """Control entries are their own names."""

    def leader_change(self, offset: int, term: int, leader: ReplicaKey, voters: Voters) -> bytes:
        return b"L"

    def voters(self, offset: int, term: int, voters: Voters) -> bytes:
        return b"voters"


class Node:
    """A core with its disk, and what it says about itself."""

    def __init__(self, number: int, first_voters: Voters, say: Callable[[str], None]) -> None:
        self.number = number
        self._say = say
        self.hard_state = HardState(0, None)
        self.snapshot = Snapshot(NO_OFFSET, 0, first_voters, b"")
        self.entries: list[Entry] = []
        self.applied: list[str] = []
        self.start()

    def start(self) -> None:
        self.core = RaftCore(
            ReplicaKey(self.number),
            config=CONFIG,
            random=random.Random(self.number),
            control=Control(),
            hard_state=self.hard_state,
            snapshot=self.snapshot,
            entries=self.entries,
        )
        self.applied = self.snapshot.data.decode().split()
        self._seen = (Role.FOLLOWER, self.core.term, self.core.commit_offset, self.core.voters)

    def pump(self) -> list[Message]:
        messages: list[Message] = []
        self._watch()
        while self.core.has_ready():
            ready = self.core.ready()
            self._persist(ready)
            messages += [*ready.early_messages, *ready.messages]
            self._apply(ready)
            self.core.advance(ready)
            self._watch()
        return messages

    def _persist(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.snapshot is not None:
            self._say(f"{self.number} installed the snapshot through {ready.snapshot.last_offset}")
            self.snapshot, self.entries = ready.snapshot, []
        if ready.truncate_to is not None:
            self._say(f"{self.number} cut its log after {ready.truncate_to}")
            self.entries = [entry for entry in self.entries if entry.last_offset <= ready.truncate_to]
        self.entries += ready.entries

    def _apply(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self.applied = ready.snapshot.data.decode().split()
        self.applied += [entry.data.decode() for entry in ready.committed if entry.kind is EntryKind.DATA]
        for read in ready.reads:
            outcome = "is refused" if read.offset is None else f"sees everything through {read.offset}"
            self._say(f"{self.number} read {read.context} {outcome}")

    def _watch(self) -> None:
        core = self.core
        role, term, commit, voters = self._seen
        if (core.role, core.term) != (role, term):
            what = "became" if core.role is not role else "is"
            self._say(f"{self.number} {what} {core.role.value} at term {core.term}")
        if core.commit_offset != commit:
            self._say(f"{self.number} committed through {core.commit_offset}")
        if core.voters != voters:
            self._say(f"{self.number} has voters {_keys(core.voters)}")
        self._seen = (core.role, core.term, core.commit_offset, core.voters)


class Scenario:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._nodes: dict[int, Node] = {}
        self._under_way: list[Message] = []
        self._cut: set[int] = set()

    def run(self, commands: Iterable[str]) -> list[str]:
        """The outcome of one block."""
        self._lines = []
        for command in commands:
            name, *arguments = _words(command.split("#")[0])
            positional = [word for word in arguments if "=" not in word]
            options = dict(word.split("=", 1) for word in arguments if "=" in word)
            try:
                getattr(self, "do_" + name.replace("-", "_"))(*positional, **options)
            except NotLeaderError as error:
                self._say(f"refused: {error}")
            except BusyError as error:
                self._say(f"busy: {error}")
        return self._lines or ["ok"]

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _pump(self, *nodes: Node) -> None:
        for node in nodes:
            self._under_way += node.pump()

    def _node(self, number: str) -> Node:
        return self._nodes[int(number)]

    # --- commands -----------------------------------------------------------------------------------------------

    def do_add_nodes(self, count: str, observers: str = "()") -> None:
        voters = frozenset(ReplicaKey(number) for number in range(1, int(count) + 1))
        for number in [*range(1, int(count) + 1), *_numbers(observers)]:
            self._nodes[number] = Node(number, voters, self._say)

    def do_elect(self, number: str) -> None:
        said, self._lines = self._lines, []
        self.do_campaign(number)
        self.do_stabilize()
        core = self._node(number).core
        self._lines = said
        self._say(f"{number} is {core.role.value} at term {core.term}")

    def do_campaign(self, number: str) -> None:
        node = self._node(number)
        node.core.campaign()
        self._pump(node)

    def do_tick(self, number: str, count: str = "1") -> None:
        node = self._node(number)
        for _ in range(int(count)):
            node.core.tick()
            self._pump(node)

    def do_propose(self, number: str, data: str, records: str = "1") -> None:
        node = self._node(number)
        entry = node.core.propose(data.encode(), int(records))
        self._say(f"{number} appended {_entry(entry)}")
        self._pump(node)

    def do_propose_many(self, number: str, data: str, count: str) -> None:
        node = self._node(number)
        for index in range(int(count)):
            node.core.propose(f"{data}{index}".encode())
        self._pump(node)

    def do_deliver(self, drop: str = "()") -> None:
        now, self._under_way = self._under_way, []
        for message in now:
            self._deliver(message, self._cut | set(_numbers(drop)))

    def do_stabilize(self, drop: str = "()") -> None:
        for _ in range(MAX_ROUNDS):
            if not self._under_way:
                return
            self.do_deliver(drop)
        raise AssertionError("messages never end")

    def _deliver(self, message: Message, cut: set[int]) -> None:
        is_lost = bool({message.src.node_id, message.dst.node_id} & cut)
        self._say(_message(message) + ("  (lost)" if is_lost else ""))
        if not is_lost:
            node = self._nodes[message.dst.node_id]
            node.core.step(message)
            self._pump(node)

    def do_lose(self) -> None:
        self._under_way = []

    def do_cut(self, *numbers: str) -> None:
        self._cut |= set(map(int, numbers))

    def do_heal(self) -> None:
        self._cut = set()

    def do_restart(self, number: str) -> None:
        self._node(number).start()
        core = self._node(number).core
        self._say(f"{number} is {core.role.value} at term {core.term}, committed through {core.commit_offset}")

    def do_change_voter(self, number: str, add: str | None = None, remove: str | None = None) -> None:
        node = self._node(number)
        try:
            entry = node.core.change_voter(
                add=None if add is None else ReplicaKey(int(add)),
                remove=None if remove is None else ReplicaKey(int(remove)),
            )
            self._say("it is so already" if entry is None else f"{number} appended {_entry(entry)}")
        finally:
            self._pump(node)

    def do_observe(self, number: str, observer: str) -> None:
        node = self._node(number)
        node.core.observe(ReplicaKey(int(observer)))
        self._pump(node)

    def do_forget(self, number: str, observer: str) -> None:
        node = self._node(number)
        node.core.forget_observer(ReplicaKey(int(observer)))
        self._pump(node)

    def do_read(self, number: str, name: str) -> None:
        node = self._node(number)
        node.core.read_index(name)
        self._pump(node)

    def do_transfer(self, number: str, target: str) -> None:
        node = self._node(number)
        node.core.transfer(ReplicaKey(int(target)))
        self._pump(node)

    def do_compact(self, number: str) -> None:
        node = self._node(number)
        offset = node.core.applied_offset
        node.snapshot = node.core.compact(offset, " ".join(node.applied).encode())
        node.entries = [entry for entry in node.entries if entry.last_offset > offset]
        self._say(f"{number} has a snapshot through {offset}")

    def do_log(self) -> None:
        for number, node in sorted(self._nodes.items()):
            commit = node.core.commit_offset
            first = f"[{node.snapshot.last_offset}/{node.snapshot.term}] " if node.snapshot.last_offset >= 0 else ""
            committed = [_entry(entry) for entry in node.entries if entry.last_offset <= commit]
            rest = [_entry(entry) for entry in node.entries if entry.last_offset > commit]
            self._say(f"{number}: {first}{' '.join([*committed, '|', *rest])}")

    def do_status(self) -> None:
        for number, node in sorted(self._nodes.items()):
            core = node.core
            leader = "nobody" if core.leader is None else str(core.leader.node_id)
            applied = " ".join(node.applied) or "nothing"
            self._say(f"{number}: {core.role.value} at term {core.term}, follows {leader}, applied {applied}")


# --- texts ------------------------------------------------------------------------------------------------------


def _words(line: str) -> list[str]:
    return re.findall(r"\S*\([^)]*\)|\S+", line)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _keys(keys: Voters) -> str:
    return "(" + ",".join(str(key.node_id) for key in sorted(keys)) + ")"


def _entry(entry: Entry) -> str:
    data = "" if entry.kind is EntryKind.DATA else ":" + entry.data.decode()
    if entry.voters is not None:
        data += _keys(entry.voters)
    return f"{entry.last_offset}/{entry.term}{data or ':' + entry.data.decode()}"


def _message(message: Message) -> str:
    return f"{message.src.node_id} -> {message.dst.node_id} {_text(message)}"


def _text(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            forced = ", asked to" if message.is_forced else ""
            return f"{kind} for term {message.term}? has {message.last_offset}/{message.last_term}{forced}"
        case VoteResponse():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} {'granted' if message.is_granted else 'refused'} at term {message.term}"
        case AppendRequest():
            entries = " ".join(map(_entry, message.entries)) or "nothing"
            return (
                f"append after {message.prev_offset}/{message.prev_term}: {entries};"
                f" term {message.term}, committed {message.commit_offset}"
            )
        case AppendResponse():
            if message.is_accepted:
                return f"accepted through {message.match_offset}"
            return f"refused after {message.rejected_offset}, try after {message.match_offset}; term {message.term}"
        case SnapshotRequest():
            last = " (last)" if message.is_last else ""
            size = len(message.data)
            return (
                f"snapshot through {message.last_offset}/{message.last_term}: {size} bytes at {message.position}{last}"
            )
        case SnapshotResponse():
            return f"has {message.position} bytes of the snapshot through {message.last_offset}"
        case TimeoutNow():
            return f"campaign now; term {message.term}"


# --- files ------------------------------------------------------------------------------------------------------


def replay(text: str) -> str:
    """The file with the outcomes as they are."""
    scenario, out, commands = Scenario(), list[str](), list[str]()
    in_outcome = False
    for line in text.splitlines():
        if in_outcome:
            in_outcome = bool(line.strip())
            if in_outcome:
                continue
        if line.strip() == "----":
            out += [line, *scenario.run(commands)]
            commands, in_outcome = [], True
            continue
        if line.strip() and not line.startswith("#"):
            commands.append(line)
        out.append(line)
    return "\n".join(out).rstrip() + "\n"


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def main() -> None:
    for path in files():
        text = path.read_text()
        outcome = replay(text)
        if outcome != text:
            print("rewritten" if "--rewrite" in sys.argv else "differs:", path.name)
            if "--rewrite" in sys.argv:
                path.write_text(outcome)


if __name__ == "__main__":
    main()
