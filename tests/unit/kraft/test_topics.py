"""Creating and deleting topics: what is refused, with which error, and what it leaves."""

import pytest

from kraftlog.kraft.controller import ControllerConfig
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicsResponse, NewTopic
from kraftlog.proto.errors import ErrorCode, PolicyViolationError
from tests.unit.kraft.controllers import Harness


@pytest.fixture
def cluster() -> Harness:
    """Three live brokers."""
    harness = Harness().lead()
    for node_id in (1, 2, 3):
        harness.live_broker(node_id)
    return harness


def delete(harness: Harness, *names: str, allow_internal: bool = False) -> DeleteTopicsResponse:
    request = DeleteTopicsRequest(names=names)
    return harness.run(lambda: harness.controller.delete_topics(request, allow_internal=allow_internal))


def refusal(harness: Harness, topic: NewTopic) -> tuple[ErrorCode, str]:
    before = harness.image
    (result,) = harness.create(topic).topics
    assert harness.image.topics is before.topics, "nothing was created"
    return ErrorCode(result.error_code), result.error_message


def topic(name: str = "orders", partitions: int = 1, replicas: int = 1, **configs: str) -> NewTopic:
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def test_created_topic_has_its_partitions_leaders_and_configs(cluster: Harness) -> None:
    """All replicas are in sync at first, the first of each leads in epoch 0."""
    (result,) = cluster.create(topic(partitions=4, replicas=2, retention_ms="5000")).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 2)
    image = cluster.image.topics["orders"]
    assert image.topic_id == result.topic_id
    assert image.topic_id[6] >> 4 == 4, "a random UUID"
    for partition in image.partitions.values():
        assert partition.leader_id == partition.replicas[0]
        assert partition.in_sync_replicas == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert dict(cluster.image.configs(2, "orders")) == {"retention.ms": "5000"}


def test_minus_one_means_the_defaults(cluster: Harness) -> None:
    """num.partitions, and min(3, live brokers)."""
    (result,) = cluster.create(topic(partitions=-1, replicas=-1)).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 3)
    configured = Harness(ControllerConfig(num_partitions=6, default_replication_factor=1)).lead()
    configured.live_broker(1)
    (result,) = configured.create(topic(partitions=-1, replicas=-1)).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 6, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "a b", "naïve", "a\n", "\x00", "..\\x"])
def test_bad_names_are_refused(cluster: Harness, name: str) -> None:
    """A topic's name becomes a folder."""
    code, message = refusal(cluster, topic(name))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "\n" not in message
    assert len(message) < 200


@pytest.mark.parametrize("count", [0, -2, 10_001, 2**31 - 1, -(2**31)])
def test_partition_counts_outside_of_the_bounds_are_refused(cluster: Harness, count: int) -> None:
    """1 to 10,000, or -1 for the default."""
    code, message = refusal(cluster, topic(partitions=count))
    assert code == ErrorCode.INVALID_PARTITIONS
    assert "1..10000" in message


@pytest.mark.parametrize("factor", [0, -2, 4, 40_000, 2**31 - 1, -(2**31)])
def test_replication_factors_that_cannot_be_placed_are_refused(cluster: Harness, factor: int) -> None:
    """At most the number of live brokers."""
    code, message = refusal(cluster, topic(replicas=factor))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(factor) in message


def test_fenced_brokers_get_no_replicas(cluster: Harness) -> None:
    """Only brokers that heartbeat are live."""
    cluster.register(4)
    code, message = refusal(cluster, topic(replicas=4))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "live brokers, 3" in message


def test_no_live_broker_is_an_error_and_not_a_topic_without_replicas() -> None:
    """Also for the default factor."""
    harness = Harness().lead()
    code, _ = refusal(harness, topic(replicas=-1))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_unknown_config_key_is_refused_with_the_nearest_name(cluster: Harness) -> None:
    """As everywhere: never ignored."""
    code, message = refusal(cluster, topic(retention_mss="1"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "did you mean 'retention.ms'?" in message


def test_excessive_configs_are_refused(cluster: Harness) -> None:
    """Number and length are bounded."""
    many = NewTopic(name="a", num_partitions=1, replication_factor=1, configs={f"k{n}": "" for n in range(201)})
    assert refusal(cluster, many)[0] == ErrorCode.INVALID_CONFIG
    long = topic(retention_ms="1" * 40_000)
    code, message = refusal(cluster, long)
    assert code == ErrorCode.INVALID_CONFIG
    assert len(message) < 200


def test_existing_topic_is_refused(cluster: Harness) -> None:
    """Also within the same millisecond: decided against what is not yet committed."""
    first = cluster.submit(
        lambda: cluster.controller.create_topics(CreateTopicsRequest(topics=[topic()]), allow_internal=False)
    )
    second = cluster.submit(
        lambda: cluster.controller.create_topics(CreateTopicsRequest(topics=[topic()]), allow_internal=False)
    )
    assert not first.is_done
    assert not second.is_done, "the refusal rests on uncommitted state, so it waits too"
    cluster.commit()
    assert first.response.topics[0].error_code == 0
    assert second.response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_name_twice_in_one_request_is_refused_twice(cluster: Harness) -> None:
    """Neither wins; the others in the request are created."""
    response = cluster.create(topic("a"), topic("b"), topic("a", partitions=2))
    assert [result.error_code for result in response.topics] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]
    assert list(cluster.image.topics) == ["b"]


def test_names_that_differ_only_in_dot_and_underscore_collide(cluster: Harness) -> None:
    """With existing topics, and within one request."""
    cluster.create(topic("a.b"))
    code, message = refusal(cluster, topic("a_b"))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b" in message
    response = cluster.create(topic("x.y"), topic("x_y"))
    assert [result.error_code for result in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    delete(cluster, "a.b")
    assert cluster.create(topic("a_b")).topics[0].error_code == 0


def test_internal_topics_are_created_and_deleted_only_from_inside(cluster: Harness) -> None:
    """A client cannot take the name of the cluster's own topics."""
    code, _ = refusal(cluster, topic("__consumer_offsets"))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.create(topic("__consumer_offsets"), allow_internal=True).topics[0].error_code == 0
    assert delete(cluster, "__consumer_offsets").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(cluster, "__consumer_offsets", allow_internal=True).topics[0].error_code == 0


def test_validate_only_creates_nothing(cluster: Harness) -> None:
    """It answers what would be, errors included."""
    end = cluster.log.next_offset
    response = cluster.create(topic("a", partitions=-1, replicas=2), topic("b", partitions=0), validate_only=True)
    assert [(r.error_code, r.num_partitions, r.replication_factor) for r in response.topics] == [
        (0, 1, 2),
        (ErrorCode.INVALID_PARTITIONS, 0, 0),
    ]
    assert cluster.log.next_offset == end


def test_one_request_is_one_batch(cluster: Harness) -> None:
    """Atomic: replay sees all of it or nothing."""
    count = len(cluster.log.batches)
    cluster.create(*(topic(f"t{n}", partitions=3) for n in range(5)))
    assert len(cluster.log.batches) == count + 1


def test_request_sizes_are_bounded(cluster: Harness) -> None:
    """Partitions in all: the ones that do not fit are refused. Topics: the request."""
    response = cluster.create(topic("a", partitions=6000), topic("b", partitions=6000), topic("c", partitions=4000))
    assert [result.error_code for result in response.topics] == [0, ErrorCode.POLICY_VIOLATION, 0]
    with pytest.raises(PolicyViolationError, match="send several"):
        cluster.create(*(topic(f"t{n}") for n in range(2001)))
    with pytest.raises(PolicyViolationError, match="send several"):
        delete(cluster, *(f"t{n}" for n in range(2001)))


def test_deleted_topic_is_gone_with_its_configs_and_its_name_is_free(cluster: Harness) -> None:
    """A topic of the same name gets another id."""
    first = cluster.create(topic(partitions=3, retention_ms="1")).topics[0].topic_id
    (result,) = delete(cluster, "orders").topics
    assert (result.error_code, result.topic_id) == (0, first)
    assert "orders" not in cluster.image.topics
    assert cluster.image.topic_by_id(first) is None
    assert not cluster.image.configs(2, "orders")
    assert not cluster.controller.configs.configs(2, "orders")
    assert cluster.controller.topics.partition(first, 0) is None
    second = cluster.create(topic()).topics[0].topic_id
    assert second != first


def test_deleting_what_is_not_there(cluster: Harness) -> None:
    """Unknown and doubled names are refused one by one."""
    cluster.create(topic("a"), topic("b"))
    response = delete(cluster, "b", "nope", "a", "a", "../x")
    assert [result.error_code for result in response.topics] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert list(cluster.image.topics) == ["a"]
