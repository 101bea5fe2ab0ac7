"""`frame_switch` treats frames as it is told, and TCP goes through it: or tests with it prove nothing."""

import socket
from collections.abc import Iterator

import pytest

from tests.faults.frame_switch import FrameSwitch, Treatment, switched_namespaces
from tests.faults.namespaces import NetworkNamespaces

pytestmark = pytest.mark.slow

WAIT_S = 30.0
PIECES = 32
COUNT = 50  # few enough for the buffer of a socket


@pytest.fixture
def switched() -> Iterator[tuple[NetworkNamespaces, FrameSwitch]]:
    with switched_namespaces("a", "b") as switched:
        yield switched


@pytest.fixture
def network(switched: tuple[NetworkNamespaces, FrameSwitch]) -> NetworkNamespaces:
    return switched[0]


@pytest.fixture
def switch(switched: tuple[NetworkNamespaces, FrameSwitch]) -> FrameSwitch:
    return switched[1]


@pytest.fixture
def pair(network: NetworkNamespaces) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Datagrams from a to b."""
    sender, receiver = (
        network.call(member, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for member in "ab"
    )
    with sender, receiver:
        receiver.bind((network.address("b"), 0))
        receiver.settimeout(WAIT_S)
        sender.connect(receiver.getsockname())
        yield sender, receiver


def test_frames_pass_in_order(switch: FrameSwitch, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    for number in range(COUNT):
        sender.send(b"%d" % number)
    assert [int(receiver.recv(100)) for _ in range(COUNT)] == list(range(COUNT))
    counts = switch.treat(Treatment())
    assert counts["frames"] >= COUNT
    assert not counts["lost"] + counts["late"] + counts["twice"] + counts["overtaken"]


def test_frames_are_lost(switch: FrameSwitch, pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    counts = switch.treat(Treatment(loss=1.0))
    sender.send(b"lost")
    while not counts["lost"]:
        counts = switch.treat(Treatment(loss=1.0))
    switch.treat(Treatment())
    sender.send(b"passed")
    assert receiver.recv(100) == b"passed"


def test_frames_come_twice_and_out_of_order(switch: FrameSwitch, pair: tuple[socket.socket, socket.socket]) -> None:
    switch.treat(Treatment(twice=1.0, jitter_ms=20.0))
    sender, receiver = pair
    for number in range(COUNT):
        sender.send(b"%d" % number)
    received = [int(receiver.recv(100)) for _ in range(2 * COUNT)]
    assert sorted(received) == sorted([*range(COUNT)] * 2)
    assert received != sorted(received)
    counts = switch.treat(Treatment())
    assert counts["twice"] >= COUNT
    assert counts["overtaken"] > 0


def test_tcp_goes_through_all_of_it(network: NetworkNamespaces, switch: FrameSwitch) -> None:
    switch.treat(Treatment(loss=0.05, twice=0.1, held_back=0.1, delay_ms=1.0, bytes_per_s=1_000_000))
    piece = bytes(range(256)) * 32  # fits into the buffers of the sockets
    listener = network.call("b", lambda: socket.create_server((network.address("b"), 0)))
    with listener:
        address = listener.getsockname()
        with network.call("a", lambda: socket.create_connection(address, WAIT_S)) as client:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(WAIT_S)
                client.settimeout(WAIT_S)
                for _ in range(PIECES):
                    client.sendall(piece)
                    received = b""
                    while len(received) < len(piece):
                        received += accepted.recv(len(piece) - len(received))
                    assert received == piece
    counts = switch.treat(Treatment())
    assert min(counts[what] for what in ("lost", "twice", "late", "overtaken")) > 0
