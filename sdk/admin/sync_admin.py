"""Administration for code that blocks."""

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.admin.async_admin import CLOSE_TIMEOUT_S, AsyncAdmin
from kraftlog.sdk.background import background_loop, register_client
from kraftlog.sdk.clock import SystemClock
from kraftlog.sdk.config import AdminConfig
from kraftlog.sdk.options import AdminOptions
from kraftlog.sdk.producer.async_producer import default_connector
from kraftlog.sdk.types import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDirDescription,
    NewTopic,
    PartitionReassignment,
    QuorumDescription,
    ReplicationThrottle,
    TopicDescription,
    TopicPartition,
)

T = TypeVar("T")


class Admin:
    """Administers a cluster. Safe from any thread. Options are those of `AdminConfig`.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic(name="orders", num_partitions=6)])

    The methods are those of `AsyncAdmin`, without await.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | AdminConfig | None = None,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        self.config = config if isinstance(config, AdminConfig) else AdminConfig.of(config, **options)
        self._parts = {
            "connector": connector or default_connector(self.config),
            "clock": clock or SystemClock(),
            "random": random,
        }
        self._is_closed = False
        self._set_up()
        register_client(self)

    def _set_up(self) -> None:
        parts: dict[str, Any] = self._parts
        self._pid = os.getpid()
        self._background = background_loop()
        self._admin = AsyncAdmin(self.config, **parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. May be repeated."""
        if self._pid == os.getpid() and not self._is_closed:
            self._is_closed = True
            self._background.run(self._admin.close, CLOSE_TIMEOUT_S)

    def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False) -> list[CreatedTopic]:
        """See `AsyncAdmin.create_topics`."""
        return self._run(lambda admin: admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Iterable[str]) -> None:
        """See `AsyncAdmin.delete_topics`."""
        self._run(lambda admin: admin.delete_topics(names))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """See `AsyncAdmin.create_partitions`."""
        self._run(lambda admin: admin.create_partitions(counts, assignments=assignments, validate_only=validate_only))

    def alter_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        all_brokers: bool = False,
        set: Mapping[str, object] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, object] | None = None,
        subtract: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        """See `AsyncAdmin.alter_configs`."""
        self._run(
            lambda admin: admin.alter_configs(
                topic,
                broker=broker,
                all_brokers=all_brokers,
                set=set,
                delete=delete,
                append=append,
                subtract=subtract,
                validate_only=validate_only,
            )
        )

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, validate_only: bool = False
    ) -> dict[TopicPartition, int]:
        """See `AsyncAdmin.delete_records`."""
        return self._run(lambda admin: admin.delete_records(before_offsets, validate_only=validate_only))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """See `AsyncAdmin.list_topics`."""
        return self._run(lambda admin: admin.list_topics(include_internal=include_internal))

    def describe_topics(
        self, names: Iterable[str] | None = None, *, allow_stale: bool = False
    ) -> list[TopicDescription]:
        """See `AsyncAdmin.describe_topics`."""
        return self._run(lambda admin: admin.describe_topics(names, allow_stale=allow_stale))

    def describe_configs(
        self, *, topic: str | None = None, broker: int | None = None, allow_stale: bool = False
    ) -> list[ConfigEntry]:
        """See `AsyncAdmin.describe_configs`."""
        return self._run(lambda admin: admin.describe_configs(topic=topic, broker=broker, allow_stale=allow_stale))

    def describe_cluster(self, *, allow_stale: bool = False) -> ClusterDescription:
        """See `AsyncAdmin.describe_cluster`."""
        return self._run(lambda admin: admin.describe_cluster(allow_stale=allow_stale))

    def unregister_broker(self, node_id: int) -> None:
        """See `AsyncAdmin.unregister_broker`."""
        self._run(lambda admin: admin.unregister_broker(node_id))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, int]:
        """See `AsyncAdmin.elect_leaders`."""
        return self._run(lambda admin: admin.elect_leaders(partitions, unclean=unclean))

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        validate_only: bool = False,
        keep_replication_factor: bool = False,
        throttle_bytes_per_second: int | None = None,
    ) -> None:
        """See `AsyncAdmin.alter_partition_reassignments`."""
        self._run(
            lambda admin: admin.alter_partition_reassignments(
                reassignments,
                validate_only=validate_only,
                keep_replication_factor=keep_replication_factor,
                throttle_bytes_per_second=throttle_bytes_per_second,
            )
        )

    def list_partition_reassignments(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """See `AsyncAdmin.list_partition_reassignments`."""
        return self._run(lambda admin: admin.list_partition_reassignments(topics))

    def describe_replication_throttle(self) -> ReplicationThrottle:
        """See `AsyncAdmin.describe_replication_throttle`."""
        return self._run(lambda admin: admin.describe_replication_throttle())

    def throttle_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int]], bytes_per_second: int, *, validate_only: bool = False
    ) -> ReplicationThrottle:
        """See `AsyncAdmin.throttle_reassignments`."""
        return self._run(
            lambda admin: admin.throttle_reassignments(moves, bytes_per_second, validate_only=validate_only)
        )

    def remove_replication_throttle(
        self, throttle: ReplicationThrottle | None = None, *, validate_only: bool = False
    ) -> ReplicationThrottle:
        """See `AsyncAdmin.remove_replication_throttle`."""
        return self._run(lambda admin: admin.remove_replication_throttle(throttle, validate_only=validate_only))

    def update_features(
        self, levels: Mapping[str, int], *, upgrade_type: str = "upgrade", validate_only: bool = False
    ) -> None:
        """See `AsyncAdmin.update_features`."""
        self._run(lambda admin: admin.update_features(levels, upgrade_type=upgrade_type, validate_only=validate_only))

    def describe_metadata_quorum(self, *, allow_stale: bool = False) -> QuorumDescription:
        """See `AsyncAdmin.describe_metadata_quorum`."""
        return self._run(lambda admin: admin.describe_metadata_quorum(allow_stale=allow_stale))

    def add_voter(self, node_id: int, directory_id: str | None = None) -> None:
        """See `AsyncAdmin.add_voter`."""
        self._run(lambda admin: admin.add_voter(node_id, directory_id))

    def remove_voter(self, node_id: int, directory_id: str | None = None) -> None:
        """See `AsyncAdmin.remove_voter`."""
        self._run(lambda admin: admin.remove_voter(node_id, directory_id))

    def transfer_quorum_leadership(self, node_id: int) -> int:
        """See `AsyncAdmin.transfer_quorum_leadership`."""
        return self._run(lambda admin: admin.transfer_quorum_leadership(node_id))

    def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, *, topics: Iterable[str] | None = None
    ) -> list[LogDirDescription]:
        """See `AsyncAdmin.describe_log_dirs`."""
        return self._run(lambda admin: admin.describe_log_dirs(nodes, topics=topics))

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: str | int = "latest",
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """See `AsyncAdmin.list_offsets`."""
        return self._run(lambda admin: admin.list_offsets(partitions, at, isolation_level=isolation_level))

    def list_groups(self) -> list[GroupListing]:
        """See `AsyncAdmin.list_groups`."""
        return self._run(lambda admin: admin.list_groups())

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """See `AsyncAdmin.describe_groups`."""
        return self._run(lambda admin: admin.describe_groups(group_ids))

    def list_group_offsets(self, group_id: str) -> list[GroupOffset]:
        """See `AsyncAdmin.list_group_offsets`."""
        return self._run(lambda admin: admin.list_group_offsets(group_id))

    def after_fork_in_child(self) -> None:
        """The next call sets up connections of the child's own."""

    def _run(self, call: Callable[[AsyncAdmin], Coroutine[Any, Any, T]]) -> T:
        if self._pid != os.getpid():
            self._set_up()
        return self._background.run(partial(call, self._admin))
