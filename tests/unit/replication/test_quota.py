"""Throttled replication (KIP-73): both ends of replica streams, with logs in memory and a clock that the test moves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from kraftlog.kraft.controller import IsrChange
from kraftlog.kraft.image import BrokerImage, MetadataImage, PersistentMap
from kraftlog.logstore import Log, LogConfig, ThrottledReplicas
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaBody, ReplicaRecords
from kraftlog.proto.seams import Buffer
from kraftlog.replication.exchange import joined
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.following import LeaderFollowing
from kraftlog.replication.in_sync import ReplicaEnds
from kraftlog.replication.isr_updates import IsrOutcome, IsrUpdates
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.quota import MAX_PIECE_BYTES, ReplicationQuota
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import NOW_MS, append

LEADER, FOLLOWER, OTHER = 1, 2, 3
BATCH = 10_000  # bytes, roughly
RATE = 100_000
SLOW, FREE = ("slow", 0), ("free", 0)
THROTTLED = LogConfig(
    leader_replication_throttled_replicas=ThrottledReplicas(is_all=True),
    follower_replication_throttled_replicas=ThrottledReplicas(is_all=True),
)


class Broker:
    """Some partitions, one log each, and both quotas."""

    def __init__(self, node_id: int, *, leader_rate: float = math.inf, follower_rate: float = math.inf) -> None:
        self.node_id = node_id
        self.leader, self.follower = ReplicationQuota.of_leader(node_id), ReplicationQuota.of_follower(node_id)
        self.leader.throttle.set_rate(leader_rate, 0)
        self.follower.throttle.set_rate(follower_rate, 0)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.fs = SimFileSystem()

    def add(self, key: TopicPartition, config: LogConfig, *, leader_id: int, in_sync: Iterable[int] = (LEADER,)) -> Log:
        topic, number = key
        self.fs.mkdir(f"/{topic}")
        log = Log(self.fs, f"/{topic}", topic=topic, partition=number, config=config, now_ms=NOW_MS)
        partition = Partition(topic, number, log, node_id=self.node_id, topic_id=topic.encode().ljust(16))
        if leader_id == self.node_id:
            replicas = (LEADER, FOLLOWER, OTHER)
            partition.become_leader(
                leader_epoch=0, partition_epoch=0, replicas=replicas, in_sync_replicas=tuple(in_sync)
            )
        else:
            partition.become_follower(leader_id=leader_id, leader_epoch=0, partition_epoch=0)
        self.partitions[key] = partition
        return log

    def by_id(self, topic_id: bytes, number: int) -> Partition:
        return self.partitions[topic_id.decode().rstrip(), number]

    def size(self, key: TopicPartition) -> int:
        return self.partitions[key].log.size_bytes  # type: ignore[attr-defined]


@dataclass
class Stream:
    leader: Broker
    follower: Broker
    sent: list[tuple[float, str, int]] = field(default_factory=list)
    """(time, topic, bytes)"""
    now_ms: float = 0

    def __post_init__(self) -> None:
        self.following = LeaderFollowing(
            self.leader.node_id, quota=self.follower.follower, append=self._append, progress=lambda *_: None
        )
        for partition in self.follower.partitions.values():
            if partition.leader_id == self.leader.node_id:
                self.following.follow(partition)
        self.connect()

    def connect(self) -> None:
        """Another stream."""
        self.feed = FollowerFeed(
            self.follower.node_id,
            1,
            partition_of=self.leader.by_id,
            quota=self.leader.leader,
            on_ends=lambda partition, has_moved: None,
            on_unreadable=lambda partition: None,
        )
        self.following.connected()

    def _append(self, partition: Partition, body: ReplicaRecords) -> None:
        records = body.records
        assert isinstance(records, memoryview)
        self.sent.append((self.now_ms, partition.topic, len(records)))
        partition.append_as_follower(cast(Buffer, records), now_ms=NOW_MS)

    def exchange(self, now_ms: float) -> bool:
        """Both ends say what they have to; whether there was something."""
        self.now_ms = now_ms
        asked = as_sent(self.following.poll(now_ms))
        for body in asked:
            self.feed.receive(body, now_ms)
        answered = as_sent(self.feed.poll(now_ms, 4 << 20))
        for body in answered:
            self.following.receive(body, now_ms)
        return bool(asked or answered)

    @property
    def next_deadline_ms(self) -> float:
        found = (self.feed.next_deadline_ms, self.following.next_deadline_ms)
        return min((each for each in found if each is not None), default=math.inf)

    def bytes_of(self, topic: str, until_ms: float = math.inf) -> int:
        return sum(size for at, name, size in self.sent if name == topic and at <= until_ms)

    def done_ms(self, topic: str) -> float:
        return max(at for at, name, _ in self.sent if name == topic)


def as_sent(frames: Iterable[ReplicaBody]) -> list[ReplicaBody]:
    pieces = joined(list(frames))
    return list(REPLICA_FRAMES.decode(b"".join(pieces))) if pieces else []


def run(*streams: Stream, until_ms: float = math.inf, begin_ms: float = 0) -> int:
    """Let time pass as the deadlines say; how often it moved."""
    now_ms, moves = begin_ms, 0
    while now_ms <= until_ms:
        while sum(stream.exchange(now_ms) for stream in streams):
            pass
        following_ms = min(stream.next_deadline_ms for stream in streams)
        if following_ms == math.inf:
            break
        assert following_ms > now_ms, "the alarm rings at once, again and again"
        now_ms, moves = following_ms, moves + 1
    return moves


def fill(broker: Broker, key: TopicPartition, size_bytes: int, batch_bytes: int = BATCH) -> None:
    log = broker.partitions[key].log
    assert isinstance(log, Log)
    for _ in range(size_bytes // batch_bytes):
        append(log, b"x" * batch_bytes)


def pair(rates: Mapping[str, float], *, in_sync: Iterable[int] = (LEADER,)) -> Stream:
    """A throttled partition and one that is not, a follower without records, and a stream between them."""
    leader = Broker(LEADER, leader_rate=rates.get("leader", math.inf))
    follower = Broker(FOLLOWER, follower_rate=rates.get("follower", math.inf))
    for key, config in ((SLOW, THROTTLED), (FREE, LogConfig())):
        leader.add(key, config, leader_id=LEADER, in_sync=in_sync)
        follower.add(key, config, leader_id=LEADER)
    fill(leader, SLOW, 1_000_000)
    fill(leader, FREE, 1_000_000)
    return Stream(leader, follower)


RATES: list[Mapping[str, float]] = [
    {"leader": RATE},
    {"follower": RATE},
    {"leader": RATE, "follower": RATE},
]


@pytest.mark.parametrize("rates", RATES, ids=["leader", "follower", "both"])
def test_a_throttled_partition_comes_at_the_rate_and_the_others_at_once(rates: Mapping[str, float]) -> None:
    stream = pair(rates)
    moves = run(stream)
    size_bytes = stream.leader.size(SLOW)
    assert (stream.follower.size(SLOW), stream.follower.size(FREE)) == (size_bytes, stream.leader.size(FREE))
    assert stream.done_ms("free") == 0
    assert stream.done_ms("slow") == pytest.approx(1000 * size_bytes / RATE, rel=0.03)
    for until_ms in range(0, 10_000, 500):
        assert stream.bytes_of("slow", until_ms) <= RATE * until_ms / 1000 + 2 * (BATCH + 100)
    assert moves <= 2 * len([at for at, topic, _ in stream.sent if topic == "slow"]) + 2, "it wakes only to send"


@pytest.mark.parametrize("rates", RATES, ids=["leader", "follower", "both"])
def test_nothing_is_throttled_for_which_the_high_watermark_waits(rates: Mapping[str, float]) -> None:
    stream = pair(rates, in_sync=(LEADER, FOLLOWER))
    assert run(stream, until_ms=0) <= 1
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)
    assert stream.done_ms("slow") == 0
    stream = pair(rates)
    run(stream, until_ms=1000)
    partition = stream.leader.partitions[SLOW]
    assert not partition.waits_for(FOLLOWER)
    partition.become_leader(leader_epoch=0, partition_epoch=1, replicas=(1, 2, 3), in_sync_replicas=(LEADER, FOLLOWER))
    stream.feed.data_available(SLOW)
    run(stream, begin_ms=1200, until_ms=1200)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW), "it came into sync in the middle"


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_another_rate_in_the_middle_holds_from_then_on(side: str) -> None:
    stream = pair({side: 1})
    quota = stream.leader.leader if side == "leader" else stream.follower.follower

    def change(rate: float, now_ms: float) -> None:
        quota.throttle.set_rate(rate, now_ms)
        stream.feed.throttle_changed()
        stream.following.throttle_changed()

    run(stream, until_ms=1000)
    first = stream.bytes_of("slow")
    assert 0 < first < BATCH + 100, "the next turn is in hours"
    change(2 * RATE, 1000)
    run(stream, begin_ms=1000, until_ms=3000)
    assert stream.bytes_of("slow") - first == pytest.approx(4 * RATE, rel=0.1)
    change(math.inf, 3000)
    run(stream, begin_ms=3000, until_ms=3000)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_busy_event_loop_does_not_lower_the_rate_and_a_pause_saves_nothing_up(side: str) -> None:
    """Every turn is taken late, by a part of the time that it is worth."""
    stream = pair({side: RATE})
    for now_ms in range(0, 5000, 60):
        while stream.exchange(now_ms):
            pass
    assert stream.bytes_of("slow") == pytest.approx(5 * RATE, rel=0.06)
    before = stream.bytes_of("slow")
    run(stream, begin_ms=60_000, until_ms=61_000)
    assert RATE <= stream.bytes_of("slow") - before <= RATE + 3 * (BATCH + 100)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_partition_that_is_taken_from_the_list_goes_on_at_once(side: str) -> None:
    stream = pair({side: RATE / 100})
    run(stream, until_ms=100)
    assert stream.follower.size(SLOW) < stream.leader.size(SLOW)
    for broker in (stream.leader, stream.follower):
        log = broker.partitions[SLOW].log
        assert isinstance(log, Log)
        log.config = LogConfig()
    stream.feed.data_available(SLOW)
    stream.following.throttle_changed(SLOW)
    run(stream, begin_ms=150, until_ms=150)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)


def test_a_partition_that_is_put_on_the_list_in_the_middle_is_throttled_from_then_on() -> None:
    stream = pair({"follower": RATE})
    log = stream.follower.partitions[SLOW].log
    assert isinstance(log, Log)
    log.config = LogConfig()
    run(stream, until_ms=0)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)
    log.config = THROTTLED
    assert stream.following.throttle_changed(SLOW)
    fill(stream.leader, SLOW, 300_000)
    stream.feed.data_available(SLOW)
    begin_ms = 1000.0
    run(stream, begin_ms=begin_ms)
    assert stream.done_ms("slow") - begin_ms == pytest.approx(3000, rel=0.05)


def test_followers_share_the_rate_of_their_leader_and_take_turns() -> None:
    leader = Broker(LEADER, leader_rate=RATE)
    leader.add(SLOW, THROTTLED, leader_id=LEADER)
    fill(leader, SLOW, 1_000_000)
    streams = []
    for number in (FOLLOWER, OTHER):
        follower = Broker(number)
        follower.add(SLOW, THROTTLED, leader_id=LEADER)
        streams.append(Stream(leader, follower))
    run(*streams, until_ms=5000)
    shares = [stream.bytes_of("slow") for stream in streams]
    assert sum(shares) == pytest.approx(5 * RATE, rel=0.1)
    assert abs(shares[0] - shares[1]) <= 2 * (BATCH + 100)


def test_leaders_share_the_rate_of_their_follower_and_take_turns() -> None:
    follower = Broker(FOLLOWER, follower_rate=RATE)
    streams = []
    for number, topic in ((LEADER, "a"), (OTHER, "b")):
        leader = Broker(number)
        leader.add((topic, 0), THROTTLED, leader_id=number, in_sync=(number,))
        fill(leader, (topic, 0), 1_000_000)
        follower.add((topic, 0), THROTTLED, leader_id=number)
        streams.append(Stream(leader, follower))
    run(*streams, until_ms=5000)
    shares = [stream.bytes_of(topic) for stream, topic in zip(streams, "ab", strict=True)]
    assert sum(shares) == pytest.approx(5 * RATE, rel=0.1)
    assert abs(shares[0] - shares[1]) <= 2 * (BATCH + 100)


def test_partitions_of_one_stream_take_turns() -> None:
    leader, follower = Broker(LEADER, leader_rate=RATE), Broker(FOLLOWER, follower_rate=RATE)
    keys = [(f"t{number}", 0) for number in range(5)]
    for key in keys:
        leader.add(key, THROTTLED, leader_id=LEADER)
        follower.add(key, THROTTLED, leader_id=LEADER)
        fill(leader, key, 500_000)
    stream = Stream(leader, follower)
    run(stream, until_ms=5000)
    shares = [stream.bytes_of(topic) for topic, _ in keys]
    assert sum(shares) == pytest.approx(5 * RATE, rel=0.1)
    assert max(shares) - min(shares) <= 2 * (BATCH + 100)


def test_a_partition_that_is_written_to_gets_no_more_turns_than_others() -> None:
    leader, follower = Broker(LEADER, leader_rate=RATE), Broker(FOLLOWER)
    for topic in ("busy", "idle"):
        leader.add((topic, 0), THROTTLED, leader_id=LEADER)
        follower.add((topic, 0), THROTTLED, leader_id=LEADER)
        fill(leader, (topic, 0), 500_000)
    stream = Stream(leader, follower)
    for now_ms in range(0, 5000, 20):
        fill(leader, ("busy", 0), BATCH // 10, BATCH // 10)
        stream.feed.data_available(("busy", 0))
        stream.exchange(now_ms)
    assert stream.bytes_of("idle") == pytest.approx(5 * RATE / 2, rel=0.15)
    assert stream.bytes_of("busy") == pytest.approx(5 * RATE / 2, rel=0.15)


@pytest.mark.parametrize("rates", RATES, ids=["leader", "follower", "both"])
def test_a_batch_that_is_larger_than_a_piece_is_paid_for_afterwards(rates: Mapping[str, float]) -> None:
    rates = {side: rate / 100 for side, rate in rates.items()}
    stream = pair(rates)
    run(stream, until_ms=60_000)
    assert stream.bytes_of("slow", 0) > BATCH
    assert stream.bytes_of("slow") == pytest.approx(60 * RATE / 100, abs=2 * (BATCH + 100))


def test_a_new_stream_begins_within_the_rate() -> None:
    """Credit that was granted on the old one is void, and what was received on it is paid for."""
    stream = pair({"follower": RATE})
    for now_ms in range(0, 2000, 50):
        stream.connect()
        run(stream, begin_ms=now_ms, until_ms=now_ms)
        stream.following.poll(now_ms + 49)  # perhaps more credit, which is lost
    run(stream, begin_ms=2000, until_ms=2000)
    assert stream.bytes_of("slow") <= 2 * RATE + 2 * (BATCH + 100)
    stream.connect()
    stream.following.poll(2500)
    stream.connect()
    run(stream, begin_ms=3000)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)


def test_no_alarm_is_set_for_what_cannot_go_on() -> None:
    """Without credit of the stream a turn is worth nothing, and without throttled partitions nobody asks for one."""
    stream = pair({"leader": RATE})
    run(stream, until_ms=1000)
    turn_ms = stream.feed.next_deadline_ms
    assert turn_ms is not None
    stream.feed.credit_bytes = 0
    assert stream.feed.next_deadline_ms is None
    assert stream.feed.poll(turn_ms, 1 << 20) == []

    stream = pair({"follower": RATE})
    run(stream, until_ms=1000)
    turn_ms = stream.following.next_deadline_ms
    assert turn_ms is not None
    stream.following.unfollow(SLOW)
    assert len(stream.following.poll(turn_ms)) == 1, "it says so, and asks for nothing"
    assert stream.following.next_deadline_ms is None


def test_a_turn_is_worth_a_tenth_of_a_second() -> None:
    quota = ReplicationQuota.of_leader(LEADER)
    for rate, piece_bytes in ((1, 1), (5_000, 500), (1 << 20, 104_857), (1 << 40, MAX_PIECE_BYTES)):
        quota.throttle.set_rate(rate, 0)
        assert quota.piece_bytes == piece_bytes


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("", [], [(0, 1)]),
        ("*", [(0, 1), (7, 9)], []),
        (" 0:1 ,10:101", [(0, 1), (10, 101)], [(1, 0), (0, 101)]),
    ],
)
def test_lists_of_throttled_replicas(text: str, has: list[tuple[int, int]], has_not: list[tuple[int, int]]) -> None:
    config = LogConfig.from_configs({"leader.replication.throttled.replicas": text})
    throttled = config.leader_replication_throttled_replicas
    assert all(throttled.has(*each) for each in has)
    assert not any(throttled.has(*each) for each in has_not)
    assert config == replace(LogConfig(), leader_replication_throttled_replicas=throttled)


@pytest.mark.parametrize("text", ["0", "0:", ":1", "0:1:2", "-1:1", "a:1", "*,0:1", "0:1,*", "٣:1", "0:1 2"])
def test_a_bad_list_is_refused_with_its_bad_item(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is no replica: use partition:broker"):
        LogConfig.from_configs({"follower.replication.throttled.replicas": text})


def test_who_is_about_to_come_into_sync_is_looked_at_again() -> None:
    """The high watermark waits for it from the moment on at which the controller is asked, so its records are free as well: they
    must not wait for the turn that they stand in line for."""
    stream = pair({"leader": 1})
    partition = stream.leader.partitions[SLOW]
    log = partition.log
    assert isinstance(log, Log)
    log.flush()
    run(stream, until_ms=0)
    looked_at: list[bool] = []
    updates = IsrUpdates(
        clock=FrozenClock(),
        alter=nobody_answers,
        image=lambda: MetadataImage(brokers=PersistentMap({each: broker_image(each) for each in (LEADER, FOLLOWER)})),
        partitions=stream.leader.partitions,
        progressed=lambda key: looked_at.append(stream.feed.data_available(key)),
        max_lag_ms=10_000,
    )
    ends = ReplicaEnds(log.log_end_offset, log.log_end_offset)
    partition.on_follower_ends(FOLLOWER, 0, ends, broker_epoch=1)
    fill(stream.leader, SLOW, BATCH)
    assert stream.feed.poll(1, 4 << 20) == [], "its turn is in hours"
    updates.look(partition)
    assert partition.waits_for(FOLLOWER)
    assert looked_at == [True]
    assert [type(frame) for frame in stream.feed.poll(1, 4 << 20)] == [ReplicaRecords]


class FrozenClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> float:
        return 0.0


async def nobody_answers(changes: Sequence[IsrChange]) -> list[IsrOutcome]:
    raise AssertionError("it is not asked")


def broker_image(node_id: int) -> BrokerImage:
    return BrokerImage(
        node_id=node_id,
        incarnation_id=bytes(16),
        broker_epoch=1,
        host=f"n{node_id}",
        port=9092,
        rack="",
        is_fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


def test_only_what_may_go_on_is_read_from_the_disk_beforehand() -> None:
    stream = pair({"leader": RATE})
    for key, partition in stream.leader.partitions.items():
        again = Partition(
            *key, partition.log, node_id=LEADER, topic_id=partition.topic_id
        )  # after a restart all is cold
        again.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1, 2, 3), in_sync_replicas=(LEADER,))
        stream.leader.partitions[key] = again
    for body in as_sent(stream.following.poll(0)):
        stream.feed.receive(body, 0)
    found = {each.partition.topic: each for each in stream.feed.cold_ranges(0)}
    assert (found["slow"].max_bytes, found["free"].max_bytes) == (RATE // 10, 1 << 20)
    while stream.feed.poll(0, 4 << 20):
        pass
    slow = stream.leader.partitions[SLOW]
    assert stream.feed.cold_ranges(1) == []
    stream.feed.data_available(SLOW)
    assert stream.feed.cold_ranges(1) == [], "something new does not give it a turn"
    turn_ms = stream.feed.next_deadline_ms
    assert turn_ms is not None
    [head] = stream.feed.cold_ranges(turn_ms)
    assert (head.partition, head.offset > 0) == (slow, True)
