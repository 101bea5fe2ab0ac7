"""A metadata quorum without Raft: a log of batches, how much of it is committed, one active controller and one that
follows. What Raft may do is up to the test: commit a batch more, or lose what is not committed from any batch on.
"""

import random
from collections.abc import Callable
from typing import Any

from kraftlog.kraft.controller import Controller, ControllerConfig, RequestId, Result, UncleanElection
from kraftlog.kraft.controller.features import Feature
from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraftlog.kraft.image.as_records import records_of
from kraftlog.kraft.records import OffsetRecord, decode_records
from kraftlog.proto.errors import NotControllerError
from tests.unit.kraft.controllers import BROKER_CONFIGS, TOPIC_CONFIGS, Answer, MemoryLog

FEATURES = {
    "metadata.version": Feature(min_level=1, max_level=1, changes_metadata=frozenset({1})),
    "group.version": Feature(min_level=1, max_level=3, changes_metadata=frozenset({3})),
}
CONFIG = ControllerConfig(leader_imbalance_check_interval_seconds=5, broker_session_timeout_ms=3000)


def state_of(controller: Controller) -> dict[str, Any]:
    """All that a controller knows, in the image's words."""
    topics, configs = controller.topics, controller.configs
    return {
        "partitions": dict(topics.partitions._partitions),
        "topics": {topic.name: (topic.topic_id, topic.partition_count) for topic in topics._topics.values()},
        "ids": dict(topics._ids),
        "brokers": {broker.node_id: broker for broker in controller.brokers.all()},
        "configs": {key: dict(value) for key, value in configs._configs.items()},
        "features": dict(controller.features._levels),
        "next producer id": controller.producer_ids.next_producer_id,
        "operations": [controller.operations._by_number[n] for n in sorted(controller.operations._by_number)],
        "operation ids": sorted(controller.operations._numbers),
    }


def state_in(image: MetadataImage) -> dict[str, Any]:
    """The same of an image."""
    return {
        "partitions": {
            (topic.topic_id, partition.partition): partition
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        },
        "topics": {topic.name: (topic.topic_id, len(topic.partitions)) for topic in image.topics.values()},
        "ids": {topic.name: topic.topic_id for topic in image.topics.values()},
        "brokers": dict(image.brokers),
        "configs": {key: dict(value) for key, value in image.resource_configs.items()},
        "features": dict(image.features),
        "next producer id": image.next_producer_id,
        "operations": list(image.completed_operations),
        "operation ids": sorted({operation.request_id for operation in image.completed_operations}),
    }


class Cluster:
    """`active` decides, `follower` replays what is committed, `image` and `newest` are what brokers know now and what
    they will know if everything gets committed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.log = MemoryLog()
        self.now_ms = 1000.0
        self.wall_ms = 0
        self.committed = -1
        self.image: MetadataImage = EMPTY_IMAGE
        self.newest: MetadataImage = EMPTY_IMAGE
        self.unclean: list[UncleanElection] = []
        self.follower = self._new_controller()
        self.active = self._new_controller()
        self.on_commit: Callable[[list[OffsetRecord]], None] = lambda records: None
        self._begin()

    def _new_controller(self) -> Controller:
        self.seed += 1
        return Controller(
            node_id=100,
            config=CONFIG,
            random=random.Random(self.seed),
            topic_configs=TOPIC_CONFIGS,
            broker_configs=BROKER_CONFIGS,
            supported_features=FEATURES,
            on_unclean_election=self.unclean.append,
        )

    @property
    def uncommitted(self) -> int:
        """Number of batches."""
        return sum(1 for offset, _ in self.log.batches if offset > self.committed)

    def submit(self, operation: Callable[[], Result[Any]], request: RequestId[Any] | None = None) -> Answer:
        answer = Answer()
        self.active.submit(operation, answer, wall_ms=self.wall_ms, request=request)
        self._look()
        return answer

    def poll(self) -> float | None:
        deadline = self.active.poll(now_ms=self.now_ms, wall_ms=self.wall_ms)
        self._look()
        return deadline

    def commit(self, batches: int | None = None) -> None:
        """Commit the next `batches`, all without a number."""
        waiting = [(offset, batch) for offset, batch in self.log.batches if offset > self.committed]
        for offset, batch in waiting[:batches]:
            records = decode_records(batch) if batch else []
            self.image = _applied(self.image, records, offset)
            self.committed = offset
            self.active.commit(offset, records)
            self.follower.commit(offset, records)
            self.on_commit(records)

    def fail_over(self, surviving: int, how: str) -> None:
        """Another controller leads. Of the batches that were not committed, the first `surviving` are in its log.

        `how`: the follower takes over ("follower"), or a process that has just read the log ("log") or a snapshot of
        what is committed ("snapshot").
        """
        waiting = [each for each in self.log.batches if each[0] > self.committed]
        lost = waiting[surviving:]
        self.log.batches = [each for each in self.log.batches if each not in lost]
        self.active.resign(NotControllerError("lost"))
        match how:
            case "follower":
                self.active, self.follower = self.follower, self.active
            case "log":
                self.active = self._new_controller()
                for offset, batch in self.log.batches:
                    if offset <= self.committed:
                        self.active.commit(offset, decode_records(batch) if batch else [])
            case _:
                self.active = self._new_controller()
                self.active.load_snapshot(self.committed, records_of(self.image))
        self._begin()

    def _begin(self) -> None:
        self.log.leader_epoch += 1
        self.log.batches.append((self.log.next_offset, b""))
        self.commit()
        self.newest = self.image
        self.active.activate(self.log, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self._look()

    def _look(self) -> None:
        """Bring `newest` up to the end of the log."""
        for offset, batch in self.log.batches:
            if offset > self.newest.offset:
                self.newest = _applied(self.newest, decode_records(batch) if batch else [], offset)


def _applied(image: MetadataImage, records: list[OffsetRecord], offset: int) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record.record, record.offset)
    return delta.apply(offset, 1)
