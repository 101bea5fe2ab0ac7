"""The clients' options as keyword arguments, for type checkers and editors.

The names are those of the configuration classes in `kraftlog.sdk.config`, which document and check them; a test holds the
two equal.
"""

import os
from collections.abc import Sequence
from typing import TypedDict

from kraftlog.sdk.config import Partitioner, Serializer


class ClientOptions(TypedDict, total=False):
    """Keyword options of every client; see `ClientConfig`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    security_protocol: str
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_check_hostname: bool


class ProducerOptions(ClientOptions, total=False):
    """Keyword options of the producers; see `ProducerConfig`."""

    acks: str | int
    enable_idempotence: bool | None
    linger_ms: int
    batch_size: int
    compression_type: str
    delivery_timeout_ms: int
    max_block_ms: int
    buffer_memory: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    partitioner: str | Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None


class ConsumerOptions(ClientOptions, total=False):
    """Keyword options of the consumers; see `ConsumerConfig`."""

    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    isolation_level: str
    partition_assignment_strategy: str | Sequence[str]
    group_protocol: str
    check_crcs: bool
    allow_auto_create_topics: bool


class AdminOptions(ClientOptions, total=False):
    """Keyword options of the admin clients; see `AdminConfig`."""
