"""Being told about partitions that come and go."""

from collections.abc import Awaitable, Sequence

from kraftlog.sdk.types import TopicPartition


class ConsumerRebalanceListener:
    """Override what is of interest. Called inside of `poll`, so that the consumer may be used.

    With `AsyncConsumer` the methods may be coroutine functions. What a method raises comes out of `poll`.
    """

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Before partitions are given up: the last moment to commit their offsets."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """After partitions came, before the first of their records: the moment to `seek`."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are gone already, perhaps to others; commits would be refused. By default as revoked."""
        return self.on_partitions_revoked(lost)
