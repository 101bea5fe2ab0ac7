"""flush.policy and what the metadata say of it: a switch to `ack` is in effect for a partition when its leader says so."""

import pytest

from kraftlog.kraft.controller import ControllerConfig, IsrAnswer, IsrChange
from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    ConfigChange,
    ConfigResource,
    CreatePartitionsRequest,
    IncrementalAlterConfigsRequest,
    NewPartitions,
    NewTopic,
)
from kraftlog.proto.errors import ErrorCode, InvalidUpdateVersionError
from tests.unit.kraft.controllers import Harness
from tests.unit.kraft.test_elections import fence, partition, restart, shape, with_topic


def set_policy(harness: Harness, policy: str | None, *, topic: str = "orders") -> int:
    """None: back to the default. The error code."""
    operation = ConfigChange.DELETE if policy is None else ConfigChange.SET
    change = ConfigChange(name="flush.policy", operation=operation, value=policy or "")
    resource = AlterConfigsResource(resource=ConfigResource(type=2, name=topic), changes=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return harness.run(lambda: harness.controller.alter_configs(request)).resources[0].error_code


def say_flushed(harness: Harness, epochs: dict[int, int], *, found_in: PartitionImage | None = None) -> IsrAnswer:
    """The leader's claim; `found_in`: what it knew of the partition then."""
    known = found_in or partition(harness)
    change = IsrChange(
        topic_id=harness.image.topics["orders"].topic_id,
        partition=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        in_sync_replicas=tuple((replica, epochs[replica]) for replica in known.in_sync_replicas),
        has_flushed=True,
    )
    leader = known.leader_id
    [answer] = harness.run(lambda: harness.controller.alter_partition(leader, epochs[leader], [change]))
    return answer


@pytest.mark.parametrize(("policy", "is_flushed"), [("ack", True), ("interval", False)])
def test_new_partitions_are_as_their_topic_says(policy: str, is_flushed: bool) -> None:
    """Nothing was acknowledged yet: what counts is how it will be. The same for partitions that are added."""
    harness, _ = with_topic(flush_policy=policy)
    growth = CreatePartitionsRequest(topics=[NewPartitions(name="orders", total_count=2)])
    harness.run(lambda: harness.controller.create_partitions(growth))
    assert [partition(harness, number).is_flushed for number in (0, 1)] == [is_flushed] * 2


def test_switch_to_ack_is_in_effect_when_the_leader_says_so() -> None:
    """Until then an unclean stop costs a replica its place, and afterwards it does not."""
    harness, epochs = with_topic(min_insync_replicas="2", flush_policy="interval")
    set_policy(harness, "ack")
    assert not partition(harness).is_flushed
    epochs[3] = restart(harness, 3, -1)
    assert shape(harness) == (1, (1, 2), (), ())
    assert say_flushed(harness, epochs).error is None
    assert partition(harness).is_flushed
    fence(harness, 1, 2)
    restart(harness, 1, -1)
    assert shape(harness) == (1, (1,), (2,), ())


def test_power_loss_of_all_before_that_leaves_nobody_to_lead() -> None:
    """Not one of them is known to have what was acknowledged from memory."""
    harness, _ = with_topic(min_insync_replicas="2", flush_policy="interval")
    set_policy(harness, "ack")
    fence(harness, 1, 2, 3)
    for node_id in (1, 2, 3):
        restart(harness, node_id, -1)
    assert shape(harness) == (NO_LEADER, (), (), (1, 2, 3))


def test_what_was_found_before_a_switch_does_not_count_after_it() -> None:
    """To ack, to interval, to ack: the leader may have acknowledged from memory in between."""
    harness, epochs = with_topic(flush_policy="interval")
    set_policy(harness, "ack")
    found_in = partition(harness)
    set_policy(harness, "interval")
    assert isinstance(say_flushed(harness, epochs, found_in=found_in).error, InvalidUpdateVersionError)
    found_while_interval = partition(harness)
    set_policy(harness, "ack")
    for old in (found_in, found_while_interval):
        assert isinstance(say_flushed(harness, epochs, found_in=old).error, InvalidUpdateVersionError)
    assert say_flushed(harness, epochs).error is None
    assert partition(harness).is_flushed


def test_leader_with_another_policy_than_the_controller_changes_nothing() -> None:
    """Its own default is not the cluster's."""
    harness, epochs = with_topic(flush_policy="interval")
    answer = say_flushed(harness, epochs)
    assert answer.error is None
    assert answer.partition == partition(harness)
    assert not partition(harness).is_flushed


def test_switch_waits_until_nobody_is_eligible_outside_of_the_isr() -> None:
    """Who is in the ELR is not heard of: it may have acknowledged records in its memory alone."""
    harness, epochs = with_topic(min_insync_replicas="2", flush_policy="interval")
    fence(harness, 2, 3)
    assert shape(harness) == (1, (1,), (2, 3), ())
    set_policy(harness, "ack")
    assert say_flushed(harness, epochs).error is None
    assert not partition(harness).is_flushed


def test_switch_to_interval_is_in_the_batch_of_the_config() -> None:
    """A leader acknowledges from memory only when the metadata say that an unclean stop may cost records."""
    harness, _ = with_topic()
    assert partition(harness).is_flushed
    before = len(harness.log.batches)
    set_policy(harness, "interval")
    assert len(harness.log.batches) == before + 1
    assert not partition(harness).is_flushed


def test_the_same_policy_in_other_words_changes_nothing() -> None:
    """Set to what the default is, and back."""
    harness, _ = with_topic()
    before = partition(harness)
    set_policy(harness, "ack")
    set_policy(harness, None)
    assert partition(harness) == before


def test_another_default_of_the_controllers_reaches_every_partition() -> None:
    """A restart with flush.policy=interval as the default: topics that do not set it stop being flushed."""
    harness, _ = with_topic(partitions=3)
    later = Harness(ControllerConfig(default_flush_policy="interval"), log=harness.log).lead()
    assert all(partition(later, number).is_flushed for number in range(3))
    later.controller.poll(now_ms=later.now_ms, wall_ms=0)
    later.commit()
    assert not any(partition(later, number).is_flushed for number in range(3))
    after = len(later.log.batches)
    later.controller.poll(now_ms=later.now_ms, wall_ms=0)
    assert len(later.log.batches) == after


@pytest.mark.parametrize("policy", ["interval", None])
def test_the_clusters_own_topics_are_always_on_disk(policy: str | None) -> None:
    """Committed offsets rest on it, whatever the default is."""
    harness, _ = with_topic()
    offsets = NewTopic(
        name="__consumer_offsets", num_partitions=1, replication_factor=3, configs={"flush.policy": "ack"}
    )
    harness.create(offsets, allow_internal=True)
    assert set_policy(harness, policy, topic=offsets.name) == ErrorCode.INVALID_CONFIG
    assert set_policy(harness, "ack", topic=offsets.name) == ErrorCode.NONE
    assert harness.image.topics[offsets.name].partitions[0].is_flushed
