"""What the simulated world needs of one running node. A new Raft implementation is judged by implementing this."""

from collections.abc import Callable
from typing import Any, Literal

from kraftlog.testing.raft_sim.disk import LogItem

Outcome = Literal["ok", "no", "unknown"]
"""Of a proposed command: applied; surely not applied; nobody can tell."""

Command = int
State = list[tuple[int, Command]]
"""What a node has applied: (index, command) in order."""


def replica_name(nid: str, directory: int) -> str:
    """A node with its first disk is known by its own name, `n1`; with the next ones it is `n1#1`, `n1#2`, and so on: to the
    quorum these are other replicas (KIP-853)."""
    return f"{nid}#{directory}" if directory else nid


def node_of(replica: str) -> str:
    return replica.partition("#")[0]


class Engine:
    """One running node. It starts with its disk and nothing else, keeps on it what must not be lost, and never outlives
    the process: after a crash the world makes another one.

    A disk that cannot be trusted (`Disk.find_damage`) makes the constructor raise `DiskDamagedError`. The defaults below
    are those of a node that does nothing.
    """

    nid: str

    def tick(self) -> None: ...

    def receive(self, src: str, message: Any) -> None: ...

    def on_connected(self, peer: str) -> None: ...

    def on_disconnected(self, peer: str) -> None: ...

    def propose(self, command: Command, answer: Callable[[Outcome], None]) -> None: ...

    def read(self, answer: Callable[[frozenset[Command]], None]) -> None:
        """A linearizable read; no answer if the node cannot give one."""

    def compact(self) -> None: ...

    def transfer(self, peer: str) -> None: ...

    def change_voter(self, operation: str, replica: str) -> None:
        """operation: add or remove; see `replica_name`."""

    def forget(self, peer: str) -> None:
        """`peer`, who observed, has gone."""

    term: int = 0
    is_leader: bool = False
    commit_index: int = -1
    applied_index: int = -1
    first_index: int = 0
    """Lowest index that the log may still hold an entry for."""
    last_index: int = -1
    leader_hint: str | None = None
    """Where to send proposals; None for engines that forward them."""

    def render(self, message: Any) -> str:
        """One message as words of a trace, the same in every process."""
        return str(message)

    def entries(self, after: int, through: int) -> list[LogItem]:
        """The entries of its log with an index in (after, through]."""
        return []

    def state(self) -> State:
        return []

    def voters(self) -> frozenset[str] | None:
        """The replicas with a vote, as far as this node's log says. None: the world's first nodes."""
        return None
