"""What an operation of the controller returns."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kraftlog.proto.metadata_pb2 import MetadataRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """`records` become one batch; `response` is given out when that batch is committed.

    Without records the response still waits until everything is committed that the decision was based on.
    """

    response: T
    records: list[MetadataRecord] = field(default_factory=list)
