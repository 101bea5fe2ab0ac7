"""Links between simulated nodes: FIFO connections that break and are dialled again, or datagrams."""

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kraftlog.testing.raft_sim.modes import Mode

Direction = tuple[str, str]
_Queued = tuple[int, Any]
"""(earliest step of delivery, message)"""

PATIENCE_STEPS = 12  # a blocked connection is taken for dead after that many steps


class Hosts(Protocol):
    """What the network asks of the nodes."""

    def is_up(self, nid: str) -> bool: ...

    def is_stalled(self, nid: str) -> bool: ...

    def deliver(self, src: str, dst: str, message: Any) -> None: ...

    def link_changed(self, nid: str, peer: str, is_up: bool) -> None: ...


@dataclass
class _Datagram:
    due: int
    src: str
    dst: str
    message: Any


class Network:
    def __init__(self, mode: Mode, random: Random, hosts: Hosts) -> None:
        self.mode = mode
        self.step = 0
        self._random = random
        self._hosts = hosts
        self.queues: dict[Direction, deque[_Queued]] = {}
        self._late: dict[Direction, deque[_Queued]] = {}
        """What old connections still hold; arrives after the new connection's messages."""
        self._datagrams: list[_Datagram] = []
        self._sent: list[tuple[str, str, Any]] = []
        """All datagrams so far, for `Mode.replay`."""
        self._up: dict[frozenset[str], bool] = {}
        self._redial: dict[frozenset[str], int] = {}
        self.blocked: set[Direction] = set()
        self._blocked_since: dict[Direction, int] = {}
        self.slow: dict[Direction, int] = {}
        """Direction -> extra steps."""

    # --- faults -------------------------------------------------------------------------------------------------

    def block(self, src: str, dst: str) -> None:
        self.blocked.add((src, dst))
        pair = (src, dst) if src < dst else (dst, src)
        self._blocked_since.setdefault(pair, self.step)

    def heal(self) -> None:
        self.blocked.clear()
        self._blocked_since.clear()

    def is_connected(self, a: str, b: str) -> bool:
        return self._up.get(frozenset((a, b)), False)

    def break_link(self, a: str, b: str, *, keeps_bytes: bool, redial_after: int) -> None:
        """A reset: what is in flight is lost, or arrives later than the next connection's messages."""
        for direction in ((a, b), (b, a)):
            queue = self.queues.pop(direction, None)
            if queue and keeps_bytes and self.mode.has_zombies:
                late = self.step + self._random.randint(2, 15)
                kept = self._late.setdefault(direction, deque())
                kept.extend((max(due, late), message) for due, message in queue)
        self._set_link(a, b, False)
        self._redial[frozenset((a, b))] = self.step + redial_after

    def booted(self, nid: str, peers: list[str]) -> None:
        for peer in peers:
            pair = frozenset((peer, nid))
            if self.mode.is_fifo:
                self._redial[pair] = self.step
            else:
                self._up[pair] = False
                self._set_link(peer, nid, True)

    def killed(self, nid: str, peers: list[str]) -> None:
        """What the dead process had sent may still arrive, before a new connection can exist."""
        last_words: list[tuple[str, Any]] = []
        for peer in peers:
            sent = self.queues.get((nid, peer))
            if self.mode.is_fifo and sent and not self.mode.has_zombies:
                while sent and self._random.random() < 0.5:
                    sent.pop()
                last_words += [(peer, message) for _, message in self.queues.pop((nid, peer))]
            if self.mode.is_fifo:
                self.queues.pop((peer, nid), None)
            if self.is_connected(peer, nid):
                self.break_link(peer, nid, keeps_bytes=True, redial_after=1)
        for peer, message in last_words:
            if (nid, peer) not in self.blocked:
                self._hosts.deliver(nid, peer, message)

    def _set_link(self, a: str, b: str, is_up: bool) -> None:
        pair = frozenset((a, b))
        if self._up.get(pair, False) == is_up:
            return
        self._up[pair] = is_up
        self._hosts.link_changed(a, b, is_up)
        self._hosts.link_changed(b, a, is_up)

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, src: str, dst: str, message: Any) -> bool:
        """False if the sender can tell that the message went nowhere."""
        lag = self.slow.get((src, dst), 0)
        if self.mode.is_fifo:
            if not self.is_connected(src, dst):
                return False
            queue = self.queues.setdefault((src, dst), deque())
            due = self.step + self._random.randint(0, self.mode.delay) + lag
            queue.append((max(due, queue[-1][0]) if queue else due, message))
            return True
        if self._random.random() < self.mode.drop or (src, dst) in self.blocked:
            return True
        for _ in range(2 if self._random.random() < self.mode.duplicate else 1):
            due = self.step + self._random.randint(0, self.mode.delay) + lag
            self._datagrams.append(_Datagram(due, src, dst, message))
        if self.mode.replay:
            self._sent.append((src, dst, message))
        return True

    def run_step(self) -> None:
        if self.mode.is_fifo:
            self._dial()
            self._give_up_blocked()
            self._deliver_queued(self.queues)
            self._deliver_queued(self._late)
        else:
            self._replay()
            self._deliver_datagrams()

    def _replay(self) -> None:
        for _ in range(self.mode.replay if self._sent else 0):
            self._datagrams.append(_Datagram(self.step, *self._random.choice(self._sent)))

    def _deliver_datagrams(self) -> None:
        due = [datagram for datagram in self._datagrams if datagram.due <= self.step]
        if not due:
            return
        self._datagrams = [datagram for datagram in self._datagrams if datagram.due > self.step]
        if self.mode.delay > 1:
            self._random.shuffle(due)
        for datagram in due:
            if (datagram.src, datagram.dst) in self.blocked:
                continue
            if self._hosts.is_up(datagram.dst) and self._hosts.is_stalled(datagram.dst):
                datagram.due = self.step + 1
                self._datagrams.append(datagram)
            else:
                self._hosts.deliver(datagram.src, datagram.dst, datagram.message)

    def _dial(self) -> None:
        for pair, at in list(self._redial.items()):
            a, b = sorted(pair)
            is_open = (a, b) not in self.blocked and (b, a) not in self.blocked
            if self.step >= at and is_open and self._hosts.is_up(a) and self._hosts.is_up(b):
                del self._redial[pair]
                self._set_link(a, b, True)

    def _give_up_blocked(self) -> None:
        for (a, b), since in list(self._blocked_since.items()):
            if self.step - since > PATIENCE_STEPS and self.is_connected(a, b):
                self.break_link(a, b, keeps_bytes=False, redial_after=2)

    def _deliver_queued(self, queues: dict[Direction, deque[_Queued]]) -> None:
        while True:
            ready = [
                direction
                for direction, queue in queues.items()
                if queue
                and queue[0][0] <= self.step
                and direction not in self.blocked
                and not self._hosts.is_stalled(direction[1])
            ]
            if not ready:
                return
            direction = ready[self._random.randrange(len(ready))] if len(ready) > 1 else ready[0]
            _, message = queues[direction].popleft()
            self._hosts.deliver(*direction, message)
