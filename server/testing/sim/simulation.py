"""One run: nodes and their clients under the faults of a plan, then healing, progress and a last look at everything.

    simulate(seed) -> SimulationResult

Phases: start and create the topic; load under faults; heal, and within `PROGRESS_TIMEOUT_S` all replicas are in sync and
every partition has acknowledged another record; wait until every record is answered and every answered record is read and committed (liveness); a last power loss, of all nodes
at once; read everything back and compare with the history; stop.
The run is a pure function of the seed and the configuration.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.types import NewTopic
from kraftlog.server.node import Node
from kraftlog.testing.determinism import only_seams
from kraftlog.testing.loop import SimTask, no_garbage_collection
from kraftlog.testing.network import LinkConfig
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.history import InvariantViolation
from kraftlog.testing.sim.machine import Counters, NodeFactory
from kraftlog.testing.sim.nemesis import Nemesis
from kraftlog.testing.sim.plan import draw_plan
from kraftlog.testing.sim.trace import Trace
from kraftlog.testing.sim.wire import MIN_IN_SYNC_REPLICAS
from kraftlog.testing.sim.workload import (
    Client,
    GroupReader,
    MetadataClient,
    Observer,
    Probe,
    ProducerClient,
    Worker,
    read_back,
)
from kraftlog.testing.sim.world import World

TOPIC = "orders"
PROGRESS_TIMEOUT_S = 30.0  # virtual
HEAL_TIMEOUT_S = 300.0  # virtual; the producers' delivery time-out is 120 s
VIRTUAL_SECONDS_MAX = 3_600.0  # a run that is not over by then hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """What a run consists of."""

    nodes: int = 3
    """One: as it is alone. More: each is a broker and a voter, and has a replica of everything."""
    duration_ms: float = 200_000.0
    """Virtual time under faults."""
    partitions: int = 3
    producers: int = 2
    group_readers: int = 2
    link: LinkConfig = field(default_factory=LinkConfig)
    node: Mapping[str, str] = field(default_factory=dict)
    """More keys of `server.properties`."""
    node_factory: NodeFactory = Node
    """Makes the node."""
    checks_node: bool = True
    """Whether the rules of `node_checks` are looked at after every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What came of a run."""

    seed: int
    digest: str
    """SHA-256 of the trace."""
    violation: InvariantViolation | None
    events: int
    virtual_seconds: float
    cpu_seconds: float
    acked: int
    failed: int
    read: int
    compacted: int
    """Acknowledged records that compaction had taken by the end."""
    deleted: int
    """Those that were deleted on request or by retention."""
    starts_moved: int
    """How often a partition came to start later."""
    faults: int
    counters: Counters
    lines: list[str]
    """The trace, or its tail."""

    def __str__(self) -> str:
        verdict = "ok" if self.violation is None else str(self.violation)
        return (
            f"seed {self.seed}: {verdict} | {self.acked} acked, {self.failed} failed, {self.read} read, "
            f"{self.compacted} compacted, {self.deleted} deleted by {self.starts_moved} later starts | "
            f"{self.faults} faults, {self.counters.power_losses} power losses ({self.counters.torn_operations} within an "
            f"operation), {self.counters.kills} kills, {self.counters.stops} stops, "
            f"{self.counters.disk_losses} disks lost, {self.counters.clock_rates} slow or fast clocks "
            f"({self.counters.drift_ms / 1000:.1f} s of drift) | {self.events} events, "
            f"{self.virtual_seconds:.0f} virtual s in {self.cpu_seconds:.2f} s of CPU | trace {self.digest[:16]}"
        )


def simulate(
    seed: int, config: SimulationConfig | None = None, *, keep_trace: bool = False, echo: bool = False
) -> SimulationResult:
    """Run one seed. Never raises for a fault of the simulated program: that is the result's `violation`."""
    config = config or SimulationConfig()
    trace = Trace(keep=keep_trace, echo=echo)
    started = time.process_time()
    with ExitStack() as stack:
        stack.enter_context(no_garbage_collection())
        run = _Run(seed, config, trace)
        stack.enter_context(_logs_to(run.world))
        stack.enter_context(only_seams())
        violation = run.execute()
    return SimulationResult(
        seed=seed,
        digest=trace.digest,
        violation=violation,
        events=run.world.loop.events,
        virtual_seconds=run.virtual_seconds,
        cpu_seconds=time.process_time() - started,
        acked=run.world.history.acked_count,
        failed=run.world.history.failed_count,
        read=run.world.history.read_count,
        compacted=run.world.history.compacted_count,
        deleted=run.world.history.deleted_count,
        starts_moved=run.world.history.starts_moved,
        faults=run.nemesis.faults,
        counters=run.world.counters,
        lines=trace.lines,
    )


@dataclass(frozen=True, slots=True)
class _Retention:
    """How often the node looks for old and idle segments. Records are old only where the nemesis shortens the retention."""

    node_config: Mapping[str, str]
    topic_configs: Mapping[str, str]

    @classmethod
    def draw(cls, randomness: random.Random, *, nodes: int) -> "_Retention":
        if randomness.random() < (0.5 if nodes == 1 else 0.2):
            return cls({}, {})
        interval_ms = randomness.choice((1_000, 5_000))
        return cls({"log.retention.check.interval.ms": str(interval_ms)}, {"segment.ms": "1500"})


@dataclass(frozen=True, slots=True)
class _Compaction:
    """How eagerly the node compacts `__consumer_offsets`, and the users' topic too, if that has keys only."""

    is_on: bool
    node_config: Mapping[str, str]
    topic_configs: Mapping[str, str]

    @classmethod
    def draw(cls, randomness: random.Random) -> "_Compaction":
        if randomness.random() < 0.6:
            return cls(False, {}, {})
        node_config = {
            "log.cleaner.backoff.ms": str(randomness.choice((1_000, 5_000))),
            "log.cleaner.threads": str(randomness.choice((1, 2))),
            "log.cleaner.min.cleanable.ratio": randomness.choice(("0", "0.3")),
            # So slow that a pass takes seconds: faults come in its midst.
            "log.cleaner.io.max.bytes.per.second": randomness.choice(("20000", "1e9")),
        }
        topic_configs = {"cleanup.policy": "compact", "segment.bytes": randomness.choice(("8192", "16384"))}
        return cls(True, node_config, topic_configs)


class _Run:
    def __init__(self, seed: int, config: SimulationConfig, trace: Trace) -> None:
        self.config = config
        self.seeds = SeedSource(seed)
        self.virtual_seconds = 0.0
        shape = self.seeds.stream("shape")
        retention = _Retention.draw(self.seeds.stream("retention"), nodes=config.nodes)
        compaction = _Compaction.draw(self.seeds.stream("compaction"))
        self.world = World(
            self.seeds,
            trace,
            node_config={
                **_node_config(shape),
                **_replication(config.nodes),
                **_open_files(self.seeds.stream("open files")),
                **_metadata_snapshots(self.seeds.stream("metadata snapshots")),
                **retention.node_config,
                **compaction.node_config,
                **config.node,
            },
            node_factory=config.node_factory,
            link_config=config.link,
            nodes=config.nodes,
            is_user_topic=lambda topic: topic == TOPIC,
            checks_node=config.checks_node,
            is_compacted=compaction.is_on,
        )
        segment_bytes = shape.choice((8_192, 32_768, 1 << 20))
        self._topic_configs = {
            "segment.bytes": str(segment_bytes),
            **retention.topic_configs,
            **compaction.topic_configs,
        }
        self._producers = [
            ProducerClient(self.world, f"producer-{number}", TOPIC, config.partitions)
            for number in range(1, config.producers + 1)
        ]
        self._readers: list[GroupReader] = []
        self._reader_count = 0
        self._observer = Observer(self.world, "observer", TOPIC, config.partitions)
        self._metadata_client = MetadataClient(self.world, "metadata-client")
        self.nemesis = Nemesis(
            self.world,
            topic=TOPIC,
            partitions=config.partitions,
            set_storm=self._set_storm,
            replace_reader=self._replace_reader,
        )
        self._tasks: dict[Worker, SimTask[None]] = {}

    def execute(self) -> InvariantViolation | None:
        world = self.world
        started = world.loop.time()
        world.loop.deadline = started + VIRTUAL_SECONDS_MAX
        world.format()
        try:
            world.loop.run_until_complete(self._main())
        except InvariantViolation as violation:
            return violation
        except Exception as error:  # a fault of the simulation: a deadlock, ambient randomness, a bug in its own code
            return InvariantViolation(type(error).__name__, str(error))
        finally:
            self.virtual_seconds = world.loop.time() - started
            world.note(f"end {world.history.violation or 'ok'}")
            world.end()
        return world.history.violation

    async def _main(self) -> None:
        self.world.start()
        await self._create_topic()
        for producer in self._producers:
            self._start(producer)
        self._start(self._observer)
        self._start(self._metadata_client)
        for _ in range(self.config.group_readers):
            self._add_reader()
        plan = draw_plan(self.seeds.stream("plan"), duration_ms=self.config.duration_ms, nodes=len(self.world.machines))
        await self.nemesis.inflict(plan, self._hosts)
        await self._heal()
        await self._finish_producers()
        await self._wait_for_readers()
        await self._check_what_is_stored()
        await self._stop_everything()

    def _start(self, client: Worker) -> None:
        self._tasks[client] = self.world.spawn_client(client.process, client.run(), name=client.host)

    def _add_reader(self) -> None:
        self._reader_count += 1
        reader = GroupReader(self.world, f"reader-{self._reader_count}", TOPIC)
        self._readers.append(reader)
        self._start(reader)

    async def _create_topic(self) -> None:
        client = Client(self.world, "admin")

        async def create() -> None:
            while True:
                if all(machine.is_up for machine in self.world.machines):  # each has a replica
                    break
                await asyncio.sleep(0.1)
            async with AsyncAdmin(
                bootstrap_servers=self.world.address,
                connector=client.network,
                clock=client.clock,
                random=client.random,
            ) as admin:
                topic = NewTopic(
                    name=TOPIC,
                    num_partitions=self.config.partitions,
                    replication_factor=len(self.world.machines),
                    configs=self._topic_configs,
                )
                await admin.create_topics([topic])

        await asyncio.wait([self.world.spawn_client(client.process, create(), name="create topic")])

    def _hosts(self) -> list[str]:
        clients: list[Worker] = [*self._producers, self._observer, self._metadata_client, *self._readers]
        return [client.host for client in clients]

    def _set_storm(self, is_storm: bool) -> None:
        for producer in self._producers:
            producer.is_storm = is_storm

    def _replace_reader(self, index: int) -> None:
        self._readers.pop(index % len(self._readers)).is_leaving = True
        self._add_reader()

    # --- progress

    async def _heal(self) -> None:
        world = self.world
        world.note("heal everything")
        world.network.heal()
        for machine in world.machines:
            machine.fs.stop_after(None)
            machine.set_clock_rate(1.0)
        world.start()
        deadline = world.loop.time() + PROGRESS_TIMEOUT_S
        probe = Probe(world, "probe", TOPIC, self.config.partitions)
        probing = world.spawn_client(probe.process, probe.run(), name=probe.host)
        await self.nemesis.restore_topic()
        while out_of_sync := world.out_of_sync():
            if world.loop.time() > deadline:
                world.history.violate("I-11", f"{PROGRESS_TIMEOUT_S:.0f} s after healing: {out_of_sync}")
                return
            await asyncio.sleep(0.2)
        await asyncio.wait([probing], timeout=max(0.0, deadline - world.loop.time()))
        if not probing.done():
            world.history.violate(
                "I-11", f"{PROGRESS_TIMEOUT_S:.0f} s after healing {probe.waits_for} acknowledged nothing"
            )

    async def _finish_producers(self) -> None:
        for producer in self._producers:
            producer.is_leaving = True
        await asyncio.wait([self._tasks[producer] for producer in self._producers], timeout=HEAL_TIMEOUT_S)
        unanswered = self.world.history.unanswered()
        if unanswered:
            self.world.history.violate(
                "LIVENESS", f"{len(unanswered)} sends have no answer after healing, first {unanswered[0].value[:20]!r}"
            )

    async def _wait_for_readers(self) -> None:
        """Everything that was acknowledged is read by the observer and committed by the group."""
        world, history = self.world, self.world.history
        deadline = world.loop.time() + HEAL_TIMEOUT_S
        while missing := self._missing():
            if world.loop.time() > deadline:
                history.violate("LIVENESS", f"after healing: {missing}")
                return
            await asyncio.sleep(0.5)

    def _missing(self) -> str:
        for where, partition in self.world.history.partitions.items():
            end = partition.acked_end
            if end <= partition.gone_below:
                continue
            if self._observer.positions.get(where, 0) < end:
                return f"the observer is at {self._observer.positions.get(where, 0)} of {end} in {where}"
            committed = self.world.history.committed_floor(GroupReader.GROUP, where)
            if committed < end:
                return f"the group has committed {committed} of {end} in {where}"
        return ""

    async def _check_what_is_stored(self) -> None:
        """One more power loss, and all that was acknowledged must still be there."""
        world = self.world
        for machine in world.machines:
            machine.lose_power(10)
        logs = await read_back(world, TOPIC, self.config.partitions)
        for where, records in logs.items():
            world.history.check_log(where, records)
        if len(world.machines) > 1:
            await self._compare_replicas()

    async def _compare_replicas(self) -> None:
        """They have the same end, and the same records."""
        world = self.world
        deadline = world.loop.time() + PROGRESS_TIMEOUT_S
        for where in world.history.partitions:
            while len(ends := {machine.durable.end_offset(*where) for machine in world.machines}) > 1:
                if world.loop.time() > deadline:
                    world.history.violate("I-12", f"{where}: the replicas end at {sorted(ends)}")
                    return
                await asyncio.sleep(0.2)
            world.checks.check_survivors(where, {each.number: each.durable.records(*where) for each in world.machines})

    async def _stop_everything(self) -> None:
        for reader in self._readers:
            reader.is_leaving = True
        self._observer.is_leaving = True
        self._metadata_client.is_leaving = True
        _, running = await asyncio.wait(list(self._tasks.values()), timeout=HEAL_TIMEOUT_S)
        if running:
            names = sorted(task.get_name() for task in running)
            self.world.history.violate("LIVENESS", f"clients did not close: {', '.join(names)}")
        await asyncio.gather(*(machine.stop(down_ms=1e9) for machine in self.world.machines))


class _LogHandler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.on_log(record)


@contextmanager
def _logs_to(world: World) -> Iterator[None]:
    """What kraftlog logs goes to the world instead of the terminal."""
    logger = logging.getLogger("kraftlog")
    handler = _LogHandler(world)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _node_config(shape: random.Random) -> dict[str, str]:
    """What varies from seed to seed in the node's configuration."""
    return {
        "offsets.topic.num.partitions": "2",
        "offsets.topic.segment.bytes": str(shape.choice((8_192, 1 << 20))),
        "group.initial.rebalance.delay.ms": str(shape.choice((0, 100))),
        "group.min.session.timeout.ms": "1000",
        "controlled.shutdown.max.wait.ms": "1000",
    }


def _replication(nodes: int) -> dict[str, str]:
    """Every node has a replica of everything, and two of three must have what is acknowledged."""
    if nodes == 1:
        return {}
    return {
        "default.replication.factor": str(nodes),
        "offsets.topic.replication.factor": str(nodes),
        "min.insync.replicas": str(MIN_IN_SYNC_REPLICAS),
    }


def _open_files(randomness: random.Random) -> dict[str, str]:
    """How few segments the node may keep open: in half of the seeds files are opened anew all the time."""
    return {"log.max.open.files": str(randomness.choice((1, 3)))} if randomness.random() < 0.5 else {}


def _metadata_snapshots(randomness: random.Random) -> dict[str, str]:
    """How often the node takes a snapshot of its metadata: in half of the seeds every few operations or seconds."""
    if randomness.random() < 0.5:
        return {}
    return {
        "metadata.log.max.record.bytes.between.snapshots": str(randomness.choice((200, 1_000, 1 << 20))),
        "metadata.log.max.snapshot.interval.ms": str(randomness.choice((500, 5_000))),
    }
