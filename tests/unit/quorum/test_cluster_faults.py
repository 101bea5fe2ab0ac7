"""Nodes of the quorum and their transport under random faults: nothing that was answered is ever lost, reads are
linearizable on every node, and in the end everybody has the same."""

import asyncio
import os
import random

import pytest

from kraftlog.kraft.raft import RaftConfig
from kraftlog.proto.errors import KraftlogError
from kraftlog.server.quorum import QuorumNode
from kraftlog.server.quorum.snapshots import SnapshotConfig
from tests.unit.quorum.cluster import Cluster, create, host_of, live_broker, with_cluster

ROUNDS = 25
VOTERS, OBSERVERS = (1, 2, 3), (4, 5)
MACHINES = (*VOTERS, *OBSERVERS)


class Run:
    """One run: a nemesis, two clients, and what they know."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(f"faults-{seed}")
        self.answered: set[str] = set()
        self.reads = 0
        self.next_name = 0
        self.clients: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        cluster = self.cluster
        cluster.snapshots = SnapshotConfig(max_record_bytes_between_snapshots=self.random.choice([600, 2_000, 10**6]))
        cluster.raft = RaftConfig(max_snapshot_chunk_bytes=300, max_append_bytes=400, max_inflight_bytes=1_500)
        await cluster.start(*MACHINES)
        await cluster.leader()
        for _ in range(ROUNDS):
            await self.fault()
            self.begin(self.write())
            self.begin(self.read(self.random.choice(MACHINES)))
            await asyncio.sleep(self.random.uniform(0, 2))
            self.check_alive()
        await self.settle()

    def begin(self, client: "object") -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(client)  # type: ignore[arg-type] # a coroutine
        self.clients.add(task)

    def check_alive(self) -> None:
        for node in self.cluster.running:
            assert node._failure is None, node._failure

    # --- nemesis ------------------------------------------------------------------------------------------------

    async def fault(self) -> None:
        cluster, one, other = self.cluster, self.random.choice(MACHINES), self.random.choice(MACHINES)
        match self.random.randrange(9):
            case 0 | 1:
                if cluster.machines[one].node is not None:
                    cluster.kill(one)
            case 2:
                cluster.cut_off(one)
            case 3:
                if one != other:
                    cluster.network.partition(host_of(one), host_of(other), both_ways=False)
            case 4 | 5:
                cluster.network.heal()
            case 6:
                cluster.network.break_connections(host_of(one), host_of(other))
            case 7:
                if cluster.machines[one].node is not None:
                    await cluster.stop(one)
            case _:
                self.begin(self.change_voter(one))
        for number in MACHINES:
            if cluster.machines[number].node is None and self.random.random() < 0.4:
                await cluster.start(number)

    def leaders(self) -> list[QuorumNode]:
        return [node for node in self.cluster.running if node.is_leader]

    async def change_voter(self, number: int) -> None:
        leaders = self.leaders()
        key = self.cluster.machines[number].key
        if not leaders:
            return
        try:
            async with asyncio.timeout(5):
                if key not in leaders[-1].voters:
                    await leaders[-1].add_voter(key)
                elif len(leaders[-1].voters) > 2:
                    await leaders[-1].remove_voter(key)
        except (KraftlogError, TimeoutError):
            pass  # lost leadership, no quorum, the node is down: any of these may be

    # --- clients ------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        names = [f"t{self.next_name + n}" for n in range(self.random.randrange(1, 5))]
        self.next_name += len(names)
        leaders = self.leaders()
        if not leaders:
            return
        for name in names:
            try:
                async with asyncio.timeout(3):
                    await live_broker(leaders[-1])
                    response = await create(leaders[-1], name)
            except (KraftlogError, TimeoutError):
                continue
            if response.topics[0].error_code == 0:
                self.answered.add(name)

    async def read(self, number: int) -> None:
        node = self.cluster.machines[number].node
        if node is None:
            return
        must_see = set(self.answered)
        try:
            await node.read_barrier(2_000)
        except KraftlogError:
            return
        self.reads += 1
        missing = must_see - node.image.topics.keys()
        assert not missing, f"node {number} does not see {sorted(missing)}"

    # --- the end ------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        for number in MACHINES:
            if cluster.machines[number].node is None:
                await cluster.start(number)
        await cluster.converge(seconds=30)
        for task in self.clients:
            if not task.done():
                task.cancel()  # its node is dead
        await asyncio.gather(*(task for task in self.clients if not task.cancelled()), return_exceptions=True)
        for task in self.clients:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self.check_alive()
        for node in cluster.running:
            assert not self.answered - node.image.topics.keys()


def run_seed(seed: int) -> tuple[int, int]:
    """(topics created, reads)."""
    counts: list[tuple[int, int]] = []

    async def work(cluster: Cluster) -> None:
        run = Run(cluster, seed)
        await run.run()
        counts.append((len(run.answered), run.reads))

    print(f"seed {seed}")
    with_cluster(work, seed=seed)
    return counts[0]


@pytest.mark.slow
def test_no_seed_loses_anything() -> None:
    """Kills, power losses, stops, cuts in one or both directions, broken streams, voter changes, snapshots."""
    counts = [run_seed(seed) for seed in range(6)]
    assert sum(created for created, _ in counts) > 60
    assert sum(reads for _, reads in counts) > 30


@pytest.mark.deep
def test_no_further_seed_loses_anything() -> None:
    """The same with more seeds."""
    for seed in range(1_000, 1_000 + int(os.environ.get("KRAFTLOG_SEEDS", "200")) // 4):
        run_seed(seed)
