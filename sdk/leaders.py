"""One question to the leaders of many partitions, with retries. Used only on the client's loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from kraftlog.proto.errors import (
    KraftlogError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftlog.proto.seams import Channel, Clock, Random
from kraftlog.sdk.config import ClientConfig
from kraftlog.sdk.metadata import Cluster, leaders_of
from kraftlog.sdk.types import NodeInfo, TopicPartition
from kraftlog.sdk.waiting import Backoff, sleep_ms

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class LeaderAnswer(NamedTuple, Generic[Answer]):
    """What a leader said of one partition."""

    partition: TopicPartition
    error_code: int
    error_message: str
    value: Answer


Ask = Callable[[Channel, Mapping[TopicPartition, Question], float], Awaitable[Iterable[LeaderAnswer[Answer]]]]
"""(leader's channel, its partitions with what to ask, time-out in ms) -> one answer a partition."""


class LeaderQuestions:
    """Finds the leaders and asks them; leaders that moved or are missing are asked again."""

    def __init__(self, config: ClientConfig, cluster: Cluster, *, clock: Clock, random: Random) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._random = random

    async def ask(
        self, what: str, questions: Mapping[TopicPartition, Question], ask: Ask[Question, Answer], *, timeout_ms: float
    ) -> dict[TopicPartition, Answer]:
        """The answer for each partition. `what` names them in the error.

        Raises the first error that is not retriable, `RequestTimedOutError` with the last reason after `timeout_ms`.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        found: dict[TopicPartition, Answer] = {}
        await self._know_topics(questions, deadline_ms)
        while True:
            left = {tp: question for tp, question in questions.items() if tp not in found}
            if not left:
                return found
            error = await self._round(left, found, ask, deadline_ms)
            if error is None:
                continue
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if not error.retriable:
                raise error
            if remaining_ms <= 0:
                raise RequestTimedOutError(f"no {what} within {timeout_ms:.0f} ms; last error: {error}") from error
            await sleep_ms(min(remaining_ms, backoff.next_ms()))
            await self._refresh(deadline_ms)

    async def _know_topics(self, partitions: Iterable[TopicPartition], deadline_ms: float) -> None:
        partitions = list(partitions)
        for topic in dict.fromkeys(tp.topic for tp in partitions):
            known = await self._cluster.wait_for_topic(topic, max(1.0, deadline_ms - self._clock.monotonic_ms()))
            for tp in partitions:
                if tp.topic == topic and not 0 <= tp.partition < len(known.partitions):
                    raise UnknownTopicOrPartitionError(
                        f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, not {tp.partition}"
                    )

    async def _refresh(self, deadline_ms: float) -> None:
        try:
            await self._cluster.refresh(max(1.0, deadline_ms - self._clock.monotonic_ms()))
        except KraftlogError as error:
            if not error.retriable:
                raise

    async def _round(
        self,
        questions: Mapping[TopicPartition, Question],
        found: dict[TopicPartition, Answer],
        ask: Ask[Question, Answer],
        deadline_ms: float,
    ) -> KraftlogError | None:
        """Ask every leader once, at the same time; the first error, if any."""
        by_node, unknown = leaders_of(self._cluster.metadata, questions)
        nodes = [(self._cluster.metadata.nodes[node_id], partitions) for node_id, partitions in by_node.items()]
        answers = await asyncio.gather(
            *(self._ask(node, {tp: questions[tp] for tp in tps}, ask, deadline_ms) for node, tps in nodes),
            return_exceptions=True,
        )
        error: KraftlogError | None = None
        for answer in answers:
            if isinstance(answer, KraftlogError):
                error = error or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for tp, code, message, value in answer:
                    if code:
                        error = error or error_for(code, f"{tp}: {message}".rstrip(": "))
                    else:
                        found[tp] = value
        if unknown and error is None:
            error = LeaderNotAvailableError(f"{unknown[0]} has no known leader")
        return error

    async def _ask(
        self,
        node: NodeInfo,
        questions: Mapping[TopicPartition, Question],
        ask: Ask[Question, Answer],
        deadline_ms: float,
    ) -> Iterable[LeaderAnswer[Answer]]:
        timeout_ms = min(self._config.request_timeout_ms, max(1.0, deadline_ms - self._clock.monotonic_ms()))
        return await ask(self._cluster.channel(node), questions, timeout_ms)
