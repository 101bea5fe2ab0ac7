"""The controller's model notices a controller that breaks one of its rules: a checker that cannot fail proves nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kraftlog.kraft.controller import HeartbeatReply, Result, partition_change
from kraftlog.kraft.controller.broker_life import BrokerLife
from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.configs import ConfigManager
from kraftlog.kraft.controller.controller import Controller
from kraftlog.kraft.controller.elections import ElectionManager
from kraftlog.kraft.controller.in_sync_replicas import IsrManager
from kraftlog.kraft.controller.operations import OperationManager
from kraftlog.kraft.controller.partitions import PartitionStore
from kraftlog.kraft.controller.producer_ids import ProducerIdManager
from kraftlog.kraft.controller.topics import TopicManager
from kraftlog.kraft.image import PartitionImage, as_records, partition_state
from kraftlog.kraft.timeline import SnapshotRegistry
from tests.property.test_controller_model import SETTINGS, ControllerMachine

QUICK = settings(
    SETTINGS,
    max_examples=1000,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
Plant = Callable[[pytest.MonkeyPatch], None]


def without(owner: object, name: str, answer: object = None) -> Plant:
    return lambda patch: patch.setattr(owner, name, lambda *arguments, **more: answer)


def elect_anybody_in_replica_order(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether it has all records, neither the one who decides nor the table."""

    def choose(partition: PartitionImage, isr: Any, elr: Any, rules: Any, may_lead: Any, *rest: Any) -> Any:
        for replica in partition.replicas:
            if may_lead(partition, replica):
                return partition_change._Choice(replica)
        return partition_change._Choice(-1)

    patch.setattr(partition_change, "_choose", choose)
    patch.setattr(partition_state, "check_change", lambda before, after: None)


def call_every_replica_that_left_eligible(patch: pytest.MonkeyPatch) -> None:
    """Whatever min.insync.replicas says: KIP-966 without its condition."""

    def eligible(partition: PartitionImage, isr: Any, rules: Any, lost: Any) -> Any:
        had = {*partition.in_sync_replicas, *partition.eligible_leader_replicas} - set(isr) - lost
        return tuple(sorted(had)), ()

    patch.setattr(partition_change, "_eligible", eligible)


def keep_the_elr_of_an_unclean_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerLife, "_has_lost", lambda *arguments: lambda key, partition: False)


def keep_the_replicas_of_a_lost_disk(patch: pytest.MonkeyPatch) -> None:
    has_lost = BrokerLife._has_lost

    def trusting(self: BrokerLife, before: Any, registration: Any) -> Any:
        return has_lost(self, before and replace(before, log_dirs=()), registration)

    patch.setattr(BrokerLife, "_has_lost", trusting)


def elect_uncleanly_without_a_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_report_unclean", lambda *arguments: None)


def keep_fenced_brokers_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerLife, "_leave", lambda *arguments: [])
    patch.setattr(ElectionManager, "left_over", lambda self: [])


def forget_what_was_left_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ElectionManager, "left_over", lambda self: [])


def let_an_epoch_stand(patch: pytest.MonkeyPatch) -> None:
    """A change of the leader without a new leader epoch."""
    changed = partition_state.replace

    def without_epoch(partition: PartitionImage, **changes: Any) -> PartitionImage:
        return changed(partition, **{**changes, "leader_epoch": partition.leader_epoch})

    patch.setattr(partition_state, "replace", without_epoch)
    patch.setattr(partition_state, "check_change", lambda before, after: None)


def hear_stale_brokers(patch: pytest.MonkeyPatch) -> None:
    check_epoch = BrokerManager.check_epoch

    def indulgent(self: BrokerManager, node_id: int, broker_epoch: int) -> Any:
        broker = self.broker(node_id)
        return check_epoch(self, node_id, broker_epoch if broker is None else broker.broker_epoch)

    patch.setattr(BrokerManager, "check_epoch", indulgent)


def take_in_restarted_followers(patch: pytest.MonkeyPatch) -> None:
    """AlterPartition without KIP-903: the leader's word on a follower that has restarted, or is fenced, counts."""
    patch.setattr(IsrManager, "_check_members", lambda *arguments: None)


def do_repeats_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OperationManager, "answer", lambda self, request: None)


def forget_operations_on_failover(patch: pytest.MonkeyPatch) -> None:
    """The response is remembered by the controller that gave it, and by no other."""
    records = as_records.records_of

    def without_operations(image: Any) -> Any:
        return (record for record in records(image) if not record.HasField("completed_operation"))

    patch.setattr("tests.property.controller_cluster.records_of", without_operations)


def answer_at_once(patch: pytest.MonkeyPatch) -> None:
    """Before the commit."""
    patch.setattr(Controller, "_park", lambda self, response, complete: complete(response, None))


def keep_what_was_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A controller that loses the leadership does not go back."""
    patch.setattr(SnapshotRegistry, "revert_to", lambda self, offset: None)


def delete_the_topic_alone(patch: pytest.MonkeyPatch) -> None:
    """Its configs stay, for the next topic with the name."""
    patch.setattr(ConfigManager, "forget", lambda *arguments: None)


def forget_the_index_of_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionStore, "eligible_for", lambda self, node_id: [])


def repeat_producer_ids(patch: pytest.MonkeyPatch) -> None:
    replay = ProducerIdManager.replay

    def one_short(self: ProducerIdManager, record: Any) -> None:
        replay(self, record)
        self._next.set(max(self._next.get() - 1, 0))

    patch.setattr(ProducerIdManager, "replay", one_short)


def raise_features_above_the_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kraftlog.kraft.controller.features._covers", lambda *arguments: True)


def stop_at_once(patch: pytest.MonkeyPatch) -> None:
    """A controlled shutdown that moves nothing."""
    reply = HeartbeatReply(is_fenced=False, should_shut_down=True)
    patch.setattr(BrokerLife, "_controlled_shutdown", lambda *arguments: Result(reply))


def grow_a_topic_with_a_hole(patch: pytest.MonkeyPatch) -> None:
    count = TopicManager._check_growth

    def beyond(self: TopicManager, growth: Any) -> Any:
        topic, factor = count(self, growth)
        return replace(topic, partition_count=topic.partition_count + 1), factor

    patch.setattr(TopicManager, "_check_growth", beyond)


def check_that_it_fails() -> None:
    with pytest.raises(Exception) as failure:
        run_state_machine_as_test(ControllerMachine, settings=QUICK)
    assert not isinstance(failure.value, TypeError | NameError | AttributeError), "the planted bug is none"


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        elect_anybody_in_replica_order,
        keep_the_elr_of_an_unclean_stop,
        keep_the_replicas_of_a_lost_disk,
        elect_uncleanly_without_a_word,
        keep_fenced_brokers_in_the_isr,
        let_an_epoch_stand,
        hear_stale_brokers,
        take_in_restarted_followers,
        do_repeats_again,
        forget_operations_on_failover,
        answer_at_once,
        keep_what_was_not_committed,
        delete_the_topic_alone,
        forget_the_index_of_eligible_leaders,
        repeat_producer_ids,
        stop_at_once,
    ],
)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a rule of its own, switched off."""
    plant(monkeypatch)
    check_that_it_fails()


@pytest.mark.deep
@pytest.mark.parametrize(
    "plant",
    [
        call_every_replica_that_left_eligible,
        forget_what_was_left_over,
        raise_features_above_the_brokers,
        grow_a_topic_with_a_hole,
    ],
)
def test_a_planted_bug_that_shows_rarely_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes hundreds of runs."""
    plant(monkeypatch)
    check_that_it_fails()
