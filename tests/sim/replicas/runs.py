"""Random runs of the world of one partition."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from kraftlog.logstore.cleaning import CleaningPass, Step, look_for_dirt
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaBody
from tests.sim.replicas.world import Fate, Node, Stream, Violation, World

STEPS = 1_000
HEAL_ROUNDS = 400
REQUEST_FATES = (Fate.REQUEST_LOST, Fate.REQUEST_LATE, Fate.ANSWER_LOST, Fate.UNDONE, Fate.ANSWERED)


@dataclass(frozen=True, slots=True)
class Mode:
    """Which faults there are."""

    name: str
    power_loss: float = 0.0
    kill: float = 0.0
    stop: float = 0.0
    cut: float = 0.0
    lost_disk: float = 0.0
    damage: float = 0.0
    """Found in a log that is in use: it is thrown away if another replica can lead."""
    stall: float = 0.0
    """A stream stands still, or what a node hears of the metadata does."""
    election: float = 0.0
    """Of the preferred leader, at any time."""
    fail_over: float = 0.0
    """Of the controller."""
    deletion: float = 0.0
    """Of records, by a client."""
    compaction: float = 0.0
    """Of one replica's log."""
    lost_requests: float = 0.15
    """For each way in which a request for another ISR may go wrong."""
    reassignment: float = 0.0
    """To other replicas, or the cancellation of one."""
    replicas: int | None = None
    """At first; None: one on each node."""
    switch: float = 0.0
    """Of flush.policy, to and fro; an operator then also takes what there is where nobody may lead."""
    minimum: float = 0.0
    """Of replicas in sync: another one."""
    flushes: int = 8
    """How often a disk is done, beside 8 records written."""
    clock_rates: tuple[float, float] = (1.0, 1.0)
    nodes: int = 3
    configs: tuple[tuple[str, str], ...] = ()


MODES = (
    Mode("calm"),
    Mode("cuts", cut=0.01),
    Mode("kills", kill=0.004, stop=0.002, cut=0.004),
    Mode("power", power_loss=0.004, cut=0.004),
    Mode("all", power_loss=0.003, kill=0.003, stop=0.002, cut=0.006),
    Mode("disks", power_loss=0.003, lost_disk=0.003, cut=0.003),
    Mode("alone", power_loss=0.003, kill=0.003, cut=0.004, configs=(("min.insync.replicas", "1"),)),
    Mode("stalls", stall=0.03, kill=0.002, cut=0.006),
    Mode("elections", stall=0.02, election=0.02, kill=0.002, cut=0.004, power_loss=0.002),
    Mode("slow disks", stall=0.02, lost_disk=0.004, kill=0.004, lost_requests=0.2),
    Mode("damage", damage=0.01, stall=0.02, power_loss=0.002, kill=0.002, cut=0.004),
    Mode("minimum", minimum=0.01, stall=0.03, power_loss=0.002, kill=0.002, cut=0.006),
    Mode("controllers", fail_over=0.01, power_loss=0.003, cut=0.006, clock_rates=(0.9, 1.1)),
    Mode("deletions", deletion=0.03, stall=0.02, lost_disk=0.003, power_loss=0.003, cut=0.004),
    Mode(
        "unclean",
        power_loss=0.006,
        kill=0.003,
        cut=0.006,
        lost_disk=0.003,
        configs=(("unclean.leader.election.enable", "true"),),
    ),
    Mode(
        "five", nodes=5, stall=0.02, power_loss=0.004, cut=0.006, election=0.01, configs=(("min.insync.replicas", "3"),)
    ),
    Mode("reassignments", nodes=5, replicas=3, reassignment=0.01, stall=0.01, cut=0.004),
    Mode(
        "reassignments and faults",
        nodes=5,
        replicas=1,
        reassignment=0.01,
        power_loss=0.003,
        kill=0.002,
        cut=0.004,
        stall=0.02,
        fail_over=0.005,
        election=0.005,
    ),
    Mode(
        "compaction",
        compaction=0.05,
        stall=0.005,
        power_loss=0.001,
        lost_disk=0.004,
        kill=0.003,
        cut=0.001,
        configs=(("cleanup.policy", "compact"),),
    ),
    Mode("memory", kill=0.004, stop=0.002, cut=0.006, configs=(("flush.policy", "interval"),)),
    Mode("policies", switch=0.03, flushes=2, power_loss=0.008, cut=0.01, stall=0.01, fail_over=0.004, election=0.005),
)


class Run:
    """One seed in one mode."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.random = random.Random(f"{mode.name}-{seed}")
        self.mode = mode
        self.world = World(seed, nodes=mode.nodes, replicas=mode.replicas, configs=dict(mode.configs))
        for node in self.world.nodes.values():
            node.clock_rate = self.random.uniform(*mode.clock_rates)
        self.cut: set[int] = set()
        """Nodes that the controller does not hear, and that do not hear it."""
        self.stale: set[int] = set()
        """Nodes that get no metadata, though their heartbeats arrive."""
        self.stalled: set[tuple[int, int]] = set()
        """Streams on which nothing moves."""

    def run(self, steps: int = STEPS) -> None:
        world = self.world
        for step in range(steps):
            self._step()
            world.check()
            if step % 20 == 0:
                world.check_contents()
        self.heal()

    # --- steps

    def _step(self) -> None:
        self._fault()
        world = self.world
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self._produce),
            (4, self._metadata),
            (self.mode.flushes, self._flush),
            (4, self._connect),
            (40, self._pump),
            (4, self._truncate),
            (4, self._propose),
            (4, self._answer),
            (1, self._late),
            (6, self._time),
            (5, self._start),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices(actions, weights)[0][1]()
        world.acknowledge()

    def _up(self) -> list[Node]:
        return [node for node in self.world.nodes.values() if node.is_up]

    def _leaders(self) -> list[Node]:
        return [node for node in self._up() if node.partition.is_leader]

    def _produce(self) -> None:
        if leaders := self._leaders():
            self.world.produce(self.random.choice(leaders))

    def _metadata(self) -> None:
        if nodes := [node for node in self._up() if node.node_id not in self.cut | self.stale]:
            self.random.choice(nodes).apply_next(self.random.choice((1, 1, 2, 5)))

    def _flush(self) -> None:
        if nodes := self._up():
            flush(self.random.choice(nodes))

    def _connect(self) -> None:
        nodes = self._up()
        if len(nodes) < 2:
            return
        follower, leader = self.random.sample(nodes, 2)
        if (follower.node_id, leader.node_id) not in self.world.streams:
            self.world.connect(follower, leader)

    def _pump(self) -> None:
        if streams := [stream for key, stream in self.world.streams.items() if key not in self.stalled]:
            pump(self.random.choice(streams), self.world, self.random.randrange(4))

    def _truncate(self) -> None:
        if nodes := self._up():
            node = self.random.choice(nodes)
            if node.cut is None:
                node.begin_cut()
            else:
                node.end_cut()

    def _propose(self) -> None:
        if leaders := [node for node in self._leaders() if node.node_id not in self.cut]:
            *bad, good = REQUEST_FATES
            weights = [self.mode.lost_requests] * len(bad)
            if not self.mode.fail_over:
                weights[bad.index(Fate.UNDONE)] = 0
            fate = self.random.choices([*bad, good], [*weights, 1 - sum(weights)])[0]
            self.world.propose(self.random.choice(leaders), fate)

    def _late(self) -> None:
        self.world.late_request_arrives(self.random.randrange(1 << 16))

    def _answer(self) -> None:
        if nodes := self._up():
            self.world.take_answer(self.random.choice(nodes))

    def _time(self) -> None:
        world = self.world
        world.now_ms += self.random.choice([10, 100, 500, 1_000])
        for node in self._up():
            if node.node_id not in self.cut:
                self._heartbeat(node)
        world.poll_controller()

    def _heartbeat(self, node: Node) -> None:
        self.world.heartbeat(node)
        self.world.poll_controller()

    def _start(self) -> None:
        if down := [node for node in self.world.nodes.values() if not node.is_up]:
            self.world.start(self.random.choice(down))

    # --- faults

    def _fault(self) -> None:
        world, mode = self.world, self.mode
        up = self._up()
        if (streams := list(world.streams)) and self.random.random() < 0.01:
            key = self.random.choice(streams)
            del world.streams[key]
            world.note(f"stream {key} breaks")
        if self.random.random() < mode.cut:
            node_id = self.random.choice(list(world.nodes))
            (self.cut.discard if node_id in self.cut else self.cut.add)(node_id)
            world.note(f"cut off from the controller: {sorted(self.cut)}")
        self._stall()
        if self.random.random() < mode.election:
            world.elect_preferred()
        if self.random.random() < mode.fail_over:
            world.fail_over()
        if self.random.random() < mode.reassignment:
            target = self.random.sample(list(world.nodes), self.random.choice((1, 2, 3, 3)))
            world.reassign(None if self.random.random() < 0.2 else target)
        if self.random.random() < mode.switch:
            world.set_config("flush.policy", self.random.choice(("ack", "interval")))
        if self.random.random() < mode.minimum:
            world.set_config("min.insync.replicas", str(self.random.randint(1, len(world.nodes))))
        if mode.switch and world.state.leader_id < 0 and self.random.random() < 0.02:
            world.elect_uncleanly()
        if self.random.random() < mode.deletion and (leaders := self._leaders()):
            leader = self.random.choice(leaders)
            world.delete_records(leader, self.random.randint(0, leader.partition.high_watermark))
        if not up:
            return
        if self.random.random() < mode.compaction:
            compact(self.random.choice(up))
        if self.random.random() < mode.damage:
            self.random.choice(up).find_damage()
        node = self.random.choice(up)
        if self.random.random() < mode.power_loss:
            self._end(node, "loses power", lambda: node.crash(self.random, loses_unsynced=True))
        elif self.random.random() < mode.kill:
            self._end(node, "is killed", lambda: node.crash(self.random, loses_unsynced=False))
        elif self.random.random() < mode.stop:
            self._end(node, "stops", node.stop_in_order)
        elif self.random.random() < mode.lost_disk and self._may_lose_disk(node):
            self._end(node, "loses its disk", lambda: node.lose_disk(self.random))

    def _stall(self) -> None:
        if self.random.random() >= self.mode.stall:
            return
        if self.random.random() < 0.3:
            node_id = self.random.choice(list(self.world.nodes))
            (self.stale.discard if node_id in self.stale else self.stale.add)(node_id)
            self.world.note(f"no metadata reach {sorted(self.stale)}")
            return
        follower, leader = self.random.sample(list(self.world.nodes), 2)
        key = (follower, leader)
        (self.stalled.discard if key in self.stalled else self.stalled.add)(key)
        self.world.note(f"streams that stand still: {sorted(self.stalled)}")

    def _may_lose_disk(self, node: Node) -> bool:
        """One disk at a time, and not while others are needed to have everything: nobody promises more."""
        state = self.world.state
        return len(state.in_sync_replicas) == len(self.world.nodes) and len(self._up()) == len(self.world.nodes)

    def _end(self, node: Node, how: str, end: Callable[[], None]) -> None:
        self.world.note(f"node {node.node_id} {how}")
        self.world.drop_streams(node)
        end()

    # --- the end

    def heal(self) -> None:
        """No faults any more: all replicas become equal, and have what was acknowledged."""
        world = self.world
        for faults in (self.cut, self.stale, self.stalled, world.late_requests):
            faults.clear()
        world.note("heal")
        for round_number in range(HEAL_ROUNDS):
            for node in world.nodes.values():
                if not node.is_up:
                    world.start(node)
            world.now_ms += 200
            for node in self._up():
                self._heartbeat(node)
            if round_number == HEAL_ROUNDS // 2 and world.state.leader_id < 0:
                self._check_may_be_offline()
                world.elect_uncleanly()
            for node in self._up():
                while node.apply_next():
                    pass
                node.begin_cut()
                node.end_cut()
                flush(node)
                if node.partition.is_leader:
                    world.propose(node)
                world.take_answer(node)
                for other in self._up():
                    if other is not node and (node.node_id, other.node_id) not in world.streams:
                        world.connect(node, other)
            for stream in list(world.streams.values()):
                for direction in (1, 2, 0, 3) * 3:
                    pump(stream, world, direction)
            world.check()
            if round_number > 20 and self._is_healed():
                break
        else:
            raise Violation(f"not healed: {world.state}, ends {[n.log.log_end_offset for n in world.nodes.values()]}")
        world.check_contents()
        world.check_equal()

    def _check_may_be_offline(self) -> None:
        """Only where nobody is known to have everything."""
        is_always_flushed = self.mode.switch == 0 and dict(self.mode.configs).get("flush.policy") != "interval"
        if self.mode.lost_disk == 0 and is_always_flushed:
            raise Violation(f"no leader, though every disk is there: {self.world.state}")

    def _is_healed(self) -> bool:
        world = self.world
        if len(self._up()) < len(world.nodes):
            return False
        ends = {node.log.log_end_offset for node in world.replicas}
        marks = {node.partition.high_watermark for node in world.replicas}
        is_whole = set(world.state.in_sync_replicas) == set(world.state.replicas) and not world.state.is_reassigning
        return is_whole and len(ends) == 1 and marks == ends


def flush(node: Node) -> None:
    node.log.flush()
    node.partition.on_flushed()
    for following in node.followings.values():
        following.ends_changed(node.partition.key)


def compact(node: Node) -> None:
    """All that is committed, as far as the node knows, in one pass."""
    if node.partition.is_being_cut:
        return
    log, now_ms = node.log, int(node.world.now_ms)
    log.roll(now_ms)
    dirtiness = look_for_dirt(
        log,
        cleaned_to=log.log_start_offset,
        stable_offset=log.last_stable_offset(node.partition.high_watermark),
        truncations=log.truncations,
        now_ms=now_ms,
    )
    if dirtiness is None:
        return
    cleaning = CleaningPass(log, dirtiness, now_ms=now_ms, map_bytes=1 << 16, sip_key=bytes(16))
    while (step := cleaning.step()) is not Step.DONE:
        assert step is not Step.VOID
        if step is Step.COMMIT:
            assert cleaning.commit()
            cleaning.finish_commit()
    cleaning.close()
    node.world.note(f"{node.node_id} is compacted below {cleaning.end_offset}")
    flush(node)


def pump(stream: Stream, world: World, direction: int) -> None:
    """Move one thing on a stream. What an end refuses is a violation: both are ours."""
    match direction:
        case 0:
            stream.feed.data_available(stream.leader.partition.key)
            stream.to_follower.extend(as_sent(stream.feed.poll(stream.leader.now_ms, 1 << 20)))
        case 1:
            stream.to_leader.extend(as_sent(stream.following.poll(stream.follower.now_ms)))
        case 2:
            if stream.to_leader:
                stream.feed.receive(stream.to_leader.popleft(), stream.leader.now_ms)
        case _:
            if stream.to_follower:
                stream.following.receive(stream.to_follower.popleft(), stream.follower.now_ms)


def as_sent(frames: list[ReplicaBody]) -> list[ReplicaBody]:
    return [each for body in frames for each in REPLICA_FRAMES.decode(b"".join(REPLICA_FRAMES.encode(body)))]
