"""A controller over a log in memory, for tests: everything that is appended can be committed, or lost."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kraftlog.kraft.controller import (
    BrokerRegistration,
    ConfigSchema,
    Controller,
    ControllerConfig,
    Result,
    UncleanElection,
)
from kraftlog.kraft.controller.features import SUPPORTED_FEATURES, Feature
from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraftlog.kraft.records import decode_records
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from kraftlog.proto.config import parse_int
from kraftlog.proto.errors import InvalidConfigError, KraftlogError, NotControllerError
from kraftlog.proto.records import BatchBuilder

T = TypeVar("T")


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    if "min.insync.replicas" in configs:
        parse_int("min.insync.replicas", configs["min.insync.replicas"], minimum=1)
    if configs.get("cleanup.policy") == "compact" and "retention.ms" in configs:
        raise InvalidConfigError("retention.ms has no meaning with cleanup.policy=compact")


TOPIC_CONFIGS = ConfigSchema(
    names=(
        "retention.ms",
        "cleanup.policy",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "flush.policy",
    ),
    validate=validate_topic_configs,
    list_defaults={"cleanup.policy": "delete"},
)
BROKER_CONFIGS = ConfigSchema(names=("num.io.threads", "log.cleaner.threads"))


class MemoryLog:
    """`AppendTarget`; what Raft would do with it is up to the test."""

    def __init__(self) -> None:
        self.leader_epoch = 1
        self.batches: list[tuple[int, bytes]] = []
        """(last offset, bytes); empty bytes for a batch of the quorum's own."""
        self.error: KraftlogError | None = None

    @property
    def next_offset(self) -> int:
        return self.batches[-1][0] + 1 if self.batches else 0

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        if self.error is not None:
            raise self.error
        builder, base = BatchBuilder(), self.next_offset
        for value in values:
            builder.append(timestamp_ms, None, value)
        batch = builder.build(base_offset=base, leader_epoch=self.leader_epoch)
        self.batches.append((base + len(values) - 1, batch))


class Answer:
    """What a submitted operation got, if anything."""

    def __init__(self) -> None:
        self.is_done = False
        self.response: Any = None
        self.error: KraftlogError | None = None

    def __call__(self, response: Any, error: KraftlogError | None) -> None:
        assert not self.is_done, "completed twice"
        self.is_done, self.response, self.error = True, response, error


class Harness:
    """One node's controller and image, as `QuorumNode` puts them together."""

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        node_id: int = 100,
        log: MemoryLog | None = None,
        features: Mapping[str, Feature] = SUPPORTED_FEATURES,
    ) -> None:
        self.log = log or MemoryLog()
        self.unclean_elections: list[UncleanElection] = []
        self.controller = Controller(
            node_id=node_id,
            config=config or ControllerConfig(),
            random=random.Random(7),
            topic_configs=TOPIC_CONFIGS,
            broker_configs=BROKER_CONFIGS,
            supported_features=features,
            on_unclean_election=self.unclean_elections.append,
        )
        self.image: MetadataImage = EMPTY_IMAGE
        self.now_ms = 1000.0

    def lead(self, last_heard: Mapping[int, float] | None = None) -> "Harness":
        """Commit everything, write the leader change, become active. `last_heard`: from leaders before."""
        self.log.batches.append((self.log.next_offset, b""))
        self.commit()
        self.controller.activate(self.log, now_ms=self.now_ms, wall_ms=0, last_heard=last_heard or {})
        self.commit()
        return self

    def commit(self, through: int | None = None) -> None:
        """Tell the controller and the image that the log is committed (through an offset)."""
        for offset, batch in self.log.batches:
            if self.controller.committed_offset < offset <= (self.log.next_offset if through is None else through):
                records = decode_records(batch) if batch else []
                delta = MetadataDelta(self.image)
                for record in records:
                    delta.replay(record.record, record.offset)
                self.image = delta.apply(offset, self.log.leader_epoch)
                self.controller.commit(offset, records)

    def lose_leadership(self) -> None:
        """Uncommitted batches vanish, as if another leader had overwritten them."""
        self.log.batches = [b for b in self.log.batches if b[0] <= self.controller.committed_offset]
        self.controller.resign(NotControllerError("lost"))

    def submit(self, operation: Callable[[], Result[Any]]) -> Answer:
        answer = Answer()
        self.controller.submit(operation, answer, wall_ms=0)
        return answer

    def run(self, operation: Callable[[], Result[T]]) -> T:
        """Submit, commit, and the response; raises the error."""
        answer = self.submit(operation)
        self.commit()
        assert answer.is_done
        if answer.error is not None:
            raise answer.error
        response: T = answer.response
        return response

    # --- shortcuts ----------------------------------------------------------------------------------------------

    def register(self, node_id: int, *, incarnation: int = 1, rack: str = "", log_dirs: tuple[bytes, ...] = ()) -> int:
        registration = BrokerRegistration(
            node_id=node_id,
            incarnation_id=bytes([incarnation]) * 16,
            host="localhost",
            port=9092 + node_id,
            rack=rack,
            log_dirs=log_dirs,
        )
        return self.run(lambda: self.controller.register_broker(registration, now_ms=self.now_ms))

    def heartbeat(self, node_id: int, epoch: int, **wishes: bool) -> Any:
        options: dict[str, Any] = {"want_fence": False, "want_shut_down": False, **wishes}
        return self.run(
            lambda: self.controller.heartbeat(
                node_id, epoch, metadata_offset=self.image.offset, now_ms=self.now_ms, **options
            )
        )

    def live_broker(self, node_id: int, *, rack: str = "") -> int:
        epoch = self.register(node_id, rack=rack)
        self.heartbeat(node_id, epoch)
        return epoch

    def create(
        self, *topics: NewTopic, validate_only: bool = False, allow_internal: bool = False
    ) -> CreateTopicsResponse:
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return self.run(lambda: self.controller.create_topics(request, allow_internal=allow_internal))
