"""Reassignments: other replicas for a partition, step by step, and what must not be given up on the way (KIP-455)."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from kraftlog.kraft.controller import ControllerConfig, IsrAnswer, IsrChange, Result, reassignments
from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ReplicaAssignment,
)
from kraftlog.proto.errors import ErrorCode, InvalidRequestError, PolicyViolationError
from tests.unit.kraft.controllers import Harness
from tests.unit.kraft.test_elections import alter_isr, fence, partition, set_config

Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def with_topic(
    replicas: Sequence[int], partitions: int = 1, brokers: int = 6, **configs: str
) -> tuple[Harness, dict[int, int]]:
    """Brokers 1 to 6, and a topic with these replicas."""
    harness = Harness(ControllerConfig(auto_leader_rebalance_enable=False)).lead()
    epochs = {node_id: harness.live_broker(node_id) for node_id in range(1, brokers + 1)}
    harness.create(
        NewTopic(
            name="orders",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[ReplicaAssignment(replicas=replicas)] * partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
    )
    return harness, epochs


def reassign(
    harness: Harness, target: Sequence[int] | None, *, number: int = 0, topic: str = "orders", **options: bool
) -> int:
    """Ask, without any completion yet; the error code. None: cancel."""
    wanted = PartitionReassignment(topic=topic, partition=number)
    if target is not None:
        wanted.target.replicas.extend(target)
    request = AlterPartitionReassignmentsRequest(partitions=[wanted], **options)  # type: ignore[arg-type]
    (result,) = harness.run(lambda: harness.controller.alter_partition_reassignments(request)).partitions
    assert bool(result.error_message) == bool(result.error_code)
    return result.error_code


def poll(harness: Harness) -> None:
    """Also when a leader that is to go has had its time."""
    for now_ms in (harness.now_ms, harness.now_ms + reassignments.HAND_OVER_MS):
        harness.controller.poll(now_ms=now_ms, wall_ms=0)
        harness.commit()


def lists(harness: Harness, number: int = 0) -> Lists:
    """(replicas, those that are added, those that are removed)."""
    its = partition(harness, number)
    return its.replicas, its.adding_replicas, its.removing_replicas


def in_sync(harness: Harness, epochs: dict[int, int], *isr: int) -> PartitionImage:
    """The leader says so; then the controller is polled."""
    answer = alter_isr(harness, epochs, isr, leader=partition(harness).leader_id)
    assert answer.error is None
    poll(harness)
    return partition(harness)


def test_replicas_are_added_then_caught_up_with_then_removed() -> None:
    harness, epochs = with_topic([1, 2, 3])
    assert reassign(harness, [4, 5, 3]) == ErrorCode.NONE
    poll(harness)
    assert lists(harness) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert partition(harness).in_sync_replicas == (3, 1, 2), "nothing is given up yet"
    assert in_sync(harness, epochs, 1, 2, 3, 4).is_reassigning
    before = partition(harness)
    after = in_sync(harness, epochs, 1, 2, 3, 4, 5)
    assert lists(harness) == ((4, 5, 3), (), ())
    assert after.in_sync_replicas == (4, 5, 3)
    assert after.leader_id == 4, "the old leader has gone"
    assert after.leader_epoch == before.leader_epoch + 2
    assert harness.controller.topics.partitions.reassigning() == []


def test_a_leader_that_is_to_go_hands_over_and_stays_for_a_while() -> None:
    """As a follower of its successor it hears which of the writes under way are committed."""
    harness, epochs = with_topic([1, 2, 3])
    reassign(harness, [4, 2, 3])
    alter_isr(harness, epochs, (1, 2, 3, 4))
    deadline_ms = harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    assert deadline_ms == harness.now_ms, "there may be more"
    deadline_ms = harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert lists(harness) == ((4, 2, 3, 1), (4,), (1,))
    assert (partition(harness).leader_id, partition(harness).in_sync_replicas) == (4, (4, 2, 3, 1))
    end_ms = harness.now_ms + reassignments.HAND_OVER_MS
    assert deadline_ms == end_ms
    harness.controller.poll(now_ms=end_ms - 1, wall_ms=0)
    harness.commit()
    assert partition(harness).is_reassigning
    harness.controller.poll(now_ms=end_ms, wall_ms=0)
    harness.commit()
    assert lists(harness) == ((4, 2, 3), (), ())
    assert harness.controller.reassignments.next_deadline_ms is None


def test_nobody_waits_for_the_hand_over_of_a_topic_that_is_deleted() -> None:
    harness, _ = with_topic([1, 2])
    reassign(harness, [2])
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert partition(harness).leader_id == 2
    request = DeleteTopicsRequest(names=["orders"])
    harness.run(lambda: harness.controller.delete_topics(request, allow_internal=False))
    poll(harness)
    assert harness.controller.reassignments.next_deadline_ms is None


def test_a_leader_that_stays_leads_on_in_a_new_epoch() -> None:
    """What the removed replica has reported must not count for an empty log that it may get later."""
    harness, epochs = with_topic([1, 2])
    reassign(harness, [3, 1])
    poll(harness)
    epoch = partition(harness).leader_epoch
    after = in_sync(harness, epochs, 1, 2, 3)
    assert (after.leader_id, after.leader_epoch) == (1, epoch + 1)
    assert after.replicas == (3, 1)


def test_raising_the_factor_needs_no_other_leader_epoch() -> None:
    harness, epochs = with_topic([1])
    assert reassign(harness, [1, 2, 3]) == ErrorCode.NONE
    poll(harness)
    after = in_sync(harness, epochs, 1, 2, 3)
    assert (after.replicas, after.in_sync_replicas, after.leader_id, after.leader_epoch) == ((1, 2, 3), (1, 2, 3), 1, 0)


def test_replicas_that_are_being_filled_do_not_count_for_min_insync_replicas() -> None:
    """Else a partition of one replica would take no writes while it is raised to three, and an ELR would rest on a number
    that nobody has held."""
    harness, epochs = with_topic([1], min_insync_replicas="2")
    reassign(harness, [1, 2, 3])
    rules = harness.controller.topics.rules_of(harness.image.topics["orders"].topic_id)
    assert rules.effective_min(partition(harness)) == 1
    in_sync(harness, epochs, 1, 2)
    fence(harness, 2)
    assert partition(harness).eligible_leader_replicas == (), "broker 1 alone may acknowledge"
    after = in_sync(harness, {**epochs, 2: harness.live_broker(2)}, 1, 2, 3)
    assert not after.is_reassigning
    assert rules.effective_min(after) == 2
    fence(harness, 2, 3)
    assert partition(harness).eligible_leader_replicas == (2, 3)


def test_those_that_leave_stay_until_the_others_are_min_insync_replicas() -> None:
    harness, epochs = with_topic([1, 2, 3], min_insync_replicas="2")
    in_sync(harness, epochs, 1, 2)
    assert reassign(harness, [1, 3]) == ErrorCode.NONE
    poll(harness)
    assert lists(harness) == ((1, 3, 2), (), (2,)), "3 is not in sync: 1 would be alone"
    assert not in_sync(harness, epochs, 1, 2, 3).is_reassigning
    assert partition(harness).in_sync_replicas == (1, 3)


def test_fewer_replicas_are_a_reassignment_of_one_step() -> None:
    harness, _ = with_topic([1, 2, 3])
    assert reassign(harness, [2]) == ErrorCode.NONE
    poll(harness)
    after = partition(harness)
    assert (after.replicas, after.in_sync_replicas, after.leader_id) == ((2,), (2,), 2)
    assert after.leader_epoch == 2


def test_another_order_is_another_preferred_leader_at_once() -> None:
    harness, _ = with_topic([1, 2, 3])
    assert reassign(harness, [3, 1, 2]) == ErrorCode.NONE
    after = partition(harness)
    assert (after.replicas, after.is_reassigning) == ((3, 1, 2), False)
    assert (after.leader_id, after.leader_epoch) == (1, 0), "elect-leader moves it"
    offset = harness.controller.last_offset
    assert reassign(harness, [3, 1, 2]) == ErrorCode.NONE
    assert harness.controller.last_offset == offset, "nothing to do"


def test_a_cancelled_reassignment_leaves_the_original_replicas() -> None:
    harness, epochs = with_topic([1, 2, 3])
    assert reassign(harness, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(harness, [1, 4, 5])
    poll(harness)
    in_sync(harness, epochs, 1, 2, 3, 4)
    epoch = partition(harness).leader_epoch
    assert reassign(harness, None) == ErrorCode.NONE
    after = partition(harness)
    assert lists(harness) == ((1, 2, 3), (), ())
    assert (after.in_sync_replicas, after.leader_id) == ((1, 2, 3), 1)
    assert after.leader_epoch == epoch + 1, "4 and 5 have gone"


def test_a_cancellation_takes_the_leadership_from_an_added_replica() -> None:
    harness, epochs = with_topic([1, 2])
    reassign(harness, [3, 4])
    in_sync(harness, epochs, 1, 2, 3)
    fence(harness, 1)
    fence(harness, 2)
    assert partition(harness).leader_id == 3
    assert reassign(harness, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 3 has what was acknowledged"
    assert partition(harness).in_sync_replicas == (3,)
    epochs[2] = harness.live_broker(2)
    in_sync(harness, epochs, 2, 3)
    assert reassign(harness, None) == ErrorCode.NONE
    after = partition(harness)
    assert (after.replicas, after.leader_id, after.in_sync_replicas) == ((1, 2), 2, (2,))


def test_another_target_may_be_asked_for_on_the_way() -> None:
    harness, epochs = with_topic([1, 2, 3])
    reassign(harness, [4, 5, 6])
    in_sync(harness, epochs, 1, 2, 3, 4)
    assert reassign(harness, [4, 2, 3]) == ErrorCode.NONE
    assert lists(harness) == ((4, 2, 3, 1), (4,), (1,)), "5 and 6 have gone"
    poll(harness)
    assert lists(harness) == ((4, 2, 3), (), ()), "4 was in sync already"


def test_no_replica_in_sync_is_given_up_below_min_insync_replicas_for_another_target() -> None:
    harness, epochs = with_topic([1, 2], min_insync_replicas="2")
    reassign(harness, [3, 4])
    in_sync(harness, epochs, 1, 2, 3)
    fence(harness, 2)
    assert partition(harness).in_sync_replicas == (3, 1)
    assert reassign(harness, [4, 5]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(harness, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(harness, [3, 5]) == ErrorCode.NONE
    assert lists(harness) == ((3, 5, 1, 2), (3, 5), (1, 2))


def test_a_target_names_registered_brokers_once() -> None:
    harness, _ = with_topic([1, 2])
    for target in ([], [3, 3], [3, 99]):
        assert reassign(harness, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, target
    assert reassign(harness, [3], number=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(harness, [3], topic="absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(harness, [3], keep_replication_factor=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(harness, [3, 4], validate_only=True) == ErrorCode.NONE
    assert lists(harness) == ((1, 2), (), ())
    assert reassign(harness, [3, 4], keep_replication_factor=True) == ErrorCode.NONE


def test_a_request_is_bounded_and_names_a_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, _ = with_topic([1, 2], partitions=3)
    wanted = [PartitionReassignment(topic="orders", partition=number) for number in (0, 1, 0)]
    with pytest.raises(InvalidRequestError, match="twice"):
        harness.controller.alter_partition_reassignments(AlterPartitionReassignmentsRequest(partitions=wanted))
    monkeypatch.setattr(reassignments, "MAX_PARTITIONS_PER_REQUEST", 2)
    with pytest.raises(PolicyViolationError, match="limit 2"):
        harness.controller.alter_partition_reassignments(AlterPartitionReassignmentsRequest(partitions=wanted))


def test_completions_come_in_batches_and_outlive_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one controller has not written, the next one finds in the state."""
    monkeypatch.setattr(reassignments, "MAX_ELECTIONS_PER_BATCH", 2)
    harness, _ = with_topic([1, 2, 3], partitions=5)
    for number in range(5):
        reassign(harness, [2, 3], number=number)
    poll(harness)
    assert [partition(harness, number).is_reassigning for number in range(5)] == [False, False, True, True, True]
    harness.lose_leadership()
    harness.lead()
    for _ in range(2):
        poll(harness)
    assert not any(partition(harness, number).is_reassigning for number in range(5))


def test_a_refused_append_leaves_a_completion_for_later() -> None:
    harness, _ = with_topic([1, 2, 3])
    reassign(harness, [2, 3])
    harness.log.error = PolicyViolationError("full")
    poll(harness)
    harness.log.error = None
    assert partition(harness).is_reassigning
    poll(harness)
    assert not partition(harness).is_reassigning


def test_lowering_min_insync_replicas_may_complete_a_reassignment() -> None:
    harness, epochs = with_topic([1, 2, 3], min_insync_replicas="2")
    in_sync(harness, epochs, 1, 2)
    reassign(harness, [1, 3])
    poll(harness)
    assert partition(harness).is_reassigning
    set_config(harness, "min.insync.replicas", "1")
    poll(harness)
    assert (partition(harness).replicas, partition(harness).in_sync_replicas) == ((1, 3), (1,))


def test_a_partition_without_a_leader_waits_for_one() -> None:
    harness, epochs = with_topic([1])
    fence(harness, 1)
    assert partition(harness).leader_id == NO_LEADER
    assert reassign(harness, [2]) == ErrorCode.NONE
    poll(harness)
    assert lists(harness) == ((2, 1), (2,), (1,))
    assert partition(harness).leader_id == NO_LEADER, "2 has nothing"
    harness.heartbeat(1, epochs[1])
    assert in_sync(harness, epochs, 1, 2).replicas == (2,)


def test_no_broker_that_is_fenced_is_given_the_leadership() -> None:
    harness, epochs = with_topic([1, 2])
    reassign(harness, [3, 2])
    in_sync(harness, epochs, 1, 2, 3)
    assert lists(harness) == ((3, 2), (), ())
    assert reassign(harness, [4, 5]) == ErrorCode.NONE
    assert alter_isr(harness, epochs, (2, 3, 4, 5), leader=partition(harness).leader_id).error is None
    fence(harness, 4)
    poll(harness)
    assert partition(harness).is_reassigning, "4 has left the ISR"


def test_new_partitions_have_as_many_replicas_as_the_target() -> None:
    harness, _ = with_topic([1, 2])
    reassign(harness, [3, 4, 5])
    request = CreatePartitionsRequest(topics=[NewPartitions(name="orders", total_count=2)])
    (result,) = harness.run(lambda: harness.controller.create_partitions(request)).topics
    assert result.error_code == ErrorCode.NONE
    assert len(partition(harness, 1).replicas) == 3


# Internal topics follow the cluster as it grows.


def offsets_of(harness: Harness) -> list[PartitionImage]:
    return list(harness.image.topics["__consumer_offsets"].partitions.values())


def one_broker_with_offsets(config: ControllerConfig | None = None) -> tuple[Harness, dict[int, int]]:
    harness = Harness(config).lead()
    epochs = {1: harness.live_broker(1)}
    offsets = NewTopic(name="__consumer_offsets", num_partitions=6, replication_factor=-1)
    harness.create(offsets, NewTopic(name="orders", num_partitions=1, replication_factor=-1), allow_internal=True)
    return harness, epochs


def test_internal_topics_are_raised_when_brokers_join() -> None:
    """Their preferred leaders spread, too. Topics of users stay as they were made."""
    harness, epochs = one_broker_with_offsets()
    poll(harness)
    assert not any(each.is_reassigning for each in offsets_of(harness))
    epochs[2] = harness.live_broker(2)
    poll(harness)
    assert all(sorted(each.target_replicas) == [1, 2] for each in offsets_of(harness))
    epochs[3] = harness.live_broker(3)
    poll(harness)
    assert all(len(each.replicas) == 2 for each in offsets_of(harness)), "one thing after the other"
    _all_in_sync(harness, epochs)
    poll(harness)
    assert all(sorted(each.target_replicas) == [1, 2, 3] for each in offsets_of(harness))
    _all_in_sync(harness, epochs)
    assert all(sorted(each.in_sync_replicas) == [1, 2, 3] for each in offsets_of(harness))
    preferred = Counter(each.replicas[0] for each in (*offsets_of(harness), partition(harness)))
    assert sorted(preferred.values()) == [2, 2, 3]
    assert partition(harness).replicas == (1,)


def _all_in_sync(harness: Harness, epochs: dict[int, int]) -> None:
    topic_id = harness.image.topics["__consumer_offsets"].topic_id
    for node_id, epoch in epochs.items():
        changes = [
            IsrChange(
                topic_id=topic_id,
                partition=each.partition,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
                in_sync_replicas=tuple((replica, epochs[replica]) for replica in each.replicas),
            )
            for each in offsets_of(harness)
            if each.leader_id == node_id
        ]
        result = harness.controller.alter_partition(node_id, epoch, changes)
        assert all(answer.error is None for answer in harness.run(partial(_same, result)))
    poll(harness)


def _same(result: Result[list[IsrAnswer]]) -> Result[list[IsrAnswer]]:
    return result


def test_another_controller_goes_on_raising() -> None:
    harness, epochs = one_broker_with_offsets()
    epochs[2] = harness.live_broker(2)
    harness.lose_leadership()
    harness.lead()
    poll(harness)
    assert all(sorted(each.target_replicas) == [1, 2] for each in offsets_of(harness))


def test_internal_topics_are_raised_no_further_than_they_should_be() -> None:
    harness, _ = one_broker_with_offsets(ControllerConfig(internal_replication_factor=1))
    harness.live_broker(2)
    poll(harness)
    assert all(each.replicas == (1,) for each in offsets_of(harness))
