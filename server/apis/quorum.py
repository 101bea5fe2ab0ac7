"""What request handlers need of the metadata quorum; `kraftlog.server.quorum.QuorumNode` has it."""

from typing import Protocol

from kraftlog.kraft.image import MetadataImage
from kraftlog.proto.admin_pb2 import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
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

    # With a `request_id`, a repeat gets the first answer and is not done again.

    async def create_topics(
        self, request: CreateTopicsRequest, *, allow_internal: bool = False, request_id: bytes | None = None
    ) -> CreateTopicsResponse: ...

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, request_id: bytes | None = None
    ) -> DeleteTopicsResponse: ...

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, request_id: bytes | None = None
    ) -> CreatePartitionsResponse: ...

    async def alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, request_id: bytes | None = None
    ) -> IncrementalAlterConfigsResponse: ...

    async def allocate_producer_ids(self, node_id: int, broker_epoch: int, count: int = 1000) -> tuple[int, int]: ...
