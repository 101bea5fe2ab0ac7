"""Blocks of producer ids: each id is given out once in the life of the cluster."""

from typing import NamedTuple

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineInt
from kraftlog.proto.errors import IllegalStateError, InvalidRequestError
from kraftlog.proto.metadata_pb2 import MetadataRecord, ProducerIdsRecord

MAX_BLOCK = 1_000_000  # a broker asks for 1,000; more would only waste ids at a restart
MAX_PRODUCER_ID = (1 << 63) - 1


class ProducerIdBlock(NamedTuple):
    first_id: int
    id_count: int


class ProducerIdManager:
    """Used only by the controller."""

    def __init__(self, registry: SnapshotRegistry, brokers: BrokerManager) -> None:
        self._brokers = brokers
        self._next = TimelineInt(registry)

    @property
    def next_producer_id(self) -> int:
        return self._next.get()

    def allocate(self, node_id: int, broker_epoch: int, count: int) -> Result[ProducerIdBlock]:
        """Raises `StaleBrokerEpochError` or `BrokerIdNotRegisteredError` for a broker that is not this incarnation."""
        self._brokers.check_epoch(node_id, broker_epoch)
        if not 1 <= count <= MAX_BLOCK:
            raise InvalidRequestError(f"{count} producer ids were asked for, 1 to {MAX_BLOCK} may be")
        first = self._next.get()
        if first > MAX_PRODUCER_ID - count:
            raise IllegalStateError(f"all producer ids up to {MAX_PRODUCER_ID} are used")
        record = ProducerIdsRecord(node_id=node_id, broker_epoch=broker_epoch, next_producer_id=first + count)
        return Result(ProducerIdBlock(first, count), [MetadataRecord(producer_ids=record)])

    def replay(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next.get():
            raise IllegalStateError(
                f"the next producer id would go back from {self._next.get()} to {record.next_producer_id}"
            )
        self._next.set(record.next_producer_id)
