"""Registration, epochs, fencing, and who leads when brokers come and go."""

import pytest

from kraftlog.kraft.controller import BrokerRegistration, ControllerConfig
from kraftlog.kraft.image import NO_LEADER, BrokerEndpoint, PartitionImage
from kraftlog.proto.admin_pb2 import NewTopic
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    IllegalStateError,
    InvalidRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
)
from kraftlog.proto.metadata_pb2 import ProducerIdsRecord
from tests.unit.kraft.controllers import Harness

SESSION_MS = ControllerConfig().broker_session_timeout_ms


def partition(harness: Harness, number: int = 0) -> PartitionImage:
    return harness.image.topics["orders"].partitions[number]


def with_topic(brokers: int = 2, replicas: int = 2, partitions: int = 2) -> tuple[Harness, dict[int, int]]:
    harness = Harness().lead()
    epochs = {node_id: harness.live_broker(node_id) for node_id in range(1, brokers + 1)}
    harness.create(NewTopic(name="orders", num_partitions=partitions, replication_factor=replicas))
    return harness, epochs


def expire(harness: Harness, *, alive: dict[int, int]) -> None:
    """Let a session timeout pass in which only these brokers send heartbeats."""
    harness.now_ms += SESSION_MS - 1
    for node_id, epoch in alive.items():
        harness.heartbeat(node_id, epoch)
    harness.now_ms += 1
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()


def test_broker_epoch_is_the_offset_of_the_registration() -> None:
    """So it grows with every registration, over restarts and leaders."""
    harness = Harness().lead()
    end = harness.log.next_offset
    assert harness.register(1) == end
    broker = harness.image.brokers[1]
    assert (broker.broker_epoch, broker.is_fenced, broker.port) == (end, True, 9093)
    assert harness.register(1, incarnation=2) > end


def test_same_incarnation_keeps_its_epoch() -> None:
    """The answer to the first registration was lost."""
    harness = Harness().lead()
    assert harness.register(1) == harness.register(1)


def test_heartbeat_unfences_a_broker_that_has_its_registration() -> None:
    """Not before: a broker without its own registration does not know what it leads."""
    harness = Harness().lead()
    epoch = harness.register(1)
    behind = harness.run(
        lambda: harness.controller.heartbeat(
            1, epoch, metadata_offset=epoch - 1, want_fence=False, want_shut_down=False, now_ms=harness.now_ms
        )
    )
    assert behind.is_fenced
    assert not harness.heartbeat(1, epoch).is_fenced
    assert not harness.image.brokers[1].is_fenced
    assert harness.image.live_brokers() == (harness.image.brokers[1],)


def test_heartbeats_change_nothing_while_all_is_well() -> None:
    """They would fill the log otherwise."""
    harness, epochs = with_topic()
    end = harness.log.next_offset
    for _ in range(5):
        harness.heartbeat(1, epochs[1])
    assert harness.log.next_offset == end


def test_stale_and_unknown_brokers_are_told_so() -> None:
    """A process that was replaced must not act for its successor."""
    harness = Harness().lead()
    old = harness.register(1)
    harness.register(1, incarnation=2)
    with pytest.raises(StaleBrokerEpochError):
        harness.heartbeat(1, old)
    with pytest.raises(BrokerIdNotRegisteredError):
        harness.heartbeat(2, old)
    with pytest.raises(StaleBrokerEpochError):
        harness.run(lambda: harness.controller.allocate_producer_ids(1, old, 1000))


def test_node_id_of_a_live_broker_is_not_given_to_another_process() -> None:
    """Two processes with one id: the second is refused until the session of the first has run out."""
    harness = Harness().lead()
    harness.live_broker(1)
    with pytest.raises(DuplicateBrokerRegistrationError, match=r"node\.id"):
        harness.register(1, incarnation=2)
    harness.now_ms += SESSION_MS
    harness.register(1, incarnation=2)


def test_process_with_the_same_log_dir_replaces_its_predecessor_at_once() -> None:
    """It holds the directory's lock, so the old process is gone: a restart need not wait for a session timeout."""
    harness = Harness().lead()
    epoch = harness.register(1, log_dirs=(b"d" * 16,))
    harness.heartbeat(1, epoch)
    assert harness.register(1, incarnation=2, log_dirs=(b"e" * 16, b"d" * 16)) > epoch


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_id": -1},
        {"node_id": 2**31},
        {"incarnation_id": b""},
        {"incarnation_id": bytes(17)},
        {"host": ""},
        {"host": "h" * 256},
        {"host": "a\nb"},
        {"port": 0},
        {"port": 65536},
        {"rack": "r" * 250},
        {"rack": "\x1b[2J"},
        {"log_dirs": (b"short",)},
        {"endpoints": (BrokerEndpoint("", "h", 1),)},
        {"endpoints": (BrokerEndpoint("L" * 250, "h", 1),)},
        {"endpoints": (BrokerEndpoint("a\nb", "h", 1),)},
        {"endpoints": (BrokerEndpoint("A", "", 1),)},
        {"endpoints": (BrokerEndpoint("A", "h", 0),)},
        {"endpoints": (BrokerEndpoint("A", "h", 1), BrokerEndpoint("A", "h", 2))},
        {"endpoints": tuple(BrokerEndpoint(f"L{n}", "h", 1) for n in range(101))},
        {"log_dirs": (bytes(16), bytes(16))},
        {"log_dirs": tuple(n.to_bytes(16, "big") for n in range(1001))},
    ],
)
def test_hostile_registrations_are_refused(wrong: dict[str, object]) -> None:
    """Every field has its bounds."""
    harness = Harness().lead()
    fields: dict[str, object] = {"node_id": 1, "incarnation_id": bytes(16), "host": "localhost", "port": 9092, **wrong}
    registration = BrokerRegistration(**fields)  # type: ignore[arg-type] # the point of the test
    with pytest.raises(InvalidRegistrationError):
        harness.run(lambda: harness.controller.register_broker(registration, now_ms=0))


def test_silent_broker_is_fenced_and_its_leaders_move_to_in_sync_replicas() -> None:
    """One batch for the broker; the leader epoch grows, and it is in sync no more."""
    harness, epochs = with_topic(brokers=3, replicas=2, partitions=6)
    led = [p.partition for p in harness.image.topics["orders"].partitions.values() if p.leader_id == 1]
    before = len(harness.log.batches)
    expire(harness, alive={2: epochs[2], 3: epochs[3]})
    assert len(harness.log.batches) == before + 1
    assert harness.image.brokers[1].is_fenced
    for number in led:
        moved = partition(harness, number)
        assert moved.leader_id == moved.replicas[1]
        assert (moved.leader_epoch, moved.partition_epoch) == (1, 1)
        assert moved.in_sync_replicas == moved.replicas[1:]


def test_partition_without_a_live_in_sync_replica_waits_for_one() -> None:
    """No leader rather than one that lacks acknowledged records; the replica that returns leads again."""
    harness, epochs = with_topic(brokers=1, replicas=1, partitions=2)
    expire(harness, alive={})
    assert partition(harness).leader_id == NO_LEADER
    assert partition(harness).leader_epoch == 1
    with pytest.raises(StaleBrokerEpochError):
        harness.heartbeat(1, epochs[1] - 1)
    harness.heartbeat(1, epochs[1])
    assert (partition(harness).leader_id, partition(harness).leader_epoch) == (1, 2)
    assert partition(harness, 1).leader_id == 1


def test_restarted_broker_leads_in_a_new_epoch() -> None:
    """Registering again is the end of the old process: its leaderships end with it, and return with the heartbeat."""
    harness, _ = with_topic(brokers=1, replicas=1, partitions=1)
    harness.now_ms += SESSION_MS
    epoch = harness.register(1, incarnation=2)
    assert partition(harness).leader_id == NO_LEADER
    harness.heartbeat(1, epoch)
    assert (partition(harness).leader_id, partition(harness).leader_epoch) == (1, 2)


def test_own_broker_is_not_fenced_by_a_stalled_loop() -> None:
    """The controller's process lives, so the broker in it does."""
    harness = Harness(node_id=1).lead()
    harness.live_broker(1)
    harness.now_ms += 100 * SESSION_MS
    harness.controller.poll(now_ms=harness.now_ms, wall_ms=0)
    harness.commit()
    assert not harness.image.brokers[1].is_fenced


def test_poll_says_when_the_next_session_ends() -> None:
    """And a new leader gives every live broker a whole session."""
    harness = Harness().lead()
    harness.live_broker(1)
    harness.now_ms += 1000
    harness.live_broker(2)
    assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) == harness.now_ms - 1000 + SESSION_MS
    harness.now_ms += 10 * SESSION_MS
    harness.lose_leadership()
    assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) is None
    harness.lead()
    assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) == harness.now_ms + SESSION_MS


def test_the_broker_of_the_leader_before_has_the_rest_of_a_session() -> None:
    """The loss of a node that was both would take an election and a whole session otherwise. It has time for a heartbeat
    in any case: it may have been slow, and it may have heard of the new leader only now."""
    for silent_ms, left_ms in ((0, SESSION_MS), (1200, SESSION_MS - 1200), (60_000, SESSION_MS / 3), (-5, SESSION_MS)):
        harness = Harness().lead()
        harness.live_broker(1)
        harness.live_broker(2)
        harness.now_ms += 100_000
        harness.lose_leadership()
        harness.lead(last_heard={1: harness.now_ms - silent_ms, 9: 0.0})
        assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) == harness.now_ms + left_ms
        harness.heartbeat(1, harness.image.brokers[1].broker_epoch)
        assert harness.controller.poll(now_ms=harness.now_ms, wall_ms=0) == harness.now_ms + SESSION_MS


def test_controlled_shutdown_moves_leaders_first_and_fences_last() -> None:
    """Clients find the new leaders, and these know of it, before the old one is gone."""
    harness, epochs = with_topic(brokers=2, replicas=2, partitions=2)
    first = harness.heartbeat(1, epochs[1], want_shut_down=True)
    assert not first.should_shut_down
    assert {p.leader_id for p in harness.image.topics["orders"].partitions.values()} == {2}
    assert {p.in_sync_replicas for p in harness.image.topics["orders"].partitions.values()} == {(2,)}
    assert harness.image.brokers[1].in_controlled_shutdown
    assert not harness.heartbeat(1, epochs[1], want_shut_down=True).should_shut_down, "the other has not said so yet"
    harness.heartbeat(2, epochs[2])
    assert harness.heartbeat(1, epochs[1], want_shut_down=True).should_shut_down
    assert harness.image.brokers[1].is_fenced
    assert harness.heartbeat(1, epochs[1], want_shut_down=True).should_shut_down, "may be repeated"


def test_controlled_shutdown_of_the_only_broker_gives_its_partitions_up() -> None:
    """Nobody else can lead: they go offline with it, not before."""
    harness, epochs = with_topic(brokers=1, replicas=1, partitions=1)
    assert not harness.heartbeat(1, epochs[1], want_shut_down=True).should_shut_down
    assert partition(harness).leader_id == 1
    assert harness.heartbeat(1, epochs[1], want_shut_down=True).should_shut_down
    assert partition(harness).leader_id == NO_LEADER


def test_unregistered_broker_leads_nothing() -> None:
    """It is forgotten, and may register again."""
    harness, _ = with_topic(brokers=2, replicas=2, partitions=2)
    harness.run(lambda: harness.controller.unregister_broker(1))
    assert 1 not in harness.image.brokers
    assert {p.leader_id for p in harness.image.topics["orders"].partitions.values()} == {2}
    with pytest.raises(BrokerIdNotRegisteredError):
        harness.run(lambda: harness.controller.unregister_broker(1))
    harness.register(1, incarnation=3)


def test_producer_id_blocks_never_overlap() -> None:
    """Also two asked for before the first is committed, and over a change of leader."""
    harness = Harness().lead()
    epoch = harness.live_broker(1)
    answers = [harness.submit(lambda: harness.controller.allocate_producer_ids(1, epoch, 1000)) for _ in range(3)]
    harness.commit()
    assert [tuple(answer.response) for answer in answers] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert harness.image.next_producer_id == 3000
    harness.lose_leadership()
    harness.lead()
    assert tuple(harness.run(lambda: harness.controller.allocate_producer_ids(1, epoch, 7))) == (3000, 7)


@pytest.mark.parametrize("count", [0, -1, 1_000_001, 2**63])
def test_hostile_producer_id_counts_are_refused(count: int) -> None:
    """1 to 1,000,000."""
    harness = Harness().lead()
    epoch = harness.live_broker(1)
    with pytest.raises(InvalidRequestError):
        harness.run(lambda: harness.controller.allocate_producer_ids(1, epoch, count))


def test_producer_ids_end_with_an_error_and_never_repeat() -> None:
    """2^63 - 1 is the last; a record that goes back is refused."""
    harness = Harness().lead()
    epoch = harness.live_broker(1)
    harness.controller.producer_ids.replay(ProducerIdsRecord(next_producer_id=2**63 - 10))
    with pytest.raises(IllegalStateError, match="are used"):
        harness.run(lambda: harness.controller.allocate_producer_ids(1, epoch, 1000))
    with pytest.raises(IllegalStateError, match="go back"):
        harness.controller.producer_ids.replay(ProducerIdsRecord(next_producer_id=5))
