"""Topics that grow, configs that change, feature levels: what is refused, with which error, and what it leaves."""

import pytest

from kraftlog.kraft.controller import BrokerRegistration, ControllerConfig
from kraftlog.kraft.controller.features import Feature, supported_ranges
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    ConfigChange,
    ConfigResource,
    CreatePartitionsRequest,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    NewPartitions,
    NewTopic,
    ReplicaAssignment,
    UpdateFeaturesRequest,
)
from kraftlog.proto.errors import ErrorCode, InvalidRequestError, PolicyViolationError, UnsupportedVersionError
from tests.unit.kraft.controllers import Harness


@pytest.fixture
def cluster() -> Harness:
    """Four live brokers in two racks, and a topic of two partitions."""
    harness = Harness().lead()
    for node_id in (1, 2, 3, 4):
        harness.live_broker(node_id, rack=f"r{node_id % 2}")
    harness.create(NewTopic(name="orders", num_partitions=2, replication_factor=2))
    return harness


# Growth.


def grow(
    harness: Harness, count: int, *assignments: list[int], name: str = "orders", validate_only: bool = False
) -> tuple[ErrorCode, str]:
    growth = NewPartitions(
        name=name, total_count=count, assignments=[ReplicaAssignment(replicas=each) for each in assignments]
    )
    request = CreatePartitionsRequest(topics=[growth], validate_only=validate_only)
    (result,) = harness.run(lambda: harness.controller.create_partitions(request)).topics
    return ErrorCode(result.error_code), result.error_message


def test_added_partitions_are_placed_over_racks_and_the_others_stay(cluster: Harness) -> None:
    """With the replication factor of the topic."""
    before = dict(cluster.image.topics["orders"].partitions)
    assert grow(cluster, 6) == (ErrorCode.NONE, "")
    partitions = cluster.image.topics["orders"].partitions
    assert list(partitions) == list(range(6))
    for number in range(6):
        assert partitions[number].leader_id == partitions[number].replicas[0]
        assert {replica % 2 for replica in partitions[number].replicas} == {0, 1}, "a replica in each rack"
        assert number not in before or partitions[number] == before[number]


def test_added_partitions_where_somebody_wants_them(cluster: Harness) -> None:
    """The live ones of them are in sync."""
    cluster.run(lambda: cluster.controller.life.fence([3]))
    assert grow(cluster, 4, [3, 1], [4, 2]) == (ErrorCode.NONE, "")
    partition = cluster.image.topics["orders"].partitions[2]
    assert (partition.replicas, partition.in_sync_replicas, partition.leader_id) == ((3, 1), (1,), 1)
    assert cluster.image.topics["orders"].partitions[3].replicas == (4, 2)


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, [], ErrorCode.INVALID_PARTITIONS),
        (1, [], ErrorCode.INVALID_PARTITIONS),
        (-1, [], ErrorCode.INVALID_PARTITIONS),
        (10_001, [], ErrorCode.INVALID_PARTITIONS),
        (2**31 - 1, [], ErrorCode.INVALID_PARTITIONS),
        (4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2], [2, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, -1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[4, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # both fenced
    ],
)
def test_growth_that_cannot_be_is_refused(
    cluster: Harness, count: int, assignments: list[list[int]], code: ErrorCode
) -> None:
    """And leaves no record."""
    cluster.run(lambda: cluster.controller.life.fence([3, 4]))
    end = cluster.log.next_offset
    assert grow(cluster, count, *assignments)[0] == code
    assert cluster.log.next_offset == end


def test_growth_of_no_topic_of_ours_and_by_too_few_brokers(cluster: Harness) -> None:
    """Keys of `__consumer_offsets` would move between its partitions."""
    cluster.create(NewTopic(name="__consumer_offsets", num_partitions=1, replication_factor=1), allow_internal=True)
    assert grow(cluster, 2, name="__consumer_offsets")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert grow(cluster, 2, name="nope")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(cluster, 3, validate_only=True)[0] == ErrorCode.NONE
    assert len(cluster.image.topics["orders"].partitions) == 2
    cluster.run(lambda: cluster.controller.life.fence([2, 3, 4]))
    assert grow(cluster, 3)[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topic_is_created_where_somebody_wants_it(cluster: Harness) -> None:
    """With assignments the two numbers say nothing and are -1."""
    assignments = [ReplicaAssignment(replicas=[3, 1]), ReplicaAssignment(replicas=[2, 4])]
    topic = NewTopic(name="here", num_partitions=-1, replication_factor=-1, assignments=assignments)
    (result,) = cluster.create(topic).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
    assert [p.replicas for p in cluster.image.topics["here"].partitions.values()] == [(3, 1), (2, 4)]
    topic = NewTopic(name="there", num_partitions=2, replication_factor=-1, assignments=assignments)
    assert cluster.create(topic).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_topics_and_partitions_of_the_cluster_are_bounded() -> None:
    """The bound is reached, also within one request, and after a deletion there is room again."""
    harness = Harness(ControllerConfig(max_topics=2, max_partitions=5)).lead()
    harness.live_broker(1)
    topics = [NewTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"]
    results = harness.create(*topics).topics
    assert [result.error_code for result in results] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert "max_topics" in results[2].error_message
    assert grow(harness, 4, name="a")[0] == ErrorCode.POLICY_VIOLATION
    assert grow(harness, 3, name="a")[0] == ErrorCode.NONE


# Configs.


def alter(
    harness: Harness, *changes: ConfigChange, name: str = "orders", kind: int = 2, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    resource = AlterConfigsResource(resource=ConfigResource(type=kind, name=name), changes=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = harness.run(lambda: harness.controller.alter_configs(request)).resources
    return ErrorCode(result.error_code), result.error_message


def change(name: str, operation: ConfigChange.Operation, value: str = "") -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def test_configs_are_set_and_deleted(cluster: Harness) -> None:
    """Others stay; what changes nothing leaves no record."""
    assert alter(cluster, change("retention.ms", ConfigChange.SET, "5"))[0] == ErrorCode.NONE
    assert alter(cluster, change("min.insync.replicas", ConfigChange.SET, "2"))[0] == ErrorCode.NONE
    assert dict(cluster.image.configs(2, "orders")) == {"min.insync.replicas": "2", "retention.ms": "5"}
    end = cluster.log.next_offset
    alter(cluster, change("retention.ms", ConfigChange.SET, "5"))
    alter(cluster, change("cleanup.policy", ConfigChange.DELETE))
    alter(cluster, change("retention.ms", ConfigChange.DELETE), validate_only=True)
    assert cluster.log.next_offset == end
    alter(cluster, change("retention.ms", ConfigChange.DELETE))
    assert dict(cluster.image.configs(2, "orders")) == {"min.insync.replicas": "2"}


def test_lists_are_appended_to_and_subtracted_from(cluster: Harness) -> None:
    """From the default, if nothing is set; each item once (Kafka's rule)."""

    def policy() -> str:
        return cluster.image.configs(2, "orders")["cleanup.policy"]

    alter(cluster, change("cleanup.policy", ConfigChange.APPEND, "compact, delete"))
    assert policy() == "delete,compact"
    alter(cluster, change("cleanup.policy", ConfigChange.SUBTRACT, "delete,nothing"))
    assert policy() == "compact"
    code, message = alter(cluster, change("retention.ms", ConfigChange.APPEND, "1"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "not a list" in message


def test_configs_are_judged_as_they_are_after_all_changes(cluster: Harness) -> None:
    """Two that do not go together: refused one after the other, accepted if one request ends the first."""
    alter(cluster, change("retention.ms", ConfigChange.SET, "5"))
    compact = change("cleanup.policy", ConfigChange.SET, "compact")
    assert alter(cluster, compact)[0] == ErrorCode.INVALID_CONFIG
    assert alter(cluster, compact, change("retention.ms", ConfigChange.DELETE))[0] == ErrorCode.NONE
    assert dict(cluster.image.configs(2, "orders")) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("operation", [ConfigChange.SET, ConfigChange.DELETE, ConfigChange.APPEND])
def test_unknown_configs_are_refused_with_the_nearest_name(cluster: Harness, operation: ConfigChange.Operation) -> None:
    """Whatever is to be done with them."""
    code, message = alter(cluster, change("retenton.ms", operation, "5"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in message


def test_hostile_config_requests_are_refused(cluster: Harness) -> None:
    """Each resource by itself, too much of anything as a whole."""
    retention = change("retention.ms", ConfigChange.SET, "5")
    assert alter(cluster, retention, retention)[0] == ErrorCode.INVALID_REQUEST
    assert alter(cluster, retention, name="nope")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(cluster, retention, kind=3)[0] == ErrorCode.INVALID_REQUEST
    assert alter(cluster, change("retention.ms", ConfigChange.SET, "5" * 32_768))[0] == ErrorCode.INVALID_CONFIG
    assert alter(cluster, ConfigChange(name="retention.ms", operation=9))[0] == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    twice = AlterConfigsResource(resource=ConfigResource(type=2, name="orders"), changes=[retention])
    request = IncrementalAlterConfigsRequest(resources=[twice, twice])
    results = cluster.run(lambda: cluster.controller.alter_configs(request)).resources
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    request = IncrementalAlterConfigsRequest(resources=[twice] * 2001)
    with pytest.raises(PolicyViolationError):
        cluster.run(lambda: cluster.controller.alter_configs(request))
    assert not cluster.image.resource_configs


def test_configs_of_brokers(cluster: Harness) -> None:
    """Of one, or of all; with names of their own."""
    threads = change("num.io.threads", ConfigChange.SET, "8")
    assert alter(cluster, threads, kind=4, name="1")[0] == ErrorCode.NONE
    assert alter(cluster, threads, kind=4, name="")[0] == ErrorCode.NONE
    assert dict(cluster.image.configs(4, "1")) == dict(cluster.image.configs(4, "")) == {"num.io.threads": "8"}
    assert alter(cluster, threads, kind=4, name="9")[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert alter(cluster, threads, kind=4, name="x")[0] == ErrorCode.INVALID_REQUEST
    assert alter(cluster, change("retention.ms", ConfigChange.SET, "5"), kind=4, name="1")[0] == (
        ErrorCode.INVALID_CONFIG
    )


# Feature levels.


def update(harness: Harness, *updates: tuple[str, int, int], validate_only: bool = False) -> list[ErrorCode]:
    request = UpdateFeaturesRequest(
        updates=[FeatureUpdate(name=n, level=level, upgrade_type=kind) for n, level, kind in updates],  # type: ignore[arg-type] # an enum's number
        validate_only=validate_only,
    )
    results = harness.run(lambda: harness.controller.update_features(request)).results
    return [ErrorCode(result.error_code) for result in results]


UPGRADE, SAFE, UNSAFE = FeatureUpdate.UPGRADE, FeatureUpdate.SAFE_DOWNGRADE, FeatureUpdate.UNSAFE_DOWNGRADE
REFUSED, LEFT_OUT = ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.fixture
def featured() -> Harness:
    """Two brokers, one of which knows less than the controller."""
    harness = Harness(
        features={
            "metadata.version": Feature(min_level=1, max_level=1, changes_metadata=frozenset({1})),
            "group.version": Feature(min_level=1, max_level=3, changes_metadata=frozenset({2})),
        }
    ).lead()
    for node_id, highest in ((1, 3), (2, 2)):
        register(harness, node_id, {"metadata.version": (1, 1), "group.version": (0, highest)})
    return harness


def register(harness: Harness, node_id: int, features: dict[str, tuple[int, int]]) -> None:
    registration = BrokerRegistration(
        node_id=node_id, incarnation_id=bytes([node_id]) * 16, host="h", port=1, features=features
    )
    harness.run(lambda: harness.controller.register_broker(registration, now_ms=harness.now_ms))


def test_level_is_raised_when_every_registered_broker_knows_it(featured: Harness) -> None:
    """Also one that is fenced: it comes back."""
    assert update(featured, ("group.version", 3, UPGRADE)) == [REFUSED]
    assert update(featured, ("group.version", 2, UPGRADE), validate_only=True) == [ErrorCode.NONE]
    assert dict(featured.image.features) == {"metadata.version": 1}
    assert update(featured, ("group.version", 2, UPGRADE)) == [ErrorCode.NONE]
    assert dict(featured.image.features) == {"group.version": 2, "metadata.version": 1}
    end = featured.log.next_offset
    assert update(featured, ("group.version", 2, UPGRADE)) == [ErrorCode.NONE], "it is there already"
    assert featured.log.next_offset == end
    featured.run(lambda: featured.controller.unregister_broker(2))
    assert update(featured, ("group.version", 3, UPGRADE)) == [ErrorCode.NONE]


def test_downgrades_say_so_and_safe_ones_lose_nothing(featured: Harness) -> None:
    """Level 2 brought records that level 1 cannot read."""
    update(featured, ("group.version", 2, UPGRADE))
    assert update(featured, ("group.version", 1, UPGRADE)) == [REFUSED]
    assert update(featured, ("group.version", 1, SAFE)) == [REFUSED]
    assert update(featured, ("group.version", 1, UNSAFE)) == [ErrorCode.NONE]
    assert update(featured, ("group.version", 0, SAFE)) == [ErrorCode.NONE]
    assert update(featured, ("group.version", 1, SAFE)) == [REFUSED], "that is no downgrade"


def test_metadata_version_is_never_off(featured: Harness) -> None:
    """Nothing could be read."""
    for kind in (UPGRADE, SAFE, UNSAFE):
        assert update(featured, ("metadata.version", 0, kind)) == [REFUSED]
    assert update(featured, ("metadata.version", 2, UPGRADE)) == [REFUSED]


def test_features_are_updated_all_or_none(featured: Harness) -> None:
    """One refusal leaves the others out."""
    assert update(featured, ("group.version", 1, UPGRADE), ("group.versoin", 1, UPGRADE)) == [LEFT_OUT, REFUSED]
    assert dict(featured.image.features) == {"metadata.version": 1}
    for updates in ([], [("group.version", 1, UPGRADE)] * 2, [(f"f{n}", 1, UPGRADE) for n in range(101)]):
        with pytest.raises(InvalidRequestError):
            update(featured, *updates)


def test_broker_that_does_not_know_the_levels_is_not_registered(featured: Harness) -> None:
    """It would meet what it cannot read; one that does not say is of the first version."""
    update(featured, ("group.version", 2, UPGRADE))
    with pytest.raises(UnsupportedVersionError, match=r"group\.version 2"):
        register(featured, 3, {"metadata.version": (1, 1), "group.version": (0, 1)})
    with pytest.raises(UnsupportedVersionError):
        register(featured, 3, {})
    update(featured, ("group.version", 0, UNSAFE))
    register(featured, 3, {})
    register(featured, 4, supported_ranges())
    assert dict(featured.image.brokers[4].features) == {"metadata.version": (1, 1)}
