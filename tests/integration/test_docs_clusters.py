"""docs/clusters.md runs as written: on one machine as any document, on several with a folder for each of them.

A block that begins with `# on each host`, `# on host-4` or `# anywhere` runs there. `host-1:9092` becomes an address of the
loopback with a port of the kernel's choice, and `N` is the number of the host.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlog.server.cli import processes
from kraftlog.testing.processes import free_ports
from tests.integration.documents import Block, blocks, cluster_home, run_block, run_blocks

pytestmark = [pytest.mark.processes, pytest.mark.slow]

DOCUMENT = "docs/clusters.md"
HOSTS = (1, 2, 3, 4)
_PLACE = re.compile(r"# (anywhere|on each host|on host-(?P<number>\d))")


def is_placed(block: Block) -> bool:
    return _PLACE.match(block.code) is not None


@dataclass(frozen=True)
class Machines:
    """A folder for each host, and one for `anywhere`."""

    home: Path
    environment: Mapping[str, str]
    addresses: Mapping[int, str]

    def folder(self, number: int) -> Path:
        return self.home / f"host-{number}"

    def run(self, block: Block) -> str:
        place = _PLACE.match(block.code)
        assert place is not None
        if place[1] == "anywhere":
            printed = self._run(block, self.home, 0)
            self._copy("cluster.env")
            return printed
        if "with an empty disk" in block.code:
            self.lose_disk(int(place["number"]))
        numbers = HOSTS[:3] if place["number"] is None else (int(place["number"]),)
        return "".join(self._run(block, self.folder(number), number) for number in numbers)

    def _run(self, block: Block, folder: Path, number: int) -> str:
        code = block.code.replace("host-$N:9092", self.addresses.get(number, ""))
        for each, address in self.addresses.items():
            code = code.replace(f"host-{each}:9092", address)
        return run_block(
            DOCUMENT, Block(block.language, code, block.line), {**self.environment, "N": str(number)}, folder
        )

    def _copy(self, name: str) -> None:
        if (self.home / name).exists():
            for number in HOSTS:
                shutil.copy(self.home / name, self.folder(number))

    def lose_disk(self, number: int) -> None:
        self.end(number)
        shutil.rmtree(self.folder(number) / "data")

    def end(self, number: int) -> None:
        """Kill the node of a host, if one runs there."""
        path = self.folder(number) / "node.pid"
        if path.exists():
            pid = int(path.read_text())
            process = processes.identity(pid)
            if process is not None and _is_node(pid, self.folder(number)):
                processes.send_signal(pid, process, signal.SIGKILL)
                assert processes.wait_for_exit(pid, process, 30)


def _is_node(pid: int, folder: Path) -> bool:
    """The pid is in a file, and may be another's by now."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == folder
    except OSError:
        return False


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with cluster_home(tmp_path / "unused") as environment:
        ports = free_ports(len(HOSTS))
        made = Machines(
            tmp_path, environment, {number: f"127.0.0.1:{port}" for number, port in zip(HOSTS, ports, strict=True)}
        )
        for number in HOSTS:
            made.folder(number).mkdir()
        try:
            yield made
        finally:
            for number in HOSTS:
                made.end(number)


def test_the_part_on_one_machine(tmp_path: Path) -> None:
    with cluster_home(tmp_path / "home") as environment:
        try:
            printed = run_blocks(DOCUMENT, environment, tmp_path, chosen=lambda block: not is_placed(block))
        finally:
            for home in ("growing", "apart"):
                stop = ["kraftctl", "cluster", "stop", "--force", "--dir", str(tmp_path / home)]
                subprocess.run(stop, env=environment, check=True)
    assert "1 tea\n" in printed
    assert "created topic made-by-two-of-three" in printed
    assert "was restarted" in printed
    assert "node 1 leads the quorum\nnode 3 is no voter\nnode 2 is no voter\n" in printed
    assert re.search(r"\n1002 +observer .*\n(.*\n)*node 1002 is no voter\nnode 1002 is a voter\n", printed)


def test_the_part_on_several_machines(machines: Machines) -> None:
    placed = [block for block in blocks(DOCUMENT) if is_placed(block)]
    assert len(placed) == 10
    printed = "".join(machines.run(block) for block in placed)
    assert printed.count(" ready on ") == 5
    assert "1 tea\n" in printed
    described = printed.rpartition("quorum: leader ")[2].splitlines()[2:]
    assert sorted((row.split()[0], row.split()[1] != "observer") for row in described) == [
        ("1", True),
        ("2", True),
        ("3", False),
        ("4", True),
    ]
