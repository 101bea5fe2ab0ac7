"""Cuts of `namespaces` lose packets, in the one direction, until they are healed: or tests with them prove nothing."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.namespaces import NetworkNamespaces, network_namespaces

WAIT_S = 30.0


@pytest.fixture
def network() -> Iterator[NetworkNamespaces]:
    with network_namespaces("a", "b", "c") as network:
        yield network


def _socket(network: NetworkNamespaces, member: str) -> socket.socket:
    made = network.call(member, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind((network.address(member), 0))
    made.settimeout(WAIT_S)
    return made


@pytest.mark.slow
def test_a_cut_loses_one_direction_of_one_link(network: NetworkNamespaces) -> None:
    """Datagrams of one path arrive in order: what was sent while it was cut is missing between its neighbours."""
    sockets = {member: _socket(network, member) for member in "abc"}
    try:

        def send(source: str, destination: str, message: bytes) -> None:
            sockets[source].sendto(message, sockets[destination].getsockname())

        for step in ("before", "during", "after"):
            if step == "during":
                network.cut("a", "bc")
            for source, destination in ("ab", "ac", "ba", "bc"):
                send(source, destination, f"{source}{destination} {step}".encode())
            if step == "during":
                network.heal()

        def received(member: str, number: int) -> set[str]:
            return {sockets[member].recv(100).decode() for _ in range(number)}

        assert received("a", 3) == {"ba before", "ba during", "ba after"}
        assert received("b", 2) == {"ab before", "ab after"}
        assert received("c", 5) == {"ac before", "ac after", "bc before", "bc during", "bc after"}
    finally:
        for each in sockets.values():
            each.close()


@pytest.mark.slow
def test_a_process_runs_where_its_member_is(network: NetworkNamespaces) -> None:
    """And nothing is left when the network is closed."""
    shown = subprocess.run(
        [*network.command_prefix("b"), "ip", "-o", "-4", "address", "show", "eth0"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert network.address("b") in shown
    names = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    name = Path(network.command_prefix("b")[-1]).name
    assert name in names
    network.close()
    assert name not in subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout


def test_a_process_inside_has_the_mounts_of_all(network: NetworkNamespaces) -> None:
    """A copy of them would keep the disk that another test unmounts, as dead as a power cut left it, until the process ends."""
    shown = subprocess.run(
        [*network.command_prefix("b"), "readlink", "/proc/self/ns/mnt"], check=True, capture_output=True, text=True
    ).stdout
    assert shown.strip() == os.readlink("/proc/self/ns/mnt")
