"""A network of its own for each process of a test: namespaces on one bridge, and links that can be cut in one direction.

A cut is a wrong hardware address in the sender's (permanent) neighbour table: packets leave and reach nobody, in
silence, as with a broken cable; nothing but iproute2 and util-linux is needed. Needs root.
"""

import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, permutations
from pathlib import Path
from typing import TypeVar

import pytest

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.testing import NodeProcess

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:00:ff"
_MEMBERS_MAX = 200  # numbers of addresses, below that of nobody
_numbers = count()


class NetworkNamespaces:
    """Members see each other at `address(name)`. Used from one thread."""

    def __init__(self, members: Iterable[str], *, has_bridge: bool = True) -> None:
        """Without a bridge, somebody else passes frames on between `ports`."""
        self._has_bridge = has_bridge
        self._numbers = {name: number for number, name in enumerate(members, 1)}
        assert len(self._numbers) <= _MEMBERS_MAX
        self._prefix = f"kraftlog-{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._prefix}-hub"
        self._made: list[str] = []

    def address(self, member: str) -> str:
        return f"10.0.0.{self._numbers[member]}"

    def command_prefix(self, member: str) -> Sequence[str]:
        """Runs the command that follows it where the member is, as the same process."""
        return _inside(self._namespace(member))

    @property
    def hub_prefix(self) -> Sequence[str]:
        """Runs the command that follows it where `ports` are."""
        return _inside(self._hub)

    @property
    def ports(self) -> Mapping[str, int]:
        """The other ends of the members' links, each with the number of its member."""
        return {f"port{number}": number for number in self._numbers.values()}

    def cut(self, sources: Collection[str], destinations: Collection[str]) -> None:
        """What sources send to destinations is lost from here on; the other direction goes on."""
        self._direct(sources, destinations, lambda destination: _NOBODY)

    def heal(self) -> None:
        """All reach all."""
        self._direct(self._numbers, self._numbers, self._hardware_address)

    def call(self, member: str, work: Callable[[], T]) -> T:
        """Run `work` on a thread that is where the member is. Sockets that it makes stay there."""

        def enter() -> T:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(_path(self._namespace(member))) as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns to {self._namespace(member)}")
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def open(self) -> None:
        """Raises `CalledProcessError` where namespaces cannot be had; `close` then as well."""
        for name in (self._hub, *map(self._namespace, self._numbers)):
            _ip("netns", "add", name)
            self._made.append(name)
        if self._has_bridge:
            _ip("link", "add", "bridge", "up", "type", "bridge", inside=self._hub)
        for member, number in self._numbers.items():
            namespace = self._namespace(member)
            mac = self._hardware_address(member)
            peer = ("peer", "name", "eth0", "address", mac, "netns", namespace)
            _ip("link", "add", f"port{number}", "type", "veth", *peer, inside=self._hub)
            master = ("master", "bridge") if self._has_bridge else ()
            _ip("link", "set", f"port{number}", *master, "up", inside=self._hub)
            _ip("link", "set", "lo", "up", inside=namespace)
            _ip("link", "set", "eth0", "up", inside=namespace)
            _ip("address", "add", f"{self.address(member)}/24", "dev", "eth0", inside=namespace)
        self.heal()

    def close(self) -> None:
        """May be repeated. Processes that are still inside keep their namespace until they end."""
        while self._made:
            subprocess.run(["ip", "netns", "delete", self._made.pop()], check=False, capture_output=True)

    def _direct(
        self, sources: Collection[str], destinations: Collection[str], hardware_address: Callable[[str], str]
    ) -> None:
        for source, destination in permutations(self._numbers, 2):
            if source in sources and destination in destinations:
                neighbour = (self.address(destination), "lladdr", hardware_address(destination))
                entry = ("replace", *neighbour, "nud", "permanent", "dev", "eth0")
                _ip("neighbour", *entry, inside=self._namespace(source))

    def _namespace(self, member: str) -> str:
        return f"{self._prefix}-{member}"

    def _hardware_address(self, member: str) -> str:
        return f"02:00:00:00:00:{self._numbers[member]:02x}"


@contextmanager
def network_namespaces(*members: str, has_bridge: bool = True) -> Iterator[NetworkNamespaces]:
    """Skips the test, with the reason, where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} ({package}) is not installed")
    network = NetworkNamespaces(members, has_bridge=has_bridge)
    try:
        try:
            network.open()
        except subprocess.CalledProcessError as e:
            pytest.skip(f"no network namespaces: {' '.join(e.cmd)}: {e.stderr.strip()}")
        yield network
    finally:
        network.close()


def nodes_in(
    network: NetworkNamespaces, directory: Path, count: int, *, config: Mapping[str, str] | None = None
) -> list[NodeProcess]:
    """The nodes of a new cluster, not started: 1 where `node1` is, and so on."""
    keys = {f"node{number}": ReplicaKey(number, uuid.uuid4().bytes) for number in range(1, count + 1)}
    voters = {key: Endpoint(network.address(member), 9092) for member, key in keys.items()}
    cluster_id = str(uuid.uuid4())
    nodes = []
    for member, key in keys.items():
        (directory / member).mkdir()
        nodes.append(
            NodeProcess(
                directory / member,
                node_id=key.node_id,
                cluster_id=cluster_id,
                config={"controller.quorum.bootstrap.servers": ",".join(map(str, voters.values())), **(config or {})},
                launcher=network.command_prefix(member),
                directory_id=key.directory_id,
                voters=voters,
                address=str(voters[key]),
            )
        )
    return nodes


def _path(namespace: str) -> str:
    return f"/run/netns/{namespace}"


def _inside(namespace: str) -> tuple[str, ...]:
    """Not `ip netns exec` or `ip -n`: both take a copy of all mounts along, and a disk of another test that is unmounted
    meanwhile stays in use by the copy (after a power cut: as the dead file system that it was)."""
    return ("nsenter", f"--net={_path(namespace)}")


def _ip(*arguments: str, inside: str = "") -> None:
    command = (*(_inside(inside) if inside else ()), "ip", *arguments)
    subprocess.run(command, check=True, capture_output=True, text=True)
