"""Carries out the faults of a plan on a world, and mends what needs a hand: a node whose disk was lost gets its vote again.
Some faults are an operator's doing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import permutations

from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.types import TopicPartition
from kraftlog.testing.loop import SimTask
from kraftlog.testing.sim.machine import Machine
from kraftlog.testing.sim.plan import Fault, Plan, PlannedFault
from kraftlog.testing.sim.wire import MIN_IN_SYNC_REPLICAS
from kraftlog.testing.sim.workload import Client
from kraftlog.testing.sim.world import World

REPAIR_PAUSE_S = 0.5  # virtual, between two looks of the operator
SWITCH_PATIENCE_S = 60.0
FLUSH_POLICY_DOWN_MS = 500.0
CONFIGS: tuple[Mapping[str, object], ...] = (
    {"min.insync.replicas": MIN_IN_SYNC_REPLICAS + 1},
    {"min.insync.replicas": MIN_IN_SYNC_REPLICAS},
    {"segment.bytes": 8_192},
    {"segment.bytes": 1 << 20},
    {"segment.ms": 1_500},
    {"segment.ms": 3_600_000},
)
"""None of them makes less safe what is acknowledged, and none takes records away."""
RETENTION_MS = (2_000, 10_000, 40_000)
RETENTION_BYTES = (4_096, 20_000, 100_000)
KEPT_FOR_EVER = {"retention.ms": 7 * 24 * 3_600_000, "retention.bytes": -1}  # as far as a run can see


class Nemesis:
    """Used from the world's loop."""

    def __init__(
        self,
        world: World,
        *,
        topic: str,
        partitions: int,
        set_storm: Callable[[bool], None],
        replace_reader: Callable[[int], None],
    ) -> None:
        """`topic`, `partitions`: of the load."""
        self._topic = topic
        self._partitions = partitions
        self.world = world
        self.faults = 0
        """How many it has carried out."""
        self._asking: dict[SimTask[None], None] = {}
        """Operators whose one request may have its effect still."""
        self._set_load = set_storm
        self._replace_reader = replace_reader

    async def inflict(self, plan: Plan, hosts: Callable[[], list[str]]) -> None:
        """Return at the end of the plan. `hosts`: of the clients at the moment."""
        loop = self.world.loop
        started = loop.time()
        for begin_ms, end_ms in plan.storms:
            loop.call_at(started + begin_ms / 1000, self._set_storm, True)
            loop.call_at(started + end_ms / 1000, self._set_storm, False)
        for planned in plan.faults:
            await asyncio.sleep(max(0.0, started + planned.at_ms / 1000 - loop.time()))
            self.faults += 1
            self.world.note(
                f"fault {planned.fault} {planned.duration_ms:.0f} {planned.amount} {planned.client} {planned.node}"
            )
            client_hosts = hosts()
            await self._fault(planned, client_hosts[planned.client % len(client_hosts)])
        await asyncio.sleep(max(0.0, started + plan.duration_ms / 1000 - loop.time()))

    def _set_storm(self, is_storm: bool) -> None:
        self.world.note("storm" if is_storm else "calm")
        self._set_load(is_storm)

    async def _fault(self, planned: PlannedFault, client: str) -> None:
        world = self.world
        machine = world.machines[planned.node]
        match planned.fault:
            case Fault.POWER_LOSS:
                machine.lose_power(planned.duration_ms, again_after=planned.amount)
            case Fault.LEADER_POWER_LOSS:
                self._leader(planned).lose_power(planned.duration_ms, again_after=planned.amount)
            case Fault.POWER_LOSS_OF_ALL:
                for place, each in enumerate(world.machines, 1):
                    each.lose_power(planned.duration_ms * place / len(world.machines))
            case Fault.POWER_LOSS_IN_WRITE:
                machine.lose_power_in_operation(planned.amount, planned.duration_ms)
            case Fault.DISK_LOSS:
                self._lose_disk(machine, planned.duration_ms)
            case Fault.KILL:
                machine.kill(planned.duration_ms)
            case Fault.STOP:
                await machine.stop(planned.duration_ms)
            case Fault.BREAK:
                world.network.break_connections(client, machine.host)
            case Fault.SLOW_DISK:
                machine.slow_disk(planned.amount)
                world.loop.call_later(planned.duration_ms / 1000, machine.slow_disk, 1.0)
            case Fault.CLOCK_JUMP:
                machine.clock.be_off_by(planned.amount)
            case Fault.CLOCK_RATE:
                machine.set_clock_rate(planned.amount / 100)
                world.loop.call_later(planned.duration_ms / 1000, machine.set_clock_rate, 1.0)
            case Fault.REASSIGN:
                self._ask_once(self._reassign(planned))
            case Fault.CONFIG:
                self._ask_once(self._configure(CONFIGS[planned.amount % len(CONFIGS)]))
            case Fault.DELETE_RECORDS:
                self._ask_once(self._delete_records(planned))
            case Fault.RETENTION:
                self._operate(self._shorten_retention(planned))
            case Fault.FLUSH_POLICY:
                await self._switch_flush_policy(planned)
            case Fault.CONSUMER_LEAVES:
                self._replace_reader(planned.client)
            case _:
                self._cut(planned, machine.host, client)
                world.loop.call_later(planned.duration_ms / 1000, world.network.heal)

    def _cut(self, planned: PlannedFault, host: str, client: str) -> None:
        partition = self.world.network.partition
        others = [machine.host for machine in self.world.machines if machine.host != host]
        match planned.fault:
            case Fault.PARTITION:
                partition(host, client)
            case Fault.PARTITION_ONE_WAY:
                partition(host, client, both_ways=False)
            case Fault.CUT_OFF:
                for other in others:
                    partition(host, other)
            case Fault.CUT_OFF_ONE_WAY:
                for other in others:
                    source, target = (other, host) if planned.amount else (host, other)
                    partition(source, target, both_ways=False)
            case _:
                partition(host, others[planned.client % len(others)], both_ways=not planned.amount)

    def _leader(self, planned: PlannedFault) -> Machine:
        leaders = self.world.leaders()
        return leaders[planned.client % len(leaders)] if leaders else self.world.machines[planned.node]

    # --- an operator, who asks once

    def _operate(self, work: Callable[[AsyncAdmin], Awaitable[None]]) -> SimTask[None]:
        operator = Client(self.world, f"operator-{self.faults}")
        return self.world.spawn_client(operator.process, self._ask(operator, work), name=operator.host)

    def _ask_once(self, work: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
        self._asking[self._operate(work)] = None

    async def _ask(self, operator: Client, work: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
        async with self._admin(operator) as admin:
            try:
                await work(admin)
            except KraftlogError as error:
                self.world.note(f"{operator.host} failed: {type(error).__name__}")

    def _reassign(self, planned: PlannedFault) -> Callable[[AsyncAdmin], Awaitable[None]]:
        """Two replicas are enough for what is acknowledged; the third one, if it is taken away, goes with its log."""
        numbers = [machine.number for machine in self.world.machines]
        choices = [*permutations(numbers), *permutations(numbers, len(numbers) - 1)]
        where = TopicPartition(self._topic, planned.client % self._partitions)
        replicas = choices[planned.amount % len(choices)]

        async def work(admin: AsyncAdmin) -> None:
            if all(machine.is_whole for machine in self.world.machines):
                await admin.alter_partition_reassignments({where: replicas})
                self.world.note(f"{where} goes to {replicas}")

        return work

    def _configure(self, configs: Mapping[str, object]) -> Callable[[AsyncAdmin], Awaitable[None]]:
        async def work(admin: AsyncAdmin) -> None:
            await admin.alter_configs(self._topic, set=configs)
            self.world.note(f"{self._topic} has {dict(configs)}")

        return work

    def _delete_records(self, planned: PlannedFault) -> Callable[[AsyncAdmin], Awaitable[None]]:
        where = (self._topic, planned.client % self._partitions)

        async def work(admin: AsyncAdmin) -> None:
            history = self.world.history
            before_offset = history.partition(where).acked_end * planned.amount // 100
            history.on_delete_asked(where, before_offset)
            starts = await admin.delete_records({TopicPartition(*where): before_offset})
            history.on_deleted(where, starts[TopicPartition(*where)])
            self.world.note(f"{where} starts at {starts[TopicPartition(*where)]}")

        return work

    def _shorten_retention(self, planned: PlannedFault) -> Callable[[AsyncAdmin], Awaitable[None]]:
        """And long again, however often that must be asked for."""
        choice = planned.amount % (len(RETENTION_MS) + len(RETENTION_BYTES))
        configs: dict[str, object]
        if choice < len(RETENTION_MS):
            configs = {"retention.ms": RETENTION_MS[choice]}
            self.world.history.on_retention_asked(retention_ms=RETENTION_MS[choice])
        else:
            least_bytes = RETENTION_BYTES[choice - len(RETENTION_MS)]
            configs = {"retention.bytes": least_bytes}
            self.world.history.on_retention_asked(retention_bytes=least_bytes)

        async def work(admin: AsyncAdmin) -> None:
            try:
                await self._configure(configs)(admin)
                await asyncio.sleep(planned.duration_ms / 1000)
            finally:
                await self._until_done(lambda: self._configure(KEPT_FOR_EVER)(admin))

        return work

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except KraftlogError as error:
                self.world.note(f"{self._topic} is not restored yet: {type(error).__name__}")
                await asyncio.sleep(REPAIR_PAUSE_S)

    async def restore_topic(self) -> None:
        """After healing: all partitions on all nodes again, of which `MIN_IN_SYNC_REPLICAS` must be in sync."""
        numbers = [machine.number for machine in self.world.machines]
        if len(numbers) == 1:
            return

        async def work(admin: AsyncAdmin) -> None:
            where = {TopicPartition(self._topic, number): numbers for number in range(self._partitions)}
            configs = {"min.insync.replicas": MIN_IN_SYNC_REPLICAS, **KEPT_FOR_EVER}
            await self._until_done(lambda: admin.alter_partition_reassignments(where))
            await self._until_done(lambda: admin.alter_configs(self._topic, set=configs))

        self.faults += 1
        asking = [task for task in self._asking if not task.done()]
        if asking:  # a request that comes through after the restoration would undo it
            await asyncio.wait(asking)
        await asyncio.wait([self._operate(work)])

    # --- a lost disk

    def _lose_disk(self, machine: Machine, down_ms: float) -> None:
        """Unless a node has not recovered from the last time: with two disks of three, acknowledged records are gone."""
        if not all(each.is_whole for each in self.world.machines):
            return
        lost = machine.directory_id
        machine.lose_disk(down_ms)
        operator = Client(self.world, f"operator-{self.world.counters.disk_losses}")
        work = self._repair(operator, machine, lost)
        self.world.spawn_client(operator.process, work, name=operator.host)

    def _admin(self, operator: Client) -> AsyncAdmin:
        return AsyncAdmin(
            bootstrap_servers=self.world.address,
            client_id=operator.host,
            request_timeout_ms=3_000,
            default_api_timeout_ms=10_000,
            connector=operator.network,
            clock=operator.clock,
            random=operator.random,
        )

    async def _repair(self, operator: Client, machine: Machine, lost: bytes) -> None:
        async with self._admin(operator) as admin:
            while True:
                if await self._has_vote(admin, machine, lost) and not self.world.out_of_sync():
                    break
                await asyncio.sleep(REPAIR_PAUSE_S)
        self.world.note(f"{machine.host} is whole")
        machine.is_whole = True

    async def _has_vote(self, admin: AsyncAdmin, machine: Machine, lost: bytes) -> bool:
        """Take one step towards it: the old disk's vote goes first, as it cannot be given any more."""
        try:
            quorum = await admin.describe_metadata_quorum()
            voters = {voter.directory_id for voter in quorum.voters if voter.node_id == machine.number}
            if uuid_to_text(lost) in voters:
                await admin.remove_voter(machine.number, uuid_to_text(lost))
            elif not voters:
                await admin.add_voter(machine.number, uuid_to_text(machine.directory_id))
            else:
                return True
        except KraftlogError as error:
            self.world.note(f"{machine.host} has no vote yet: {type(error).__name__}")
        return False

    # --- flush.policy

    async def _switch_flush_policy(self, planned: PlannedFault) -> None:
        """Unless something is out of order: with acknowledgments from memory, nobody promises more than Kafka does."""
        if self.world.out_of_sync() or not all(machine.is_whole for machine in self.world.machines):
            return
        operator = Client(self.world, f"operator-{self.faults}")
        work = self._switch_to_and_fro(operator, planned.duration_ms / 1000)
        await asyncio.wait([self.world.spawn_client(operator.process, work, name=operator.host)])
        if planned.amount:
            for machine in self.world.machines:
                machine.lose_power(FLUSH_POLICY_DOWN_MS)

    async def _switch_to_and_fro(self, operator: Client, pause_s: float) -> None:
        world = self.world
        async with self._admin(operator) as admin:
            world.history.counts_memory = True
            await self._set_policy(admin, "interval")
            await asyncio.sleep(pause_s)
            await self._set_policy(admin, "ack")
            deadline = world.loop.time() + SWITCH_PATIENCE_S
            while not await self._is_flushed(admin):
                if world.loop.time() > deadline:
                    world.history.violate("LIVENESS", f"flush.policy=ack has no effect after {SWITCH_PATIENCE_S:.0f} s")
                    return
                await asyncio.sleep(REPAIR_PAUSE_S / 10)
        world.note("flush.policy=ack is in effect")
        world.history.counts_memory = False

    async def _set_policy(self, admin: AsyncAdmin, policy: str) -> None:
        while True:
            try:
                return await admin.alter_configs(self._topic, set={"flush.policy": policy})
            except KraftlogError as error:
                self.world.note(f"flush.policy={policy} is not set yet: {type(error).__name__}")
                await asyncio.sleep(REPAIR_PAUSE_S)

    async def _is_flushed(self, admin: AsyncAdmin) -> bool:
        try:
            [topic] = await admin.describe_topics([self._topic])
        except KraftlogError:
            return False
        return all(partition.flushed for partition in topic.partitions)
