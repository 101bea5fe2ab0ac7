"""Who leads: in-sync and eligible replicas, unclean elections, the preferred leader, and batches that have a bound."""

import pytest

from kraftlog.kraft.controller import BrokerRegistration, ControllerConfig, IsrAnswer, IsrChange, controller, elections
from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.kraft.image.partition_state import effective_min_in_sync
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    ConfigChange,
    ConfigResource,
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    NewTopic,
)
from kraftlog.proto.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicOrPartitionError,
)
from tests.unit.kraft.controllers import Harness

SESSION_MS = ControllerConfig().broker_session_timeout_ms


def partition(harness: Harness, number: int = 0) -> PartitionImage:
    return harness.image.topics["orders"].partitions[number]


def shape(harness: Harness, number: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(leader, ISR, ELR, last-known ELR)."""
    its = partition(harness, number)
    return its.leader_id, its.in_sync_replicas, its.eligible_leader_replicas, its.last_known_elr


def with_topic(
    replicas: int = 3, partitions: int = 1, config: ControllerConfig | None = None, **configs: str
) -> tuple[Harness, dict[int, int]]:
    """Brokers 1, 2, 3 with a topic whose partition 0 has the replicas 1, 2, 3 in this order."""
    harness = Harness(config).lead()
    epochs = {node_id: harness.live_broker(node_id) for node_id in (1, 2, 3)}
    assignment = [1, 2, 3][:replicas]
    harness.create(
        NewTopic(
            name="orders",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[{"replicas": assignment}] * partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
    )
    return harness, epochs


def fence(harness: Harness, *node_ids: int) -> None:
    harness.run(lambda: harness.controller.life.fence(node_ids))


def alter_isr(
    harness: Harness, epochs: dict[int, int], isr: tuple[int, ...], *, leader: int = 1, **changes: int
) -> IsrAnswer:
    its = partition(harness)
    change = IsrChange(
        topic_id=harness.image.topics["orders"].topic_id,
        partition=0,
        leader_epoch=changes.get("leader_epoch", its.leader_epoch),
        partition_epoch=changes.get("partition_epoch", its.partition_epoch),
        in_sync_replicas=tuple((node_id, epochs[node_id]) for node_id in isr),
        has_recovered=bool(changes.get("has_recovered", 1)),
    )
    (answer,) = harness.run(lambda: harness.controller.alter_partition(leader, epochs[leader], [change]))
    return answer


def elect(harness: Harness, election: int, *numbers: int) -> ElectLeadersResponse:
    topics = [ElectionTopic(name="orders", partitions=numbers)] if numbers else []
    request = ElectLeadersRequest(type=election, topics=topics)  # type: ignore[arg-type] # an enum's number
    return harness.run(lambda: harness.controller.elect_leaders(request))


def set_config(harness: Harness, key: str, value: str) -> None:
    change = AlterConfigsResource(
        resource=ConfigResource(type=2, name="orders"), changes=[ConfigChange(name=key, value=value)]
    )
    request = IncrementalAlterConfigsRequest(resources=[change])
    (result,) = harness.run(lambda: harness.controller.alter_configs(request)).resources
    assert not result.error_code, result.error_message


# Eligible leader replicas (KIP-966).


def test_replicas_that_leave_a_short_isr_stay_eligible() -> None:
    """min.insync.replicas 2: nothing is acknowledged with one in sync, so whoever left then has everything."""
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 3)
    assert shape(harness) == (1, (1, 2), (), ()), "two are enough: what 3 lacks may be acknowledged"
    fence(harness, 1)
    assert shape(harness) == (2, (2,), (1,), ())
    fence(harness, 2)
    assert shape(harness) == (NO_LEADER, (), (1, 2), ())


def test_eligible_replica_leads_again_and_alone_is_in_sync() -> None:
    """It has every acknowledged record. The other one stays eligible until the ISR is long enough."""
    harness, epochs = with_topic(min_insync_replicas="2")
    fence(harness, 3)
    fence(harness, 1, 2)
    harness.heartbeat(3, epochs[3])
    assert shape(harness)[0] == NO_LEADER, "broker 3 may lack records"
    harness.heartbeat(2, epochs[2])
    assert shape(harness) == (2, (2,), (1,), ())
    assert not partition(harness).is_recovering
    harness.heartbeat(1, epochs[1])
    assert not alter_isr(harness, epochs, (1, 2), leader=2).error
    assert shape(harness) == (2, (1, 2), (), ())
    assert not harness.unclean_elections


def test_min_insync_replicas_above_the_number_of_replicas_means_all_of_them() -> None:
    """As on the brokers: min(min.insync.replicas, replicas)."""
    harness, _ = with_topic(replicas=2, min_insync_replicas="3")
    fence(harness, 2)
    assert shape(harness) == (1, (1,), (2,), ())


def test_lower_min_insync_replicas_end_what_is_eligible() -> None:
    """With one in sync that is enough, records are acknowledged that the others do not have."""
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 2, 3)
    assert shape(harness) == (1, (1,), (2, 3), ())
    set_config(harness, "min.insync.replicas", "1")
    assert shape(harness) == (1, (1,), (), ())


def test_raised_min_insync_replicas_end_what_is_eligible_unless_it_is_all_there_is() -> None:
    """A broker may not have heard of the change when it acknowledges."""
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 2, 3)
    set_config(harness, "min.insync.replicas", "3")
    assert shape(harness) == (1, (1,), (), (2, 3))
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 1, 2, 3)
    set_config(harness, "min.insync.replicas", "3")
    assert shape(harness) == (NO_LEADER, (), (1, 2, 3), ())


# Unclean stops and elections.


def restart(harness: Harness, node_id: int, previous: int | None, *, disk: int = 0) -> int:
    registration = BrokerRegistration(
        node_id=node_id,
        incarnation_id=b"new" + bytes(13),
        host="localhost",
        port=9092,
        log_dirs=(bytes([node_id, disk]) * 8,),
        previous_broker_epoch=previous,
    )
    harness.now_ms += SESSION_MS
    epoch = harness.run(lambda: harness.controller.register_broker(registration, now_ms=harness.now_ms))
    harness.heartbeat(node_id, epoch)
    return epoch


def test_unclean_stop_costs_the_place_where_acknowledged_means_written() -> None:
    """flush.policy=interval: what was not on disk is gone. The epoch in the clean-shutdown marker proves the contrary."""
    harness, epochs = with_topic(min_insync_replicas="2", flush_policy="interval")
    fence(harness, 3)
    fence(harness, 1)
    fence(harness, 2)
    assert shape(harness) == (NO_LEADER, (), (1, 2), ())
    restart(harness, 1, -1)
    assert shape(harness) == (NO_LEADER, (), (2,), (1,))
    restart(harness, 2, epochs[2])
    assert shape(harness) == (2, (2,), (), (1,))


def test_unclean_stop_costs_nothing_where_acknowledged_means_on_disk() -> None:
    """flush.policy=ack, the default: recovery finds every record."""
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 1, 2, 3)
    restart(harness, 1, -1)
    assert shape(harness) == (1, (1,), (2, 3), ())


@pytest.mark.parametrize("previous", [-1, None])
def test_same_process_that_registers_again_has_lost_nothing(previous: int | None) -> None:
    """The answer to its first registration was lost."""
    harness, _ = with_topic(min_insync_replicas="2", flush_policy="interval")
    fence(harness, 1, 2, 3)
    registration = BrokerRegistration(
        node_id=1, incarnation_id=bytes([1]) * 16, host="localhost", port=9092, previous_broker_epoch=previous
    )
    harness.run(lambda: harness.controller.register_broker(registration, now_ms=harness.now_ms))
    assert shape(harness) == (NO_LEADER, (), (1, 2, 3), ())


def test_lost_disk_costs_the_place_whatever_the_flush_policy() -> None:
    """Another directory id: the records are on the disk that is gone."""
    harness, epochs = with_topic(min_insync_replicas="2")
    epochs[1] = restart(harness, 1, None)
    alter_isr(harness, epochs, (1, 2, 3), leader=2)
    fence(harness, 2, 3)
    fence(harness, 1)
    assert shape(harness) == (NO_LEADER, (), (1, 2, 3), ())
    registration = BrokerRegistration(
        node_id=1, incarnation_id=bytes(16), host="h", port=1, log_dirs=(bytes(16),), previous_broker_epoch=epochs[1]
    )
    harness.now_ms += SESSION_MS
    harness.run(lambda: harness.controller.register_broker(registration, now_ms=harness.now_ms))
    assert shape(harness) == (NO_LEADER, (), (2, 3), (1,))


def test_a_replica_that_its_broker_calls_lost_leaves_isr_and_elr_at_once() -> None:
    """A damaged log, whatever the flush policy and however clean the stop; the broker's other replicas keep their places."""
    harness, epochs = with_topic(partitions=2, min_insync_replicas="3")
    fence(harness, 1)
    assert [shape(harness, number) for number in (0, 1)] == [(2, (2, 3), (1,), ())] * 2
    registration = BrokerRegistration(
        node_id=1,
        incarnation_id=b"new" + bytes(13),
        host="localhost",
        port=9092,
        log_dirs=(bytes([1, 0]) * 8,),
        previous_broker_epoch=epochs[1],
        lost_replicas=frozenset({(harness.image.topics["orders"].topic_id, 1)}),
    )
    harness.now_ms += SESSION_MS
    harness.run(lambda: harness.controller.register_broker(registration, now_ms=harness.now_ms))
    assert shape(harness, 0) == (2, (2, 3), (1,), ())
    assert shape(harness, 1) == (2, (2, 3), (), (1,))


def test_only_replica_leads_again_and_everybody_hears_of_it() -> None:
    """Nobody else has more; what was acknowledged may be missing all the same."""
    harness, _ = with_topic(replicas=1, flush_policy="interval")
    restart(harness, 1, -1)
    assert shape(harness) == (1, (1,), (), ())
    assert partition(harness).is_recovering
    ((event),) = harness.unclean_elections
    assert (event.partition, event.leader_id) == (0, 1)


def test_unclean_election_only_by_the_topics_config() -> None:
    """The last-known leader before others; the partition recovers until its leader says that it is ready (KIP-704)."""
    harness, epochs = with_topic(flush_policy="interval")
    fence(harness, 3)
    fence(harness, 1)
    fence(harness, 2)
    assert shape(harness) == (NO_LEADER, (), (2,), ())
    epochs[2] = restart(harness, 2, -1)
    epochs[3] = restart(harness, 3, -1)
    assert shape(harness) == (NO_LEADER, (), (), (2,))
    assert not harness.unclean_elections
    set_config(harness, "unclean.leader.election.enable", "true")
    assert shape(harness) == (2, (2,), (), ())
    assert partition(harness).is_recovering
    assert [event.leader_id for event in harness.unclean_elections] == [2]
    with pytest.raises(InvalidRequestError):
        raise alter_isr(harness, epochs, (2, 3), leader=2, has_recovered=0).error or AssertionError
    assert not alter_isr(harness, epochs, (2, 3), leader=2).error
    assert not partition(harness).is_recovering
    assert shape(harness) == (2, (2, 3), (), ())


def test_each_later_controller_tells_of_a_partition_that_has_not_recovered() -> None:
    """Its predecessor may have died with the message."""
    harness, _ = with_topic(replicas=1, flush_policy="interval")
    restart(harness, 1, -1)
    harness.unclean_elections.clear()
    harness.lose_leadership()
    harness.lead()
    assert len(harness.unclean_elections) == 1


# On demand.


def test_preferred_leaders_on_demand() -> None:
    """Each partition succeeds or fails alone."""
    harness, epochs = with_topic(partitions=2)
    fence(harness, 1)
    assert {partition(harness, number).leader_id for number in (0, 1)} == {2}
    response = elect(harness, ElectLeadersRequest.PREFERRED, 0, 7)
    assert [result.error_code for result in response.partitions] == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    epochs[1] = harness.register(1)
    harness.heartbeat(1, epochs[1])
    alter_isr(harness, epochs, (1, 2, 3), leader=2)
    (result,) = elect(harness, ElectLeadersRequest.PREFERRED).partitions
    assert (result.topic, result.partition, result.error_code, result.leader_id) == ("orders", 0, 0, 1)
    assert shape(harness) == (1, (1, 2, 3), (), ())
    (result,) = elect(harness, ElectLeadersRequest.PREFERRED, 0).partitions
    assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_unclean_leaders_on_demand() -> None:
    """Without the topic's config, because somebody asks for it; only where nobody leads."""
    harness, epochs = with_topic()
    fence(harness, 3)
    fence(harness, 1, 2)
    (result,) = elect(harness, ElectLeadersRequest.UNCLEAN, 0).partitions
    assert result.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    harness.heartbeat(3, epochs[3])
    (result,) = elect(harness, ElectLeadersRequest.UNCLEAN).partitions
    assert (result.leader_id, shape(harness)) == (3, (3, (3,), (), ()))
    assert partition(harness).is_recovering
    (result,) = elect(harness, ElectLeadersRequest.UNCLEAN, 0).partitions
    assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_unknown_election_types_are_refused() -> None:
    """The number comes from the wire."""
    harness, _ = with_topic()
    with pytest.raises(InvalidRequestError, match="election type 7"):
        elect(harness, 7, 0)


# Balance.


def test_leaders_go_back_to_preferred_ones_after_the_interval() -> None:
    """Not before, and only for brokers that miss more than the percentage."""
    config = ControllerConfig(leader_imbalance_check_interval_seconds=10, leader_imbalance_per_broker_percentage=10)
    harness, epochs = with_topic(config=config)
    began = harness.now_ms
    fence(harness, 1)
    epochs[1] = harness.register(1)
    harness.heartbeat(1, epochs[1])
    alter_isr(harness, epochs, (1, 2, 3), leader=2)
    assert shape(harness)[0] == 2
    harness.now_ms = began + 9_999
    for node_id, epoch in epochs.items():
        harness.heartbeat(node_id, epoch)
    assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) == began + 10_000
    harness.commit()
    assert shape(harness)[0] == 2
    harness.now_ms = began + 10_000
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert shape(harness)[0] == 1


@pytest.mark.parametrize(
    "config",
    [
        ControllerConfig(auto_leader_rebalance_enable=False),
        ControllerConfig(leader_imbalance_per_broker_percentage=100),
    ],
)
def test_leaders_stay_where_balance_is_off(config: ControllerConfig) -> None:
    """auto.leader.rebalance.enable, and a percentage that nothing exceeds."""
    harness, epochs = with_topic(config=config)
    fence(harness, 1)
    epochs[1] = harness.register(1)
    harness.heartbeat(1, epochs[1])
    alter_isr(harness, epochs, (1, 2, 3), leader=2)
    harness.now_ms += 1_000_000
    for node_id, epoch in epochs.items():
        harness.heartbeat(node_id, epoch)
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert shape(harness)[0] == 2


def test_balance_goes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of a few partitions at a time look for their leader; the next step is due at once."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_BALANCE", 2)
    monkeypatch.setattr(controller, "MAX_ELECTIONS_PER_BALANCE", 2)
    harness, epochs = with_topic(partitions=5)
    fence(harness, 1)
    epochs[1] = harness.register(1)
    harness.heartbeat(1, epochs[1])
    topic_id = harness.image.topics["orders"].topic_id
    changes = [
        IsrChange(
            topic_id=topic_id,
            partition=number,
            leader_epoch=1,
            partition_epoch=1,
            in_sync_replicas=tuple((node_id, epochs[node_id]) for node_id in (1, 2, 3)),
        )
        for number in range(5)
    ]
    answers = harness.run(lambda: harness.controller.alter_partition(2, epochs[2], changes))
    assert not any(answer.error for answer in answers)
    harness.now_ms += 300_000
    for node_id, epoch in epochs.items():
        harness.heartbeat(node_id, epoch)
    led = []
    for _ in range(3):
        harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
        led.append(sum(partition(harness, number).leader_id == 1 for number in range(5)))
    assert led == [2, 4, 5]


# Batches.


def test_elections_above_the_batch_limit_go_on_in_the_next_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is whole by itself, and a controller that takes over in between goes on."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_BATCH", 3)
    harness, epochs = with_topic(partitions=8)
    harness.now_ms += SESSION_MS
    for node_id in (2, 3):
        harness.heartbeat(node_id, epochs[node_id])
    led: list[int] = []
    for turn in range(3):
        if turn == 1:
            harness.lose_leadership()
            harness.lead()
        again = harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
        led.append(sum(1 in partition(harness, number).in_sync_replicas for number in range(8)))
        assert (again == harness.now_ms) == (turn < 2), "called again at once until there is nothing more"
    assert harness.image.brokers[1].is_fenced
    assert led == [2, 0, 0], "with the fencing itself three, then one batch a poll"
    assert {partition(harness, number).leader_id for number in range(8)} == {2}


def test_a_broker_is_unfenced_only_when_it_has_left_every_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered again with more replicas than one batch moves: what it would still lead, it would lead in an epoch of its
    former process, with records that it may have lost since."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_BATCH", 3)
    harness, _ = with_topic(replicas=1, partitions=8)
    before = [partition(harness, number).leader_epoch for number in range(8)]
    epoch = restart(harness, 1, -1)
    for _ in range(6):
        harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
        harness.heartbeat(1, epoch)
    assert not harness.image.brokers[1].is_fenced
    assert [partition(harness, number).leader_id for number in range(8)] == [1] * 8
    assert all(partition(harness, number).leader_epoch > before[number] for number in range(8))


def test_return_of_a_broker_above_the_batch_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first heartbeat elects for some, polls for the rest."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_BATCH", 3)
    harness, epochs = with_topic(replicas=1, partitions=8)
    fence(harness, 1)
    for _ in range(3):
        harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
    assert {partition(harness, number).leader_id for number in range(8)} == {NO_LEADER}
    harness.heartbeat(1, epochs[1])
    led = []
    for _ in range(3):
        led.append(sum(partition(harness, number).leader_id == 1 for number in range(8)))
        harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
    assert led == [3, 6, 8]


def test_several_silent_brokers_are_fenced_in_one_batch() -> None:
    """Leadership does not go to a broker that is about to lose it: one election for each partition, not two."""
    harness, epochs = with_topic(partitions=4)
    harness.now_ms += SESSION_MS
    harness.heartbeat(3, epochs[3])
    batches = len(harness.log.batches)
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert len(harness.log.batches) == batches + 1
    for number in range(4):
        assert shape(harness, number) == (3, (3,), (), ())
        assert partition(harness, number).leader_epoch == 1


def test_partitions_of_a_broker_that_is_gone_for_good() -> None:
    """Unregistered: it leaves ISR and ELR, in batches, and nothing of it is trusted when it comes back."""
    harness, _ = with_topic(min_insync_replicas="2")
    fence(harness, 2, 3)
    harness.run(lambda: harness.controller.unregister_broker(3))
    assert shape(harness) == (1, (1,), (2,), (3,))
    harness.run(lambda: harness.controller.unregister_broker(1))
    assert shape(harness) == (NO_LEADER, (), (2,), (1, 3))


# AlterPartition.


def test_leader_takes_replicas_in_and_out() -> None:
    """The partition epoch grows, the leader epoch does not: nobody else's fetches are disturbed."""
    harness, epochs = with_topic()
    assert alter_isr(harness, epochs, (1, 3)).partition == partition(harness)
    assert shape(harness) == (1, (1, 3), (), ())
    assert (partition(harness).leader_epoch, partition(harness).partition_epoch) == (0, 1)
    alter_isr(harness, epochs, (1, 2, 3))
    assert shape(harness) == (1, (1, 2, 3), (), ())


def test_isr_that_is_not_the_leaders_to_set_is_refused() -> None:
    """Stale epochs of leader, partition and follower; strangers; a leader that leaves itself out."""
    harness, epochs = with_topic()
    alter_isr(harness, epochs, (1, 2))
    fence(harness, 3)
    errors = [
        alter_isr(harness, epochs, (1,), partition_epoch=0).error,
        alter_isr(harness, epochs, (1,), partition_epoch=9).error,
        alter_isr(harness, epochs, (1,), leader_epoch=9).error,
        alter_isr(harness, epochs, (1,), leader_epoch=-1).error,
        alter_isr(harness, epochs, (1, 2), leader=2).error,
        alter_isr(harness, epochs, (1, 2, 3)).error,
        alter_isr(harness, {**epochs, 2: epochs[2] - 1}, (1, 2)).error,
        alter_isr(harness, epochs, (2,)).error,
    ]
    assert [type(error) for error in errors] == [
        InvalidUpdateVersionError,
        NotControllerError,
        NotControllerError,
        FencedLeaderEpochError,
        FencedLeaderEpochError,
        IneligibleReplicaError,
        IneligibleReplicaError,
        InvalidRequestError,
    ]
    with pytest.raises(StaleBrokerEpochError):
        alter_isr(harness, {**epochs, 1: epochs[1] - 1}, (1, 2))
    assert shape(harness) == (1, (1, 2), (), ())
    change = IsrChange(
        topic_id=bytes(16), partition=0, leader_epoch=0, partition_epoch=0, in_sync_replicas=((1, epochs[1]),)
    )
    (answer,) = harness.run(lambda: harness.controller.alter_partition(1, epochs[1], [change]))
    assert isinstance(answer.error, UnknownTopicOrPartitionError)
    with pytest.raises(InvalidRequestError, match="twice"):
        harness.run(lambda: harness.controller.alter_partition(1, epochs[1], [change, change]))


def test_stopping_leader_hands_over_to_the_replica_that_it_takes_in() -> None:
    """It could not stop because nobody else was in sync. In two steps: the other one is in sync first, then it leads."""
    harness, epochs = with_topic(replicas=2)
    alter_isr(harness, epochs, (1,))
    harness.heartbeat(1, epochs[1], want_shut_down=True)
    assert shape(harness) == (1, (1,), (), ())
    assert not alter_isr(harness, epochs, (1, 2)).error
    assert shape(harness) == (1, (1, 2), (), ())
    harness.heartbeat(1, epochs[1], want_shut_down=True)
    assert shape(harness) == (2, (2,), (), ())


# Disks.


def test_broker_whose_last_disk_fails_is_fenced() -> None:
    """Its heartbeats go on; it is unfenced by a registration with a disk that works."""
    harness, _ = with_topic()
    epoch = restart(harness, 1, None)
    directory = harness.image.brokers[1].log_dirs[0]

    def report() -> bool:
        return harness.run(
            lambda: harness.controller.heartbeat(
                1,
                epoch,
                metadata_offset=harness.image.offset,
                want_fence=False,
                want_shut_down=False,
                offline_log_dirs=[directory],
                now_ms=harness.now_ms,
            )
        ).is_fenced

    assert report()
    assert shape(harness)[0] == 2
    assert harness.image.brokers[1].log_dirs == ()
    assert report(), "the next heartbeat changes nothing"
    restart(harness, 1, epoch)
    assert not harness.image.brokers[1].is_fenced


def tell_damage(harness: Harness, node_id: int, epoch: int) -> None:
    """The heartbeats of a broker that has found its replica of the first partition damaged."""
    lost = [(harness.image.topics["orders"].topic_id, 0)]
    for _ in range(2):
        harness.run(
            lambda: harness.controller.heartbeat(
                node_id,
                epoch,
                metadata_offset=harness.image.offset,
                want_fence=False,
                want_shut_down=False,
                lost_replicas=lost,
                now_ms=harness.now_ms,
            )
        )


def test_damaged_replica_leaves_where_another_one_has_everything() -> None:
    """In use and damaged (R03): a follower leaves the ISR, a leader first hands over; the other partitions stay."""
    harness, epochs = with_topic(partitions=2, min_insync_replicas="2")
    tell_damage(harness, 3, epochs[3])
    assert shape(harness) == (1, (1, 2), (), ())
    tell_damage(harness, 1, epochs[1])
    assert shape(harness) == (2, (2,), (), (1,))
    assert shape(harness, 1) == (1, (1, 2, 3), (), ())
    tell_damage(harness, 2, epochs[2])
    assert shape(harness) == (2, (2,), (), (1,)), "it is all there is"


def test_damaged_replica_counts_no_more_with_what_it_has_reported() -> None:
    """It throws its log away, and its process is the same: only another leader epoch makes void what its leader knows of it, and
    what the leader may be asking for at this moment."""
    harness, epochs = with_topic(min_insync_replicas="2")
    knows = {"leader_epoch": partition(harness).leader_epoch}
    tell_damage(harness, 3, epochs[3])
    assert shape(harness) == (1, (1, 2), (), ())
    answer = alter_isr(harness, epochs, (1, 2, 3), **knows)
    assert isinstance(answer.error, FencedLeaderEpochError)

    knows = {"leader_epoch": partition(harness).leader_epoch}
    tell_damage(harness, 3, epochs[3])
    assert shape(harness) == (1, (1, 2), (), ()), "it was in no set"
    answer = alter_isr(harness, epochs, (1, 2, 3), **knows)
    assert isinstance(answer.error, FencedLeaderEpochError)


def test_damage_of_a_replica_out_of_sync_takes_no_partition_offline() -> None:
    """Who leads while it is about to stop, because nobody else can, leads on."""
    harness, epochs = with_topic(min_insync_replicas="1")
    alter_isr(harness, epochs, (1,))
    harness.run(
        lambda: harness.controller.heartbeat(
            1,
            epochs[1],
            metadata_offset=harness.image.offset,
            want_fence=False,
            want_shut_down=True,
            now_ms=harness.now_ms,
        )
    )
    fence(harness, 2)
    before = shape(harness)
    assert before[0] == 1
    tell_damage(harness, 3, epochs[3])
    assert shape(harness) == before


def test_damage_changes_nothing_where_nobody_leads_or_the_broker_has_no_replica() -> None:
    harness, epochs = with_topic(replicas=2)
    before = partition(harness)
    tell_damage(harness, 3, epochs[3])
    assert partition(harness) == before
    alter_isr(harness, epochs, (1,))
    fence(harness, 1)
    assert shape(harness) == (NO_LEADER, (), (1,), ())
    before = partition(harness)
    tell_damage(harness, 2, epochs[2])
    assert partition(harness) == before


def test_damaged_replica_is_eligible_where_nobody_leads_and_no_other_could() -> None:
    """Else only an unclean election would bring back what can be read, once all of them have met damage."""
    harness, epochs = with_topic(replicas=2, min_insync_replicas="2")
    fence(harness, 1, 2)
    assert shape(harness) == (NO_LEADER, (), (1, 2), ())
    tell_damage(harness, 2, epochs[2])
    assert shape(harness) == (2, (2,), (1,), ())
    harness.heartbeat(1, epochs[1])
    tell_damage(harness, 2, epochs[2])
    assert shape(harness) == (1, (1,), (), (2,))


def test_damaged_leader_hands_over_to_the_elr_but_to_nobody_uncleanly() -> None:
    """Records that can be read are worth more than a log without damage that lacks them."""
    harness, epochs = with_topic(min_insync_replicas="3", unclean_leader_election_enable="true")
    fence(harness, 2)
    fence(harness, 3)
    assert shape(harness) == (1, (1,), (2, 3), ())
    tell_damage(harness, 1, epochs[1])
    assert shape(harness) == (1, (1,), (2, 3), ()), "they are fenced"
    harness.heartbeat(3, epochs[3])
    tell_damage(harness, 1, epochs[1])
    assert shape(harness) == (3, (3,), (2,), (1,))
    assert not harness.unclean_elections


def test_damaged_only_replica_leads_on() -> None:
    """Without an election, unclean or not."""
    harness, epochs = with_topic(replicas=1)
    before = partition(harness)
    tell_damage(harness, 1, epochs[1])
    assert partition(harness) == before


def test_stopping_broker_waits_for_elections_above_the_batch_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop while a later batch still has its partitions to move, it would leave clients without a leader."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_BATCH", 3)
    harness, epochs = with_topic(replicas=1, partitions=5)
    for node_id in (2, 3):
        fence(harness, node_id)
    replies = []
    for _ in range(3):
        replies.append(harness.heartbeat(1, epochs[1], want_shut_down=True))
        leads = any(partition(harness, number).leader_id == 1 for number in range(5))
        assert not (replies[-1].should_shut_down and leads)
        harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
        harness.commit()
    assert [reply.should_shut_down for reply in replies] == [False, False, True]
    assert [reply.is_fenced for reply in replies] == [False, True, True]


@pytest.mark.parametrize(
    ("configured", "replicas", "expected"),
    [(-1, 1, 1), (-1, 2, 1), (-1, 3, 2), (-1, 5, 4), (2, 1, 1), (1, 3, 1), (3, 3, 3)],
)
def test_effective_min_in_sync(configured: int, replicas: int, expected: int) -> None:
    """Unless a topic says otherwise, all replicas but one must have what is acknowledged."""
    assert effective_min_in_sync(configured, replicas) == expected
