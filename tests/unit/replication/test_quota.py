"""Throttled replication (KIP-73): both ends of replica streams, with logs in memory and a clock that the test moves."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from kraftlog.logstore import Log, LogConfig, ThrottledReplicas
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaBody, ReplicaRecords
from kraftlog.proto.seams import Buffer
from kraftlog.replication.exchange import joined
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.following import LeaderFollowing
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
        self.connect()

    def connect(self) -> None:
        self.feed = FollowerFeed(
            self.follower.node_id,
            1,
            partition_of=self.leader.by_id,
            quota=self.leader.leader,
            on_ends=lambda partition, has_moved: None,
            on_unreadable=lambda partition: None,
        )
        self.following = LeaderFollowing(
            self.leader.node_id, quota=self.follower.follower, append=self._append, progress=lambda *_: None
        )
        self.following.connected()
        for partition in self.follower.partitions.values():
            if partition.leader_id == self.leader.node_id:
                self.following.follow(partition)

    def _append(self, partition: Partition, body: ReplicaRecords) -> None:
        records = body.records
        assert isinstance(records, memoryview)
        self.sent.append((self.now_ms, partition.topic, len(records)))
        partition.append_as_follower(cast(Buffer, records), now_ms=NOW_MS)

    def exchange(self, now_ms: float) -> bool:
        """Both ends say what they have to; whether there was something."""
        self.now_ms = now_ms
        for key in self.leader.partitions:
            self.feed.data_available(key)
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
    run(stream, begin_ms=1200, until_ms=1200)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW), "it came into sync in the middle"


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_another_rate_in_the_middle_holds_from_then_on(side: str) -> None:
    stream = pair({side: RATE})
    run(stream, until_ms=2000)
    half = stream.bytes_of("slow")
    quota = stream.leader.leader if side == "leader" else stream.follower.follower
    quota.throttle.set_rate(4 * RATE, 2000)
    stream.feed.throttle_changed()
    stream.following.throttle_changed()
    run(stream, begin_ms=2000, until_ms=3000)
    assert stream.bytes_of("slow") - half == pytest.approx(4 * RATE, rel=0.15)
    quota.throttle.set_rate(math.inf, 3000)
    stream.feed.throttle_changed()
    stream.following.throttle_changed()
    run(stream, begin_ms=3000, until_ms=3000)
    assert stream.follower.size(SLOW) == stream.leader.size(SLOW)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_partition_that_is_taken_from_the_list_goes_on_at_once(side: str) -> None:
    stream = pair({side: RATE / 100})
    run(stream, until_ms=100)
    assert stream.follower.size(SLOW) < stream.leader.size(SLOW)
    for broker in (stream.leader, stream.follower):
        log = broker.partitions[SLOW].log
        assert isinstance(log, Log)
        log.config = LogConfig()
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
    run(stream, until_ms=1000)
    for now_ms in range(1000, 2000, 50):
        stream.connect()
        run(stream, begin_ms=now_ms, until_ms=now_ms)
    run(stream, begin_ms=2000, until_ms=2000)
    assert stream.bytes_of("slow") <= 2 * RATE + 2 * (BATCH + 100)


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
