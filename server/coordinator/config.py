"""Settings of the group coordinator, by Kafka's names."""

from dataclasses import dataclass, fields

from kraftlog.proto.errors import InvalidConfigError

MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How groups live. Every field is Kafka's broker config of the same name unless its text says otherwise."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 100
    """How long the first rebalance of an empty group waits for more members; each arrival starts it again, up to the
    rebalance timeout. 0: no wait.

    Kafka waits 3000 ms, which every newcomer meets as a consumer that shows nothing for three seconds. Members of one
    deployment arrive within some ten milliseconds of each other; one that comes later costs one more rebalance.
    """
    group_max_size: int = 1_000
    """Members of one group, pending ones included. Kafka has no limit; the leader's JoinGroup answer carries every
    member's subscription, and one record carries every assignment, so there is one in practice."""
    group_new_member_join_timeout_ms: int = 300_000
    """A new member whose JoinGroup waits longer is dropped: its client has given up (a constant in Kafka)."""
    max_groups_per_partition: int = 100_000
    """Groups that one partition of `__consumer_offsets` keeps; ours."""
    max_offsets_per_group: int = 100_000
    """Partitions that one group keeps offsets of; ours."""
    max_member_metadata_bytes: int = 262_144
    """Sum of one member's subscriptions over its protocols; ours."""
    max_protocols: int = 32
    """Protocols that one member may offer; ours."""
    offset_metadata_max_bytes: int = 4_096
    """Kafka's `offset.metadata.max.bytes`, counted in bytes of UTF-8."""
    offsets_retention_minutes: int = 10_080
    """Offsets of an empty group are kept so long after it became empty; of a group that never had members, so long
    after each commit."""
    offsets_retention_check_interval_ms: int = 600_000
    offsets_load_buffer_size: int = 131_072
    """Bytes that one step of loading reads and replays before other work gets its turn (Kafka: 5 MiB, in a thread)."""
    max_pending_batches_per_partition: int = 10_000
    """Batches of one partition that wait for their commit; more are refused. Ours."""
    load_retry_backoff_ms: int = 500
    """Pause before a partition that failed under us is loaded again; ours."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if not least <= value <= MAX_INT32:
                raise InvalidConfigError(f"{field.name}={value} is outside of {least} to {MAX_INT32}")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfigError(
                f"group_min_session_timeout_ms={self.group_min_session_timeout_ms} exceeds "
                f"group_max_session_timeout_ms={self.group_max_session_timeout_ms}"
            )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


_MAY_BE_ZERO = frozenset(
    {"group_initial_rebalance_delay_ms", "offset_metadata_max_bytes", "load_retry_backoff_ms"},
)
