"""As `test_replication_processes`, on disks that lose what was not synced, or fill up: an ext4 in a file for each node."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from kraftlog import Admin
from kraftlog.testing import NodeProcess
from kraftlog.testing.local_cluster import nodes_of
from tests.faults.amounts import Kind
from tests.faults.loop_device import LOG_DROPPED, LOG_FLUSHED, LoopDevice, loop_device
from tests.faults.record_process import Seen
from tests.faults.record_run import FAULTY, NODES, TOPIC, Run, launch, started

pytestmark = [pytest.mark.processes, pytest.mark.slow]

DISK_MB = 128
DISK_FULL = "disk full"
DECISIONS_MAX = 200
INTERVAL = {"flush.policy": "interval", "flush.ms": "500"}


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, LoopDevice]]:
    """One for each node, at the place of its log directory."""
    with ExitStack() as stack:
        devices = {}
        for number in range(1, NODES + 1):
            folder, node = tmp_path / f"disk-{number}", tmp_path / f"node-{number}"
            folder.mkdir()
            node.mkdir()
            devices[number] = stack.enter_context(loop_device(folder, size_mb=DISK_MB))
            data = devices[number].path / "data"
            data.mkdir()
            (node / "data").symlink_to(data)
        yield devices


@pytest.fixture
def topic_configs() -> Mapping[str, str]:
    """Of the topic that the load goes to."""
    return {}


@pytest.fixture
def run_on_disks(
    tmp_path: Path,
    seed: int,
    config: Mapping[str, str],
    topic_configs: Mapping[str, str],
    disks: dict[int, LoopDevice],
) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, NODES, config=config)
    with started(nodes), Run(nodes, tmp_path, seed, topic_configs=topic_configs).load() as run:
        yield run


# --- power --------------------------------------------------------------------------------------------------------


def lose_power(disks: Mapping[int, LoopDevice], nodes: Sequence[NodeProcess], how: int) -> None:
    """Of these nodes at once. They are frozen in the middle of what they do before the power goes, so that nobody hears a sync
    that reports, after that, what is not true (see `test_power_loss`)."""
    for node in nodes:
        node.pause()
    for node in nodes:
        disks[node.node_id].cut_power(how)
    for node in nodes:
        node.kill9()
        disks[node.node_id].unmount()


def return_power(disks: Mapping[int, LoopDevice], nodes: Sequence[NodeProcess]) -> None:
    for node in nodes:
        disks[node.node_id].mount()
    launch(nodes)


def lose_the_power_of_one(run: Run, disks: Mapping[int, LoopDevice], how: int) -> None:
    node = run.any_leader()
    lose_power(disks, [node], how)
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    return_power(disks, [node])
    run.wait_for_in_sync()


def lose_the_power_of_all(run: Run, disks: Mapping[int, LoopDevice], how: int) -> None:
    run.acknowledge(FAULTY)
    nodes = run.shuffled_nodes()
    lose_power(disks, nodes, how)
    run.wait_for_silence(0.5)
    return_power(disks, nodes)
    run.acknowledge(FAULTY)
    run.wait_for_in_sync()


def again_and_again(
    run: Run, disks: Mapping[int, LoopDevice], lose: Callable[[Run, Mapping[int, LoopDevice], int], None], *kinds: Kind
) -> None:
    """In turn with the journal written and with the journal lost."""
    flushed, dropped = kinds
    run.load_in_peace(4.0)
    for _ in range(flushed.times):
        for kind, how in ((flushed, LOG_FLUSHED), (dropped, LOG_DROPPED)):
            lose(run, disks, how)
            run.took_effect(kind)
    run.finish(*kinds)


def test_power_that_one_and_then_all_nodes_lose(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    lose_the_power_of_one(run_on_disks, disks, run_on_disks.random.choice([LOG_FLUSHED, LOG_DROPPED]))
    lose_the_power_of_all(run_on_disks, disks, run_on_disks.random.choice([LOG_FLUSHED, LOG_DROPPED]))
    run_on_disks.finish()


@pytest.mark.deep
def test_power_that_one_node_loses(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    again_and_again(run_on_disks, disks, lose_the_power_of_one, Kind.POWER_ONE_FLUSHED, Kind.POWER_ONE_DROPPED)


@pytest.mark.deep
def test_power_that_all_nodes_lose(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    again_and_again(run_on_disks, disks, lose_the_power_of_all, Kind.POWER_ALL_FLUSHED, Kind.POWER_ALL_DROPPED)


@pytest.mark.deep
@pytest.mark.parametrize("topic_configs", [INTERVAL], ids=["interval"])
def test_power_that_one_node_loses_before_its_interval_is_over(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """What it had not synced yet, the others have."""
    kinds = Kind.POWER_INTERVAL_FLUSHED, Kind.POWER_INTERVAL_DROPPED
    again_and_again(run_on_disks, disks, lose_the_power_of_one, *kinds)


# --- space --------------------------------------------------------------------------------------------------------


def fill(device: LoopDevice) -> Path:
    """To the last block. Returns what to remove."""
    filler = device.path / "filler"
    with filler.open("wb") as file:
        for size in (1 << 20, 4096):
            _write_until_full(file, size)
    return filler


def _write_until_full(file: IO[bytes], size: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            file.write(bytes(size))
            file.flush()


def wait_until_out(run: Run, node: NodeProcess) -> None:
    """Its replicas fall out of what others lead."""

    def is_out(_: int, seen: Seen) -> bool:
        return seen.leader == node.node_id or node.node_id not in seen.isr

    run.wait_for_partitions(is_out, f"ISR without node {node.node_id} where others lead")
    assert DISK_FULL in node.output


@pytest.mark.deep
def test_a_full_disk(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """Of a node that leads and follows. What others lead goes on; what it leads itself waits for space. When there is some
    again, it catches up by itself, and nothing was lost."""
    run = run_on_disks
    run.load_in_peace(4.0)
    node = run.any_leader()
    filler = fill(disks[node.node_id])
    wait_until_out(run, node)
    run.acknowledge(FAULTY)
    assert node.pid is not None
    run.took_effect(Kind.FULL_LEADER)
    filler.unlink()
    run.wait_for_in_sync()
    run.finish(Kind.FULL_LEADER)


def large_decision(number: int) -> dict[str, str]:
    """Some kilobytes of configuration, another one for each number, with no effect without a rate."""
    return {"leader.replication.throttled.replicas": ",".join(f"{number + each}:1" for each in range(500))}


@pytest.mark.deep
def test_a_full_disk_of_the_controller(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """While what it decides fits into the blocks that it has, it goes on. Then it ends, as with any disk that it cannot write
    its metadata to, and another one leads the quorum."""
    run = run_on_disks
    run.load_in_peace(4.0)
    with Admin(bootstrap_servers=run.addresses) as admin:
        node = run.nodes[admin.describe_metadata_quorum().leader_id]
        filler = fill(disks[node.node_id])
        wait_until_out(run, node)
        number = 0
        while admin.describe_metadata_quorum().leader_id == node.node_id:
            assert number < DECISIONS_MAX
            admin.alter_configs(TOPIC, set=large_decision(number))
            number += 1
        print(f"another controller after {number} decisions")
    run.acknowledge(FAULTY)
    assert DISK_FULL in node.output
    run.took_effect(Kind.FULL_CONTROLLER)
    filler.unlink()
    node.kill9()
    run.forgive(node)
    node.start()
    run.wait_for_in_sync()
    run.finish(Kind.FULL_CONTROLLER)


@pytest.mark.deep
def test_a_start_on_a_full_disk(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """After kill -9: it starts, now or when there is space."""
    run = run_on_disks
    run.load_in_peace(4.0)
    node = run.any_leader()
    filler = fill(disks[node.node_id])
    wait_until_out(run, node)
    node.kill9()
    run.wait_for_leaders_other_than(node.node_id)
    node.launch()
    run.acknowledge(FAULTY)
    run.took_effect(Kind.FULL_RESTART)
    filler.unlink()
    if node.pid is None:
        node.launch()
    node.wait_ready()
    run.wait_for_in_sync()
    run.finish(Kind.FULL_RESTART)


@pytest.mark.deep
def test_two_full_disks(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """Nothing can be acknowledged by one replica alone: all waits for space."""
    run = run_on_disks
    run.load_in_peace(4.0)
    full = run.shuffled_nodes()[1:]
    fillers = [fill(disks[node.node_id]) for node in full]
    for node in full:  # the second one may be asked to write only when the first has left the ISR
        run.wait_until_said(node, DISK_FULL)
    run.wait_for_silence(3.0)
    assert all(node.pid is not None for node in full)
    run.took_effect(Kind.FULL_MAJORITY)
    for filler in fillers:
        filler.unlink()
    run.acknowledge(FAULTY)
    run.wait_for_in_sync()
    run.finish(Kind.FULL_MAJORITY)
