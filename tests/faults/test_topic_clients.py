"""What the clients of `topic_clients` record: exactly what their answers say, or a checker of it proves nothing."""

import json
import random
import time

import pytest

from kraftlog.proto.admin_pb2 import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTopicsResponse,
)
from kraftlog.proto.errors import ErrorCode, NetworkError
from kraftlog.proto.seams import Payload, Stream
from tests.checker.topics import Alter, Create, Delete, Describe, Described, Outcome, TopicAnswer, TopicCall
from tests.faults.topic_clients import Clients, Operation, Plan, TopicOperation, operation_line, operation_of

LOST = None
PLAN = Plan(
    name="c",
    number=1,
    seed=1,
    addresses=("a", "b"),
    clients=1,
    readers=0,
    topics=1,
    operations=1,
    pause_ms_max=0,
    attempt_timeout_ms=1_000,
    operation_timeout_ms=60_000,
)


class Broker:
    """Answers as the script says; None: the answer is lost. It is connector and channel to every address."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.asked_at: list[float] = []

    def connect(self, address: str) -> "Broker":
        return self

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        assert isinstance(request, bytes)
        self.requests.append(request)
        self.asked_at.append(time.monotonic())
        answer = self._answers.pop(0)
        if answer is None:
            raise NetworkError("lost")
        return answer

    def stream(self, method: str) -> Stream:
        raise AssertionError("not used")

    async def close(self) -> None:
        pass


def created(code: ErrorCode) -> bytes:
    response = CreateTopicsResponse()
    response.topics.add(name="t", error_code=code)
    return response.SerializeToString()


def described(value: int) -> bytes:
    response = DescribeTopicsResponse()
    response.topics.add(name="t", configs={"retention.ms": str(value)})
    return response.SerializeToString()


async def recorded(call: TopicCall, broker: Broker) -> list[TopicOperation]:
    lines: list[str] = []
    await Clients(PLAN, lines.append, broker).operate("c0", "t", call, PLAN.addresses, random.Random(1))
    said = [json.loads(line) for line in lines]
    assert len(broker.asked_at) == sum("failed" in fields for fields in said) + 1, "each failed attempt is told"
    return [operation_of(fields) for fields in said if "failed" not in fields]


async def test_an_answer_to_the_first_attempt() -> None:
    for code, outcome in ((ErrorCode.NONE, Outcome.DONE), (ErrorCode.TOPIC_ALREADY_EXISTS, Outcome.EXISTS)):
        (operation,) = await recorded(Create(7), Broker(created(code)))
        assert (operation.key, operation.client, operation.call) == ("t", "c0", Create(7))
        assert operation.answer is outcome


async def test_a_repeat_has_the_same_request_id_and_is_one_operation() -> None:
    """From the first attempt to the answer: the first one may be what was done."""
    broker = Broker(LOST, created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.NONE))
    (operation,) = await recorded(Create(7), broker)
    assert operation.answer is Outcome.DONE
    assert operation.called_at <= broker.asked_at[0]
    ids = {CreateTopicsRequest.FromString(request).request_id for request in broker.requests}
    assert len(broker.requests) == 3
    assert len(ids) == 1
    assert len(ids.pop()) == 16


async def test_a_refusal_of_a_repeat_leaves_the_first_attempt_unknown() -> None:
    """It may be under way still, and be done when the reason for the refusal is gone."""
    broker = Broker(LOST, created(ErrorCode.TOPIC_ALREADY_EXISTS))
    unknown, refused = await recorded(Create(7), broker)
    assert (unknown.call, unknown.answer) == (Create(7), None)
    assert refused.answer is Outcome.EXISTS
    assert unknown.called_at <= broker.asked_at[0] < refused.called_at <= broker.asked_at[1]


async def test_a_read_is_its_last_attempt() -> None:
    """Attempts that failed have seen nothing."""
    broker = Broker(LOST, described(9))
    (operation,) = await recorded(Describe(), broker)
    assert operation.answer == Described(9)
    assert broker.asked_at[0] < operation.called_at


@pytest.mark.parametrize("call", [Create(1), Delete(), Alter(2), Describe()])
@pytest.mark.parametrize("answer", [None, Outcome.DONE, Outcome.EXISTS, Outcome.MISSING, Described(3)])
def test_a_line_says_all_of_an_operation(call: TopicCall, answer: TopicAnswer | None) -> None:
    operation = Operation("t", "c", call, answer, 1.25, None if answer is None else 2.5)
    assert operation_of(json.loads(operation_line(operation))) == operation
