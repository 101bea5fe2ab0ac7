"""The controller's runtime: decide against speculative state, answer at commit, go back when leadership is lost."""

import pytest

from kraftlog.kraft.controller import ControllerConfig, Result
from kraftlog.kraft.controller import controller as controller_module
from kraftlog.kraft.image import MetadataDelta
from kraftlog.kraft.records import OffsetRecord, decode_records
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, NewTopic
from kraftlog.proto.errors import (
    IllegalStateError,
    NotControllerError,
    PolicyViolationError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from kraftlog.proto.metadata_pb2 import FeatureLevelRecord, MetadataRecord, RemoveTopicRecord
from tests.unit.kraft.controllers import Answer, Harness


def request(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[NewTopic(name=name, num_partitions=1, replication_factor=1) for name in names])


def create(harness: Harness, *names: str) -> Answer:
    return harness.submit(lambda: harness.controller.create_topics(request(*names), allow_internal=False))


@pytest.fixture
def leader() -> Harness:
    harness = Harness().lead()
    harness.live_broker(1)
    return harness


def test_follower_takes_no_operations() -> None:
    """Nothing is decided, nothing appended."""
    harness = Harness()
    answer = create(harness, "a")
    assert isinstance(answer.error, NotControllerError)
    assert not harness.log.batches


def test_answer_waits_for_the_commit_of_its_own_batch(leader: Harness) -> None:
    """Each one for its own, in order."""
    first, second = create(leader, "a"), create(leader, "b")
    offsets = [offset for offset, _ in leader.log.batches[-2:]]
    assert not first.is_done
    leader.commit(offsets[0])
    assert first.is_done
    assert not second.is_done
    leader.commit(offsets[1])
    assert second.is_done


def test_lost_leadership_undoes_what_is_not_committed_and_fails_what_waits(leader: Harness) -> None:
    """State, names and ids are those of the last commit."""
    create(leader, "kept")
    leader.commit()
    lost = create(leader, "lost")
    refused = create(leader, "kept")
    leader.lose_leadership()
    assert isinstance(lost.error, NotControllerError)
    assert isinstance(refused.error, NotControllerError), "the refusal rested on state that may be gone"
    assert leader.controller.topics.topic_id("kept") is not None
    assert leader.controller.topics.topic_id("lost") is None
    leader.lead()
    assert create(leader, "lost").error is None
    leader.commit()
    assert list(leader.image.topics) == ["kept", "lost"]


def test_batch_that_was_reverted_here_and_committed_by_another_leader_is_replayed(leader: Harness) -> None:
    """Not known whether it was lost: the next leader decides, and then it counts."""
    answer = create(leader, "a")
    leader.controller.resign(NotControllerError("lost"))
    assert isinstance(answer.error, NotControllerError)
    assert leader.controller.topics.topic_id("a") is None
    leader.commit()
    assert leader.controller.topics.topic_id("a") == leader.image.topics["a"].topic_id


def test_follower_and_restart_reach_the_same_state(leader: Harness) -> None:
    """One `replay` for all: a second controller that reads the log refuses and continues like the first."""
    create(leader, "a", "b")
    leader.commit()
    epoch = leader.image.brokers[1].broker_epoch
    leader.run(lambda: leader.controller.allocate_producer_ids(1, epoch, 10))
    other = Harness(log=leader.log)
    other.commit()
    assert other.image == leader.image
    other.lead()
    (result,) = other.run(lambda: other.controller.create_topics(request("a"), allow_internal=False)).topics
    assert result.error_code == TopicAlreadyExistsError.code
    assert tuple(other.run(lambda: other.controller.allocate_producer_ids(1, epoch, 5))) == (10, 5)


def test_first_leader_writes_the_feature_level_once() -> None:
    """And later ones find it."""
    harness = Harness().lead()
    assert dict(harness.image.features) == {"metadata.version": 1}
    batches = len(harness.log.batches)
    harness.lose_leadership()
    harness.lead()
    assert len(harness.log.batches) == batches + 1, "only the leader change"


def test_feature_level_of_a_later_version_stops_the_node() -> None:
    """State must not be built on records that are only half understood."""
    harness = Harness()
    record = MetadataRecord(feature_level=FeatureLevelRecord(name="metadata.version", level=99))
    with pytest.raises(UnsupportedVersionError, match="start a later version"):
        harness.controller.commit(0, [OffsetRecord(0, record)])


def test_records_that_do_not_fit_stop_the_node() -> None:
    """The log is not what this node believes it to be."""
    harness = Harness()
    record = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=b"x" * 16))
    with pytest.raises(IllegalStateError):
        harness.controller.commit(0, [OffsetRecord(0, record)])
    with pytest.raises(IllegalStateError):
        MetadataDelta().replay(record, 0)


def test_waiting_operations_are_bounded() -> None:
    """The bound is reached, the refusal is retriable, and after the commit there is room again."""
    harness = Harness(ControllerConfig(max_pending_operations=3)).lead()
    harness.live_broker(1)
    answers = [create(harness, f"t{n}") for n in range(4)]
    assert not any(answer.is_done for answer in answers[:3])
    assert isinstance(answers[3].error, ThrottlingQuotaExceededError)
    assert answers[3].error.retriable
    harness.commit()
    assert all(answer.response for answer in answers[:3])
    create(harness, "t4")
    harness.commit()
    assert list(harness.image.topics) == ["t0", "t1", "t2", "t4"]


def test_operation_above_the_batch_limit_is_refused_whole(leader: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Atomic or not at all."""
    monkeypatch.setattr(controller_module, "MAX_OPERATION_BYTES", 500)
    answer = create(leader, *(f"topic-{n}" for n in range(20)))
    assert isinstance(answer.error, PolicyViolationError)
    assert leader.controller.topics.topic_id("topic-0") is None


def test_failed_append_changes_nothing(leader: Harness) -> None:
    """Decided, but not in the log: not in the state."""
    leader.log.error = ThrottlingQuotaExceededError("the log is full")
    answer = create(leader, "a")
    assert isinstance(answer.error, ThrottlingQuotaExceededError)
    assert leader.controller.topics.topic_id("a") is None
    leader.log.error = None
    create(leader, "a")
    leader.commit()
    assert list(leader.image.topics) == ["a"]


def test_operation_without_records_waits_for_what_it_has_seen(leader: Harness) -> None:
    """And is answered at once when all is committed."""
    idle = leader.submit(lambda: Result("seen"))
    assert idle.response == "seen"
    create(leader, "a")
    waiting = leader.submit(lambda: Result("seen"))
    assert not waiting.is_done
    leader.commit()
    assert waiting.response == "seen"


def test_silent_broker_is_fenced_later_if_the_log_is_busy(leader: Harness) -> None:
    """The session stays expired until the fencing is in the log."""
    leader.now_ms += 10_000
    leader.log.error = ThrottlingQuotaExceededError("the log is full")
    again = leader.controller.poll(now_ms=leader.now_ms, wall_ms=0)
    assert again is not None
    assert again > leader.now_ms
    leader.log.error = None
    leader.controller.poll(now_ms=again, wall_ms=0)
    leader.commit()
    assert leader.image.brokers[1].is_fenced


def test_batches_carry_offsets_and_epoch(leader: Harness) -> None:
    """The batch is final before it reaches the log: a broker's epoch is an offset in it."""
    create(leader, "a")
    offset, batch = leader.log.batches[-1]
    records = decode_records(batch)
    assert records[-1].offset == offset
    assert [record.offset for record in records] == list(range(records[0].offset, offset + 1))
    assert all(record.record.version == 1 for record in records)
