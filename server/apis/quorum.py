"""What request handlers need of the metadata quorum; `kraftlog.server.quorum.QuorumNode` has it."""

from typing import Protocol

from kraftlog.kraft.image import MetadataImage
from kraftlog.proto.admin_pb2 import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


class Quorum(Protocol):
    """Changes are answered when they are committed, by which time `image` shows them."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def metadata_leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    async def create_topics(
        self, request: CreateTopicsRequest, *, allow_internal: bool = False
    ) -> CreateTopicsResponse: ...

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse: ...

    async def allocate_producer_ids(self, node_id: int, broker_epoch: int, count: int = 1000) -> tuple[int, int]: ...
