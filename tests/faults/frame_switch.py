"""A switch between the members of a network of namespaces that passes Ethernet frames on late, out of order, twice or not at
all: what other machines have `netem` for. A process of its own in the namespace of the ports:

    python -m tests.faults.frame_switch '{"port1": 1, "port2": 2}'    (the last byte of a member's hardware address)

Each line on its standard input is a `Treatment`, which holds from there on; the answer is one line with the counts of what
happened to frames since the line before. Broadcasts are dropped, since members have their neighbours' addresses.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import json
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.namespaces import NetworkNamespaces, network_namespaces

ALL_PROTOCOLS = 0x0003
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 8 << 20
FRAME_BYTES_MAX = 2048
QUEUED_FRAMES_MAX = 10_000
QUEUE_S_MAX = 1.0  # of a narrow link: what would wait for longer is dropped
FRAMES_PER_TURN = 64

SIOCETHTOOL = 0x8946
SET_TRANSMIT_CHECKSUMS, SET_TCP_SEGMENTATION, SET_GENERIC_SEGMENTATION = 0x17, 0x1F, 0x24  # ETHTOOL_STXCSUM and so on


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """Of every frame that comes from or goes to one of `members`."""

    members: tuple[int, ...] | None = None
    """None: all."""
    loss: float = 0.0
    """Share of the frames that are lost; the next ones are shares too."""
    twice: float = 0.0
    held_back: float = 0.0
    """For `held_ms`, behind those that come after."""
    held_ms: float = 20.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Up to so much more, another time for each frame."""
    bytes_per_s: int = 0
    """Of a link, in one direction; 0: as many as there are."""


class _Switch:
    def __init__(self, ports: Mapping[str, int]) -> None:
        self._sockets: dict[int, socket.socket] = {}
        for name, number in ports.items():
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
            port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            port.bind((name, 0))
            port.setblocking(False)
            self._sockets[number] = port
        self._treatment = Treatment()
        self._counts: Counter[str] = Counter()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._sequence = 0
        self._free_at: dict[tuple[int, int], float] = {}
        """When a narrow link has sent what it has."""
        self._last_due: dict[tuple[int, int], float] = {}
        self._random = random.Random(1)

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, port in self._sockets.items():
                selector.register(port, selectors.EVENT_READ, number)
            selector.register(sys.stdin.buffer, selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select(self._until_next()):
                    if key.data is not None:
                        self._receive(key.data)
                    elif not self._obey(sys.stdin.buffer.readline()):
                        return
                self._send_due()

    def _until_next(self) -> float | None:
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    def _obey(self, line: bytes) -> bool:
        if not line:
            return False
        fields = json.loads(line)
        members = fields.pop("members")
        self._treatment = Treatment(members=None if members is None else tuple(members), **fields)
        counts, self._counts = self._counts, Counter()
        print(json.dumps(counts), flush=True)
        return True

    def _receive(self, source: int) -> None:
        for _ in range(FRAMES_PER_TURN):
            try:
                frame = self._sockets[source].recv(FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            destination = frame[5]
            if frame[0] & 1 or destination not in self._sockets:
                continue
            self._counts["frames"] += 1
            treatment = self._treatment
            if treatment.members is None or {source, destination} & set(treatment.members):
                self._treat(treatment, source, destination, frame)
            else:
                self._queue(time.monotonic(), source, destination, frame)

    def _treat(self, treatment: Treatment, source: int, destination: int, frame: bytes) -> None:
        draw = self._random.random
        if draw() < treatment.loss:
            self._counts["lost"] += 1
            return
        now = due = time.monotonic()
        if treatment.bytes_per_s:
            due = max(now, self._free_at.get((source, destination), 0.0)) + len(frame) / treatment.bytes_per_s
            if due - now > QUEUE_S_MAX:
                self._counts["lost"] += 1
                return
            self._free_at[source, destination] = due
        due += (treatment.delay_ms + draw() * treatment.jitter_ms) / 1000
        if draw() < treatment.held_back:
            due += treatment.held_ms / 1000
        self._counts["late"] += due > now
        self._queue(due, source, destination, frame)
        if draw() < treatment.twice:
            self._counts["twice"] += 1
            self._queue(due, source, destination, frame)

    def _queue(self, due: float, source: int, destination: int, frame: bytes) -> None:
        if len(self._waiting) >= QUEUED_FRAMES_MAX:
            self._counts["lost"] += 1
            return
        self._counts["overtaken"] += due < self._last_due.get((source, destination), 0.0)
        self._last_due[source, destination] = max(due, self._last_due.get((source, destination), 0.0))
        self._sequence += 1
        heapq.heappush(self._waiting, (due, self._sequence, destination, frame))

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, destination, frame = heapq.heappop(self._waiting)
            try:
                self._sockets[destination].send(frame)
            except BlockingIOError:
                self._counts["lost"] += 1


class FrameSwitch:
    """The process, as a test has it. Used from one thread."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def treat(self, treatment: Treatment) -> Counter[str]:
        """From here on. Returns what happened to frames under the treatment before: `frames`, `lost`, `twice`, `late`,
        `overtaken`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(treatment)).encode() + b"\n")
        self._process.stdin.flush()
        return Counter(json.loads(self._process.stdout.readline()))


@contextmanager
def switched_namespaces(*members: str) -> Iterator[tuple[NetworkNamespaces, FrameSwitch]]:
    """A network with this switch in the place of its bridge. Skips the test, with the reason, where that cannot be had."""
    with network_namespaces(*members, has_bridge=False) as network:
        for member in members:
            network.call(member, lambda: _send_whole_frames("eth0"))
        process = subprocess.Popen(
            [*network.hub_prefix, sys.executable, "-m", "tests.faults.frame_switch", json.dumps(network.ports)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:
            switch = FrameSwitch(process)
            try:
                switch.treat(Treatment())
                yield network, switch
            finally:
                assert process.stdin is not None
                process.stdin.close()


def _send_whole_frames(interface: str) -> None:
    """The kernel computes checksums and cuts segments itself instead of leaving that to a card that is not there: whoever
    takes a frame from the wire has it whole."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for command in (SET_TRANSMIT_CHECKSUMS, SET_TCP_SEGMENTATION, SET_GENERIC_SEGMENTATION):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(channel.fileno(), SIOCETHTOOL, request)


if __name__ == "__main__":
    _Switch(json.loads(sys.argv[1])).run()
