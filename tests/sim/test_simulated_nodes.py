"""Whole nodes of one cluster under random faults, in virtual time: what clients were answered is linearizable.

Three nodes are brokers and voters, one is a broker without a vote, one a controller without a vote at first. Clients create,
delete, alter and describe topics through all brokers while nodes lose power, are cut off in one direction or both, stop in
order, and voters come and go. In the end everything heals, and every broker says the same.
"""

import asyncio
import json
import os
import random
from collections.abc import Iterable
from typing import Any

import pytest
from google.protobuf.message import Message

from kraftlog.kraft.log_adapter import MetadataLog
from kraftlog.proto import admin_pb2
from kraftlog.proto.errors import KraftlogError
from kraftlog.server.controller import ControllerClient
from kraftlog.server.quorum.local_controller import LocalController
from kraftlog.testing.loop import VirtualLoop, run_virtual
from tests.checker.linearizability import find_violation
from tests.checker.topics import Outcome, TopicModel
from tests.faults.topic_clients import Clients, Plan, TopicOperation, operation_of
from tests.unit.server.nodes import Nodes, voters_of

COMBINED, BROKER, SPARE = (1, 2, 3), 4, 5
MACHINES = (*COMBINED, BROKER, SPARE)
BROKERS = (*COMBINED, BROKER)
ROUNDS = 12


class Run:
    """One seed."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.nodes = Nodes(loop, seed)
        self.random = random.Random(f"nodes-{seed}")
        self.history: list[TopicOperation] = []
        self.changed_voters = 0
        self.cut: set[int] = set()

    async def run(self) -> None:
        nodes = self.nodes
        more = {"metadata.log.max.record.bytes.between.snapshots": str(self.random.choice([2_000, 10_000, 10**7]))}
        for number in COMBINED:
            nodes.add(number, "broker,controller", voters=voters_of(*COMBINED), more=more)
        nodes.add(BROKER, "broker", voters={}, more=more)
        nodes.add(SPARE, "controller", voters={}, more=more)
        await nodes.start(*MACHINES)
        clients = Clients(self._plan(), self._say, nodes.network.host("client"))
        stopped = nodes.loop.create_future()
        working = asyncio.ensure_future(clients.run(stopped))
        for _ in range(ROUNDS):
            await self._fault()
            await asyncio.sleep(self.random.uniform(0, 3))
            self._check_alive()
        await self._heal()
        stopped.set_result(None)
        await working
        self._check_alive()

    def _plan(self) -> Plan:
        return Plan(
            name="c",
            number=1,
            seed=self.random.getrandbits(32),
            addresses=tuple(f"n{number}:9092" for number in BROKERS),
            clients=4,
            readers=2,
            topics=5,
            operations=400,
            pause_ms_max=200,
            attempt_timeout_ms=3_000,
            operation_timeout_ms=20_000,
        )

    def _say(self, line: str) -> None:
        fields = json.loads(line)
        if "topic" in fields:
            self.history.append(operation_of(fields))

    async def _fault(self) -> None:
        nodes, one, other = self.nodes, *self.random.sample(MACHINES, 2)
        match self.random.randrange(10):
            case 8 | 9:
                await self._kill_leader()
            case 0 | 1:
                if nodes.machines[one].node is not None:
                    nodes.kill(one)
            case 2:
                nodes.cut_off(one)
            case 3:
                nodes.network.partition(f"n{one}", f"n{other}", both_ways=False)
            case 4:
                nodes.network.heal()
            case 5:
                nodes.network.break_connections(f"n{one}", f"n{other}")
            case 6:
                machine = nodes.machines[one]
                if machine.node is not None and machine.starting is not None and machine.starting.done():
                    await nodes.stop(one)
            case _:
                await self._change_voters()
        for number in MACHINES:
            if nodes.machines[number].node is None and self.random.random() < 0.5:
                nodes.launch(number)

    async def _kill_leader(self) -> None:
        """Whom some broker takes for it."""
        try:
            leader = (await self.nodes.quorum(self.random.choice(BROKERS), allow_stale=True)).leader_id
        except KraftlogError as error:
            print(f"no leader is known: {error}")
            return
        await asyncio.sleep(self.random.uniform(0, 0.1))
        if leader in self.nodes.machines and self.nodes.machines[leader].node is not None:
            self.nodes.kill(leader)

    async def _change_voters(self) -> None:
        """Give or take the spare controller's vote, through a broker; any of them may be unable to."""
        asked = self.random.choice(BROKERS)
        try:
            async with asyncio.timeout(10):
                voters = [voter.node_id for voter in (await self.nodes.quorum(asked)).voters]
                if SPARE in voters:
                    request = admin_pb2.RemoveVoterRequest(node_id=SPARE)
                    await self.nodes.ask(asked, "RemoveVoter", request, admin_pb2.RemoveVoterResponse)
                else:
                    await self.nodes.ask(
                        asked, "AddVoter", admin_pb2.AddVoterRequest(node_id=SPARE), admin_pb2.AddVoterResponse
                    )
                self.changed_voters += 1
        except (KraftlogError, TimeoutError) as error:
            print(f"voters stay: {error}")

    async def _heal(self) -> None:
        nodes = self.nodes
        nodes.network.heal()
        for number in MACHINES:
            if nodes.machines[number].node is None:
                nodes.launch(number)
        async with asyncio.timeout(30):
            await nodes.ready(*MACHINES)

    def _check_alive(self) -> None:
        for machine in self.nodes.machines.values():
            assert machine.node is None or machine.node.failure is None, machine.node.failure


def run_seed(seed: int) -> Run:
    print(f"seed {seed}")
    loop = VirtualLoop()
    run = Run(loop, seed)

    async def main() -> None:
        try:
            await run.run()
        finally:
            run.nodes.network.heal()
            await run.nodes.stop_all()

    run_virtual(main(), loop=loop, max_seconds=1_000)
    violation = find_violation(run.history, TopicModel())
    assert violation is None, violation
    return run


def check_load(runs: list[Run]) -> None:
    """The faults were felt, and still most was answered."""
    operations = [operation for run in runs for operation in run.history]
    done = sum(operation.answer is Outcome.DONE for operation in operations)
    assert done > 40 * len(runs)
    assert any(operation.answer is None for operation in operations)
    assert sum(run.changed_voters for run in runs) > 0


@pytest.mark.slow
def test_what_clients_were_answered_is_linearizable() -> None:
    check_load([run_seed(seed) for seed in range(1, 7)])


@pytest.mark.deep
def test_it_is_with_more_seeds() -> None:
    check_load([run_seed(seed) for seed in range(1_000, 1_000 + int(os.environ.get("KRAFTLOG_SEEDS", "200")) // 4)])


# --- the checker sees: rules switched off one at a time


def convicts(seeds: Iterable[int]) -> bool:
    for seed in seeds:
        try:
            run_seed(seed)
        except (AssertionError, KraftlogError, TimeoutError) as error:
            print(f"convicted by seed {seed}: {type(error).__name__}: {str(error)[:500]}")
            return True
    return False


@pytest.mark.slow
def test_reads_that_do_not_ask_the_leader_are_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_barrier(self: ControllerClient) -> None:
        return

    monkeypatch.setattr(ControllerClient, "read_barrier", no_barrier)
    assert convicts(range(1, 7))


@pytest.mark.deep
def test_repeats_without_a_request_id_are_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("create_topics", "delete_topics", "alter_configs"):
        original = getattr(LocalController, name)

        def without_id(
            self: LocalController, request: Message, *, original: Any = original, request_id: bytes | None, **more: Any
        ) -> Any:
            return original(self, request, **more)

        monkeypatch.setattr(LocalController, name, without_id)
    assert convicts(range(1, 200))


@pytest.mark.deep
def test_answers_before_the_disk_has_it_are_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataLog, "flush", lambda self: None)
    assert convicts(range(1, 50))
