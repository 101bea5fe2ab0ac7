"""ConsumerProtocol bytes and assignors: round trips, hostile bytes, Kafka's own results, balance."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.sdk.assignors import ASSIGNORS, MemberSubscription
from kraftlog.sdk.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kraftlog.sdk.types import TopicPartition

TOPICS = st.sampled_from(["a", "b", "c", "topic.é", "x" * 249])
NUMBERS = st.integers(0, 2**31 - 1)


@st.composite
def partitions(draw) -> tuple[TopicPartition, ...]:
    by_topic = draw(st.dictionaries(TOPICS, st.lists(NUMBERS, max_size=5, unique=True), max_size=4))
    return tuple(TopicPartition(topic, number) for topic, numbers in by_topic.items() for number in numbers)


SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(TOPICS, unique=True, max_size=5).map(tuple),
    user_data=st.none() | st.binary(max_size=20),
    owned_partitions=partitions(),
    generation_id=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | st.text(max_size=5),
)


@given(SUBSCRIPTIONS)
def test_subscriptions_survive_a_round_trip(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(partitions(), st.none() | st.binary(max_size=20))
def test_assignments_survive_a_round_trip(owned: tuple[TopicPartition, ...], user_data: bytes | None) -> None:
    assert decode_assignment(encode_assignment(Assignment(owned, user_data))) == Assignment(owned, user_data)


@given(SUBSCRIPTIONS, st.data())
def test_damaged_bytes_are_refused_or_read_but_nothing_else(subscription: Subscription, data: st.DataObject) -> None:
    """Foreign members' bytes: InvalidRequestError at worst, no other exception, no huge allocation."""
    raw = bytearray(encode_subscription(subscription))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(InvalidRequestError):
            decode(cut)


def test_the_bytes_are_kafkas() -> None:
    """Version 3 as org.apache.kafka's ConsumerProtocol writes it; older versions from other clients are read."""
    written = encode_subscription(Subscription(("foo",), None, (TopicPartition("foo", 1),), 7, "r"))
    assert written == bytes.fromhex(
        "0003"  # version
        "00000001"
        "0003"
        "666f6f"  # topics
        "ffffffff"  # user data
        "00000001"
        "0003"
        "666f6f"
        "00000001"
        "00000001"  # owned partitions
        "00000007"  # generation
        "0001"
        "72"  # rack
    )
    assert decode_subscription(bytes.fromhex("0000000000010003666f6fffffffff")) == Subscription(("foo",))
    assert decode_subscription(bytes.fromhex("0001000000010003666f6f0000000000000000")).user_data == b""
    later = bytes.fromhex("000900000000ffffffff0000000000000001ffffcafe")
    assert decode_subscription(later) == Subscription((), None, (), 1, None)
    assert decode_assignment(b"") == Assignment(())


@st.composite
def groups(draw) -> tuple[dict[str, int], list[MemberSubscription]]:
    counts = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 12), min_size=1))
    members = draw(
        st.lists(
            st.tuples(st.lists(st.sampled_from("abcdz"), unique=True, max_size=5), st.booleans()),
            min_size=1,
            max_size=6,
        )
    )
    return counts, [
        MemberSubscription(f"m{i}", Subscription(tuple(topics)), f"instance-{9 - i}" if static else None)
        for i, (topics, static) in enumerate(members)
    ]


@given(groups(), st.sampled_from(sorted(ASSIGNORS)), st.randoms(use_true_random=False))
def test_each_partition_has_one_owner_that_wants_it(group, name: str, random) -> None:
    """Complete, disjoint, only wanted topics, the same whatever the order of the members."""
    counts, members = group
    assigned = ASSIGNORS[name].assign(counts, members)
    assert set(assigned) == {m.member_id for m in members}
    owners = [tp for tps in assigned.values() for tp in tps]
    wanted = {topic for m in members for topic in m.subscription.topics}
    assert sorted(owners) == sorted(TopicPartition(t, p) for t, n in counts.items() if t in wanted for p in range(n))
    for member in members:
        assert {tp.topic for tp in assigned[member.member_id]} <= set(member.subscription.topics)
    shuffled = list(members)
    random.shuffle(shuffled)
    assert ASSIGNORS[name].assign(counts, shuffled) == assigned


@given(st.integers(1, 8), st.dictionaries(st.sampled_from("abcd"), st.integers(1, 20), min_size=1))
def test_equal_subscriptions_are_balanced(size: int, counts: dict[str, int]) -> None:
    """Round robin: all partitions even out; range: each topic's do."""
    members = [MemberSubscription(f"m{i}", Subscription(tuple(counts))) for i in range(size)]
    sizes = [len(tps) for tps in ASSIGNORS["roundrobin"].assign(counts, members).values()]
    assert max(sizes) - min(sizes) <= 1
    assigned = ASSIGNORS["range"].assign(counts, members)
    for topic in counts:
        per_topic = [sum(tp.topic == topic for tp in tps) for tps in assigned.values()]
        assert max(per_topic) - min(per_topic) <= 1
        for tps in assigned.values():
            numbers = [tp.partition for tp in tps if tp.topic == topic]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def test_kafkas_documented_examples() -> None:
    """The examples of RangeAssignor's and RoundRobinAssignor's Javadoc."""
    two = [MemberSubscription(m, Subscription(("t0", "t1"))) for m in ("C0", "C1")]
    assert ASSIGNORS["range"].assign({"t0": 3, "t1": 3}, two) == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)],
        "C1": [("t0", 2), ("t1", 2)],
    }
    assert ASSIGNORS["roundrobin"].assign({"t0": 3, "t1": 3}, two) == {
        "C0": [("t0", 0), ("t0", 2), ("t1", 1)],
        "C1": [("t0", 1), ("t1", 0), ("t1", 2)],
    }
    three = [
        MemberSubscription("C0", Subscription(("t0",))),
        MemberSubscription("C1", Subscription(("t0", "t1"))),
        MemberSubscription("C2", Subscription(("t0", "t1", "t2"))),
    ]
    assert ASSIGNORS["roundrobin"].assign({"t0": 1, "t1": 2, "t2": 3}, three) == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0)],
        "C2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }
