"""A process of clients that create, delete, alter and describe topics, each call through a random broker, and say what
they saw: one line of JSON for each call, for each attempt that failed, and for each change of who a broker believes to
lead.

    python -m tests.faults.topic_clients '{"name": "a", "addresses": [...], ...}'    (the fields of `Plan`)

It works until its standard input ends or the plan's number of operations is reached, then describes every topic through
every broker of the plan that still answers, and ends. Times are those of the machine's monotonic clock, which all
processes share, in network namespaces too.

A call that fails is repeated with the same request id at another broker, until it has an answer or too much time has
passed. What that says is exact:

- done: once, at some moment between the first attempt and this answer, for the request id names one operation;
- refused: nothing happened between the last attempt and this answer; if there were attempts before, one of them may still
  be under way, which is an operation of its own whose outcome is not known;
- no answer: not known.
"""

import asyncio
import dataclasses
import json
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraftlog.proto.admin_pb2 import (
    ConfigChange,
    ConfigResource,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    NewTopic,
)
from kraftlog.proto.errors import ErrorCode, KraftlogError
from kraftlog.proto.seams import Channel, Connector
from kraftlog.sdk.transport import GrpcConnector
from tests.checker.linearizability import Operation
from tests.checker.topics import Alter, Create, Delete, Describe, Described, Outcome, TopicAnswer, TopicCall

CONFIG = "retention.ms"
TOPIC_RESOURCE = 2
NO_LEADER = -1
RETRY_S = 0.05
LOOK_S = 0.1
"""Between two looks for the leader."""
VALUES_PER_PROCESS = 1_000_000
SERVICE = "/kraftlog.v1.Admin/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    name: str
    number: int
    """Of this process; no two of a run are the same, so that no two values of theirs are."""
    seed: int
    addresses: tuple[str, ...]
    clients: int
    readers: int
    """Clients that only describe: no change that waits for a leader keeps them from looking."""
    topics: int
    operations: int
    """At most, without those of the end."""
    pause_ms_max: float
    """A client thinks for a random time up to this between two calls."""
    attempt_timeout_ms: float
    operation_timeout_ms: float

    def encode(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Plan":
        fields = json.loads(text)
        return cls(**{**fields, "addresses": tuple(fields["addresses"])})


TopicOperation = Operation[TopicCall, TopicAnswer]

_CALLS: Mapping[str, Callable[[int], TopicCall]] = {
    "create": Create,
    "alter": Alter,
    "delete": lambda _: Delete(),
    "describe": lambda _: Describe(),
}
_WEIGHTS = {"create": 25, "alter": 20, "delete": 15, "describe": 40}


def operation_line(operation: TopicOperation) -> str:
    call, answer = operation.call, operation.answer
    return json.dumps(
        {
            "topic": operation.key,
            "client": operation.client,
            "call": type(call).__name__.lower(),
            "value": call.value if isinstance(call, Create | Alter) else 0,
            "answer": answer.name if isinstance(answer, Outcome) else None,
            "described": answer.value if isinstance(answer, Described) else None,
            "called": operation.called_at,
            "returned": operation.returned_at,
        }
    )


def operation_of(fields: Mapping[str, Any]) -> TopicOperation:
    answer: TopicAnswer | None = None
    if fields["answer"] is not None:
        answer = Outcome[fields["answer"]]
    elif fields["described"] is not None:
        answer = Described(fields["described"])
    return Operation(
        key=fields["topic"],
        client=fields["client"],
        call=_CALLS[fields["call"]](fields["value"]),
        answer=answer,
        called_at=fields["called"],
        returned_at=fields["returned"],
    )


async def attempt(channel: Channel, topic: str, call: TopicCall, request_id: bytes, timeout_ms: float) -> TopicAnswer:
    """Ask once. Raises a `KraftlogError` where the answer says nothing about the topic."""

    async def ask(method: str, request: Any) -> bytes:
        return await channel.unary(SERVICE + method, request.SerializeToString(), timeout_ms=timeout_ms)

    match call:
        case Create(value):
            new = NewTopic(name=topic, num_partitions=1, replication_factor=1, configs={CONFIG: str(value)})
            create = CreateTopicsRequest(topics=[new], timeout_ms=round(timeout_ms), request_id=request_id)
            return _outcome(CreateTopicsResponse.FromString(await ask("CreateTopics", create)).topics[0])
        case Delete():
            delete = DeleteTopicsRequest(names=[topic], timeout_ms=round(timeout_ms), request_id=request_id)
            return _outcome(DeleteTopicsResponse.FromString(await ask("DeleteTopics", delete)).topics[0])
        case Alter(value):
            alter = IncrementalAlterConfigsRequest(timeout_ms=round(timeout_ms), request_id=request_id)
            resource = alter.resources.add(resource=ConfigResource(type=TOPIC_RESOURCE, name=topic))
            resource.changes.add(name=CONFIG, operation=ConfigChange.SET, value=str(value))
            altered = IncrementalAlterConfigsResponse.FromString(await ask("IncrementalAlterConfigs", alter))
            return _outcome(altered.resources[0])
        case Describe():
            answer = await ask("DescribeTopics", DescribeTopicsRequest(names=[topic]))
            described = DescribeTopicsResponse.FromString(answer).topics[0]
            outcome = _outcome(described)
            return Described(int(described.configs[CONFIG])) if outcome is Outcome.DONE else outcome


def _now() -> float:
    """The event loop's clock: the machine's monotonic one, or a simulator's."""
    return asyncio.get_running_loop().time()


def _outcome(result: Any) -> Outcome:
    match result.error_code:
        case ErrorCode.NONE:
            return Outcome.DONE
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            return Outcome.EXISTS
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Outcome.MISSING
        case _:
            raise KraftlogError(f"error {result.error_code}: {result.error_message}")


class Clients:
    """All clients of the process. Used from one event loop."""

    def __init__(self, plan: Plan, say: Callable[[str], None], connector: Connector) -> None:
        self._plan = plan
        self._say = say
        self._connector = connector
        self._channels: dict[str, Channel] = {}
        self._begun = 0
        self._is_stopping = False

    async def run(self, stopped: Awaitable[object]) -> None:
        plan = self._plan
        rng = random.Random(plan.seed)
        looking = [asyncio.create_task(self._watch(address)) for address in plan.addresses]
        working = [
            asyncio.create_task(self._work(f"{plan.name}{number}", weights, random.Random(rng.getrandbits(64))))
            for number, weights in enumerate([_WEIGHTS] * plan.clients + [{"describe": 1}] * plan.readers)
        ]
        await stopped
        self._is_stopping = True
        await asyncio.gather(*working)
        await asyncio.gather(*(self._describe_all(address) for address in plan.addresses))
        await asyncio.gather(*looking)
        for channel in self._channels.values():
            await channel.close()

    async def _work(self, client: str, weights: Mapping[str, int], rng: random.Random) -> None:
        plan = self._plan
        while not self._is_stopping and self._begun < plan.operations:
            self._begun += 1
            value = plan.number * VALUES_PER_PROCESS + self._begun
            call = _CALLS[rng.choices(list(weights), list(weights.values()))[0]](value)
            await self.operate(client, f"topic-{rng.randrange(plan.topics)}", call, plan.addresses, rng)
            await asyncio.sleep(rng.uniform(0, plan.pause_ms_max) / 1000)

    async def _describe_all(self, address: str) -> None:
        rng = random.Random(0)
        for number in range(self._plan.topics):
            client = f"{self._plan.name}@{address}"
            if not await self.operate(client, f"topic-{number}", Describe(), (address,), rng):
                return

    async def operate(
        self, client: str, topic: str, call: TopicCall, addresses: tuple[str, ...], rng: random.Random
    ) -> bool:
        """One operation; see the module's text. Returns whether it was answered."""
        begin = _now()
        request_id = rng.getrandbits(128).to_bytes(16, "big")
        attempts = 0
        answer: TopicAnswer | None = None
        last = begin
        while answer is None and _now() - begin < self._plan.operation_timeout_ms / 1000:
            if attempts:
                await asyncio.sleep(RETRY_S)
            attempts += 1
            channel, last = self._channel(rng.choice(addresses)), _now()
            try:
                answer = await attempt(channel, topic, call, request_id, self._plan.attempt_timeout_ms)
            except KraftlogError as error:
                print(f"{client}: {topic} {call} attempt {attempts}: {error}", file=sys.stderr)
                self._say(json.dumps({"failed": client, "at": last}))
        end = None if answer is None else _now()
        is_read = isinstance(call, Describe)
        if answer is Outcome.DONE:
            last = begin
        elif attempts > 1 and answer is not None and not is_read:
            self._say(operation_line(Operation(topic, client, call, None, begin, None)))
        if answer is not None or not is_read:
            self._say(operation_line(Operation(topic, client, call, answer, begin if answer is None else last, end)))
        return answer is not None

    async def _watch(self, address: str) -> None:
        """Say who leads, each time that this broker says something else."""
        said: tuple[int, int] | None = None
        while not self._is_stopping:
            try:
                data = await self._channel(address).unary(
                    SERVICE + "DescribeCluster",
                    DescribeClusterRequest().SerializeToString(),
                    timeout_ms=self._plan.attempt_timeout_ms,
                )
            except KraftlogError:
                said = None
            else:
                answer = DescribeClusterResponse.FromString(data)
                seen = (answer.controller_id, answer.metadata_leader_epoch)
                if seen != said:
                    said = seen
                    self._say(json.dumps({"leader": seen[0], "epoch": seen[1], "by": address, "at": _now()}))
            await asyncio.sleep(LOOK_S)

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._connector.connect(address)
        return channel


def main() -> None:
    plan = Plan.decode(sys.argv[1])

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stopped = loop.run_in_executor(None, sys.stdin.read)
        await Clients(plan, lambda line: print(line, flush=True), GrpcConnector()).run(stopped)

    asyncio.run(run())


if __name__ == "__main__":
    main()
