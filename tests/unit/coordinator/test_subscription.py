"""Which subscriptions ask for the same topics."""

from kraftlog.server.coordinator.subscription import same_subscription, subscribed_topics


def subscription(*topics: str, version: int = 1, rest: bytes = b"") -> bytes:
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return version.to_bytes(2) + len(topics).to_bytes(4) + names + rest


def test_topics_are_read_of_every_version() -> None:
    assert subscribed_topics(subscription("a", "b")) == {b"a", b"b"}
    assert subscribed_topics(subscription(version=3, rest=b"\xff\xff\xff\xff")) == frozenset()


def test_a_consumer_that_comes_back_owning_nothing_wants_the_same() -> None:
    """Owned partitions and user data differ after a restart; the wish does not."""
    assert same_subscription("consumer", subscription("a", "b", rest=b"owned"), subscription("b", "a"))
    assert not same_subscription("consumer", subscription("a"), subscription("a", "b"))


def test_foreign_protocols_are_compared_as_bytes() -> None:
    assert same_subscription("connect", b"x", b"x")
    assert not same_subscription("connect", subscription("a", rest=b"1"), subscription("a", rest=b"2"))


def test_hostile_bytes_are_no_subscription() -> None:
    for junk in (
        b"",
        b"\x00",
        b"\x00\x01\x7f\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\xff\xff",
        b"\xff\xff" + bytes(9),
    ):
        assert subscribed_topics(junk) is None
    assert not same_subscription("consumer", b"junk", b"other junk")
