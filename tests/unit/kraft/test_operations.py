"""Request ids: an operation is done once, however often it is asked for, by whichever controller."""

import pytest

from kraftlog.kraft.controller import RequestId, operations
from kraftlog.kraft.image import CompletedOperation, CompletedOperations, completed_operations, records_of
from kraftlog.kraft.image.completed_operations import MAX_COMPLETED_AGE_MS
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from kraftlog.proto.errors import InvalidRequestError, NotControllerError, StaleBrokerEpochError
from tests.unit.kraft.controllers import Answer, Harness

FIRST, SECOND = b"1" * 16, b"2" * 16


@pytest.fixture
def leader() -> Harness:
    harness = Harness().lead()
    harness.live_broker(1)
    return harness


def create(harness: Harness, name: str, request_id: bytes, *, wall_ms: int = 0) -> Answer:
    answer = Answer()
    request = CreateTopicsRequest(topics=[NewTopic(name=name, num_partitions=1, replication_factor=1)])
    harness.controller.submit(
        lambda: harness.controller.create_topics(request, allow_internal=False),
        answer,
        wall_ms=wall_ms,
        request=RequestId(request_id, operations.CREATE_TOPICS),
    )
    return answer


def test_repeat_gets_the_first_answer_and_writes_nothing(leader: Harness) -> None:
    """A new attempt would say TOPIC_ALREADY_EXISTS."""
    first = create(leader, "a", FIRST)
    leader.commit()
    end = leader.log.next_offset
    repeat = create(leader, "a", FIRST)
    assert repeat.response == first.response
    assert repeat.response.topics[0].error_code == 0
    assert leader.log.next_offset == end
    assert create(leader, "a", SECOND).response.topics[0].error_code != 0


def test_repeat_waits_while_the_first_is_not_committed(leader: Harness) -> None:
    """And fails with it if the leadership is lost."""
    first, repeat = create(leader, "a", FIRST), create(leader, "a", FIRST)
    assert not first.is_done
    assert not repeat.is_done
    leader.commit()
    assert repeat.response == first.response
    first, repeat = create(leader, "b", SECOND), create(leader, "b", SECOND)
    leader.lose_leadership()
    assert isinstance(first.error, NotControllerError)
    assert isinstance(repeat.error, NotControllerError)
    leader.lead()
    again = create(leader, "b", SECOND)
    leader.commit()
    assert again.response.topics[0].error_code == 0, "the first was lost, so this is the first"


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_other_controller_gives_the_first_answer(leader: Harness, from_snapshot: bool) -> None:
    """It has the response from the log, or from a snapshot."""
    first = create(leader, "a", FIRST)
    leader.commit()
    other = Harness(log=leader.log)
    if from_snapshot:
        other.image = leader.image
        other.controller.load_snapshot(leader.image.offset, records_of(leader.image))
    other.lead()
    assert create(other, "a", FIRST).response == first.response


def test_id_of_something_else_is_refused(leader: Harness) -> None:
    """A client that numbers its requests badly hears of it."""
    create(leader, "a", FIRST)
    leader.commit()
    answer = Answer()
    leader.controller.submit(
        lambda: leader.controller.unregister_broker(1),
        answer,
        wall_ms=0,
        request=RequestId(FIRST, operations.UNREGISTER_BROKER),
    )
    assert isinstance(answer.error, InvalidRequestError)
    assert "create_topics" in str(answer.error)
    assert 1 in leader.image.brokers
    with pytest.raises(InvalidRequestError, match="15 bytes"):
        RequestId(bytes(15), operations.CREATE_TOPICS)


def test_refusals_are_not_remembered(leader: Harness) -> None:
    """They changed nothing: the next attempt may succeed."""
    answers = []
    for epoch in (-1, leader.image.brokers[1].broker_epoch):

        def allocate(epoch: int = epoch) -> object:
            return leader.controller.allocate_producer_ids(1, epoch, 10)

        answer = Answer()
        leader.controller.submit(
            allocate,  # type: ignore[arg-type] # a Result
            answer,
            wall_ms=0,
            request=RequestId(FIRST, operations.ALLOCATE_PRODUCER_IDS),
        )
        leader.commit()
        answers.append(answer)
    assert isinstance(answers[0].error, StaleBrokerEpochError)
    assert tuple(answers[1].response) == (0, 10)


@pytest.mark.parametrize(
    ("kind", "response"),
    [
        (operations.ALLOCATE_PRODUCER_IDS, operations.ProducerIdBlock(2**63 - 5, 4)),
        (operations.UNREGISTER_BROKER, None),
        (operations.CREATE_TOPICS, CreateTopicsResponse()),
    ],
)
def test_responses_come_back_as_they_were(kind: operations.OperationKind[object], response: object) -> None:
    """Each kind has its own form in the log."""
    assert kind.decode(kind.encode(response)) == response


def operation(number: int, *, size: int = 1, timestamp_ms: int = 0) -> CompletedOperation:
    return CompletedOperation(
        request_id=number.to_bytes(16, "big"), kind="k", response=b"r" * size, timestamp_ms=timestamp_ms
    )


def numbers(kept: CompletedOperations) -> list[int]:
    return [int.from_bytes(each.request_id, "big") for each in kept]


def test_oldest_operations_are_forgotten_by_number(leader: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is reached: controller and image remember the same ones, and a forgotten one is done again."""
    monkeypatch.setattr(completed_operations, "MAX_COMPLETED_OPERATIONS", 2)
    for number in range(4):
        create(leader, f"t{number}", number.to_bytes(16, "big"))
        leader.commit()
    assert numbers(leader.image.completed_operations) == [2, 3]
    assert len(leader.controller.operations) == 2
    assert create(leader, "t3", (3).to_bytes(16, "big")).response.topics[0].error_code == 0
    assert create(leader, "t0", (0).to_bytes(16, "big")).response.topics[0].error_code != 0


def test_oldest_operations_are_forgotten_by_age_and_size(leader: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Age is that of the newest, which never goes back, whatever the next controller's clock says."""
    create(leader, "a", FIRST, wall_ms=1000)
    create(leader, "b", SECOND, wall_ms=500)
    leader.commit()
    assert [each.timestamp_ms for each in leader.image.completed_operations] == [1000, 1000]
    create(leader, "c", b"3" * 16, wall_ms=1000 + MAX_COMPLETED_AGE_MS)
    leader.commit()
    assert len(leader.image.completed_operations) == 3
    create(leader, "d", b"4" * 16, wall_ms=1001 + MAX_COMPLETED_AGE_MS)
    leader.commit()
    assert len(leader.image.completed_operations) == len(leader.controller.operations) == 2
    monkeypatch.setattr(completed_operations, "MAX_COMPLETED_BYTES", 10)
    create(leader, "e", b"5" * 16, wall_ms=1001 + MAX_COMPLETED_AGE_MS)
    leader.commit()
    assert len(leader.image.completed_operations) == len(leader.controller.operations) == 1, "the last one always"


def test_many_at_once_leave_what_one_by_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower applies many batches in one step."""
    monkeypatch.setattr(completed_operations, "MAX_COMPLETED_OPERATIONS", 3)
    monkeypatch.setattr(completed_operations, "MAX_COMPLETED_BYTES", 10)
    sizes = [5, 5, 9, 1, 1, 1, 0, 0, 11, 2, 2, 20, 1]
    added = [operation(number, size=size, timestamp_ms=number) for number, size in enumerate(sizes)]
    for cut in range(len(added) + 1):
        one_by_one = CompletedOperations()
        for each in added[:cut]:
            one_by_one = one_by_one.followed_by([each])
        at_once = CompletedOperations().followed_by(added[:cut])
        in_two = CompletedOperations().followed_by(added[: cut // 2]).followed_by(added[cut // 2 : cut])
        assert numbers(one_by_one) == numbers(at_once) == numbers(in_two)
        assert one_by_one == at_once == in_two
        assert at_once.size_bytes == sum(len(each.response) for each in at_once)
