"""Configuration of the clients: one frozen dataclass each, with Kafka's names and defaults unless a field says why not.

Keys may be given in snake case or with Kafka's dots (`linger.ms`); values as their type or as text. An unknown key is
an error that names the nearest known one, so that a typing mistake cannot silently fall back to a default.
"""

import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from kraftlog.proto.config import check_range, parse_bool, parse_int, reject_unknown, snake
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.names import validate_group_id
from kraftlog.proto.security import SecurityProtocol

DEFAULT_BOOTSTRAP = "localhost:9092"
MIB = 1024 * 1024
COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")
ASSIGNMENT_STRATEGIES = ("range", "roundrobin")
PARTITIONERS = ("murmur2", "sticky", "round_robin")

Serializer = Callable[[Any], bytes | None]
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""`(topic, key, value, partition_count) -> partition`. Called under the producer's lock: it must not block."""

C = TypeVar("C", bound="ClientConfig")

_JAVA_NAMES = (
    "ssl_truststore_location",
    "ssl_truststore_type",
    "ssl_keystore_location",
    "ssl_keystore_type",
    "ssl_endpoint_identification_algorithm",
)
"""What Kafka's Java clients call things that have other names here; see `_own_names`."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """What every client has."""

    bootstrap_servers: tuple[str, ...] = (DEFAULT_BOOTSTRAP,)
    """`host:port` of some brokers, as text with commas or a sequence; the rest of the cluster is found through them."""
    client_id: str = "kraftlog"
    """Shown in group descriptions and broker logs."""
    client_rack: str = ""
    """The client's rack: a consumer reads from replicas there, if they are in sync (KIP-392); empty: none."""
    request_timeout_ms: int = 30_000
    """Longest wait for the answer to one request. At least 1."""
    default_api_timeout_ms: int = 60_000
    """Longest wait of a call that has no time-out argument of its own, retries included. At least 1."""
    metadata_max_age_ms: int = 300_000
    """Cluster metadata older than this are fetched again even without an error. At least 1."""
    retry_backoff_ms: int = 100
    """Pause before the first retry; doubles up to retry_backoff_max_ms. At least 1."""
    retry_backoff_max_ms: int = 1_000
    """Longest pause between retries. At least retry_backoff_ms."""
    security_protocol: str = "PLAINTEXT"
    """`PLAINTEXT` or `SSL`: that of the listener that is dialled."""
    ssl_cafile: str | None = None
    """PEM file with the certificates of the authorities that brokers are checked with. None: the system's. Also taken as
    `ssl.truststore.location`."""
    ssl_certfile: str | None = None
    """PEM file with this client's certificate chain, for brokers that ask for it. None: none is shown. Also taken as
    `ssl.keystore.location`."""
    ssl_keyfile: str | None = None
    """PEM file with the private key of ssl_certfile, not encrypted. None: the key is in ssl_certfile too."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must be for the host name that is dialled. Without it, any that ssl_cafile accepts will
    do. Also taken as `ssl.endpoint.identification.algorithm` (`https` or empty)."""

    where: ClassVar[str] = "client"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", parse_servers(self.bootstrap_servers))
        for name in ("request_timeout_ms", "default_api_timeout_ms", "metadata_max_age_ms", "retry_backoff_ms"):
            check_range(name, getattr(self, name), minimum=1)
        self._check_security()
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise InvalidConfigError(
                f"retry_backoff_max_ms={self.retry_backoff_max_ms} is below retry_backoff_ms={self.retry_backoff_ms}"
            )

    @classmethod
    def has(cls, key: str) -> bool:
        """Whether the key, in any of its spellings, is one of this configuration."""
        return snake(key) in {*(field.name for field in fields(cls)), *_JAVA_NAMES}

    def _check_security(self) -> None:
        object.__setattr__(self, "security_protocol", str(self.security_protocol).upper())
        _one_of("security_protocol", self.security_protocol, tuple(SecurityProtocol))
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            path = getattr(self, name)
            if path is not None:
                object.__setattr__(self, name, os.fspath(path) or None)
                if self.security_protocol == SecurityProtocol.PLAINTEXT and path:
                    raise InvalidConfigError(
                        f"config {name} has no meaning without security_protocol=SSL: set that too"
                    )
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise InvalidConfigError("config ssl_keyfile needs ssl_certfile, the certificate that goes with the key")

    @classmethod
    def of(cls: type[C], config: Mapping[str, Any] | None = None, /, **options: Any) -> C:
        """Build from a mapping and keyword options (which win); both accept dotted keys and text values."""
        given = _own_names({snake(key): value for key, value in {**(config or {}), **options}.items()})
        names = [field.name for field in fields(cls)]
        reject_unknown(given, names, cls.where)
        hints = typing.get_type_hints(cls)
        return cls(**{key: _parsed(key, value, hints[key]) for key, value in given.items()})


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Configuration of `Producer` and `AsyncProducer`."""

    acks: str = "all"
    """`all`: the in-sync replicas have the record; `1`: the leader has it; `0`: one-way, promises nothing."""
    enable_idempotence: bool | None = None
    """No duplicates and no reordering by retries; needs acks=all. None: on with acks=all, else off."""
    linger_ms: int = 5
    """How long a batch waits for more records. 0: sent as soon as the connection takes it."""
    batch_size: int = 256 * 1024
    """Bytes of records (before compression) at which a batch is sent without waiting.

    Kafka's default is 16 KiB; a message costs about 0.5 ms of CPU here, so that larger batches pay.
    """
    compression_type: str = "none"
    """`none`, `gzip`, `snappy`, `lz4` or `zstd`. A topic's own compression.type wins."""
    delivery_timeout_ms: int = 120_000
    """From `send` to success or failure, all retries included. At least linger_ms + request_timeout_ms."""
    max_block_ms: int = 60_000
    """How long `send` waits for metadata or for buffer memory before it raises. 0: never waits."""
    buffer_memory: int = 32 * MIB
    """Bytes of records that are not acknowledged yet. At least batch_size and max_request_size."""
    max_request_size: int = 1 * MIB
    """Largest record in bytes, and the size at which a request takes no further batches."""
    max_in_flight_requests_per_connection: int = 5
    """Batches of one partition that may be under way at a time. 1 to 5 with idempotence: brokers remember five."""
    partitioner: str | Partitioner = "murmur2"
    """`murmur2`: by key hash as Kafka's clients do, sticky without a key; `sticky`; `round_robin`; or a callable."""
    key_serializer: Serializer | None = None
    """Turns keys into bytes. None: keys are bytes already."""
    value_serializer: Serializer | None = None
    """Turns values into bytes. None: values are bytes already."""

    where: ClassVar[str] = "producer"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "acks", _acks(self.acks))
        check_range("linger_ms", self.linger_ms, minimum=0)
        check_range("batch_size", self.batch_size, minimum=1)
        check_range("max_block_ms", self.max_block_ms, minimum=0)
        check_range("max_request_size", self.max_request_size, minimum=128, maximum=64 * MIB)
        check_range("buffer_memory", self.buffer_memory, minimum=max(self.batch_size, self.max_request_size))
        check_range("delivery_timeout_ms", self.delivery_timeout_ms, minimum=self.linger_ms + self.request_timeout_ms)
        _one_of("compression_type", self.compression_type, COMPRESSION_TYPES)
        if isinstance(self.partitioner, str):
            _one_of("partitioner", self.partitioner, PARTITIONERS)
        if self.enable_idempotence and self.acks != "all":
            raise InvalidConfigError(f"enable_idempotence=true needs acks=all, not acks={self.acks}")
        check_range(
            "max_in_flight_requests_per_connection",
            self.max_in_flight_requests_per_connection,
            minimum=1,
            maximum=5 if self.is_idempotent else 1_000_000,
        )

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "all" and self.enable_idempotence is not False

    @property
    def wire_acks(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Configuration of `Consumer` and `AsyncConsumer`."""

    group_id: str | None = None
    """The group whose partitions and committed offsets are shared. None: no group, nothing can be committed."""
    group_instance_id: str | None = None
    """Makes this a static member: a restart within the session time-out causes no rebalance. None: dynamic."""
    auto_offset_reset: str = "latest"
    """Where to start without a committed offset: `earliest`, `latest`, `none` (raise) or `by_duration:PT1H`."""
    enable_auto_commit: bool = True
    """Commit in the background what was handed back as done: the batches before the one in hand."""
    auto_commit_interval_ms: int = 5_000
    """Pause between automatic commits. At least 1."""
    fetch_min_bytes: int = 1
    """The broker answers when it has as much, or after fetch_max_wait_ms. At least 1."""
    fetch_max_wait_ms: int = 500
    """Longest wait of the broker for fetch_min_bytes. At least 0."""
    fetch_max_bytes: int = 50 * MIB
    """Bytes of records that may be buffered ahead of `poll`, over all partitions. At least max_partition_fetch_bytes."""
    max_partition_fetch_bytes: int = 1 * MIB
    """Bytes of one partition in one answer; a larger record batch still comes through. At least 1."""
    max_poll_records: int = 500
    """Most records that one `poll` returns. At least 1."""
    max_poll_interval_ms: int = 300_000
    """Longest pause between polls; after it the member leaves the group, since its work seems stuck. At least 1."""
    session_timeout_ms: int = 45_000
    """The coordinator removes a member that sent no heartbeat for so long. Above heartbeat_interval_ms."""
    heartbeat_interval_ms: int = 3_000
    """Pause between heartbeats, which are independent of `poll`. At least 1."""
    isolation_level: str = "read_committed"
    """`read_committed` (aborted and open transactions stay invisible) or `read_uncommitted`. Kafka's default differs."""
    partition_assignment_strategy: tuple[str, ...] = ("range", "roundrobin")
    """Assignors in order of preference; the group uses the first that all members have."""
    group_protocol: str = "classic"
    """Only `classic`: a leader member computes the assignment."""
    check_crcs: bool = True
    """Verify each batch's checksum."""
    allow_auto_create_topics: bool = False
    """Let the broker create a subscribed topic that does not exist. Kafka's default is true; ours keeps typos visible."""

    where: ClassVar[str] = "consumer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_id is not None:
            validate_group_id(self.group_id)
        _check_reset(self.auto_offset_reset)
        _one_of("isolation_level", self.isolation_level, ("read_committed", "read_uncommitted"))
        _one_of("group_protocol", self.group_protocol, ("classic",))
        strategies = self.partition_assignment_strategy
        names = tuple(strategies.split(",")) if isinstance(strategies, str) else tuple(strategies)
        object.__setattr__(self, "partition_assignment_strategy", tuple(name.strip() for name in names))
        for name in self.partition_assignment_strategy:
            _one_of("partition_assignment_strategy", name, ASSIGNMENT_STRATEGIES)
        if not self.partition_assignment_strategy:
            raise InvalidConfigError("partition_assignment_strategy is empty: name at least one assignor")
        for name in (
            "auto_commit_interval_ms",
            "fetch_min_bytes",
            "max_partition_fetch_bytes",
            "max_poll_records",
            "max_poll_interval_ms",
            "heartbeat_interval_ms",
        ):
            check_range(name, getattr(self, name), minimum=1)
        check_range("fetch_max_wait_ms", self.fetch_max_wait_ms, minimum=0)
        check_range("fetch_max_bytes", self.fetch_max_bytes, minimum=self.max_partition_fetch_bytes)
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            raise InvalidConfigError(
                f"session_timeout_ms={self.session_timeout_ms} must exceed "
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} (a third of it is usual)"
            )

    @property
    def is_read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Configuration of `Admin` and `AsyncAdmin`."""

    where: ClassVar[str] = "admin"


def _own_names(given: dict[str, Any]) -> dict[str, Any]:
    """Kafka's Java names of TLS options as ours. Raises `InvalidConfigError` for a store that is not PEM."""
    for java, own in (("ssl_truststore_location", "ssl_cafile"), ("ssl_keystore_location", "ssl_certfile")):
        if java in given:
            value = given.pop(java)
            if given.setdefault(own, value) != value:
                raise InvalidConfigError(f"config {java}={value!r} contradicts {own}={given[own]!r}: keep one")
    for java in ("ssl_truststore_type", "ssl_keystore_type"):
        _one_of(java, str(given.pop(java, "PEM")).upper(), ("PEM",))
    if "ssl_endpoint_identification_algorithm" in given:
        algorithm = str(given.pop("ssl_endpoint_identification_algorithm") or "")
        if algorithm:
            _one_of("ssl_endpoint_identification_algorithm", algorithm, ("https",))
        given.setdefault("ssl_check_hostname", bool(algorithm))
    return given


def parse_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """`"a:1, b:2"` or `["a:1", "b:2"]` as a tuple of `host:port`. Raises `InvalidConfigError`."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise InvalidConfigError(f"bootstrap_servers is empty: give host:port, for example {DEFAULT_BOOTSTRAP}")
    for address in addresses:
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise InvalidConfigError(
                f"bootstrap_servers: {address!r} is not host:port, for example {DEFAULT_BOOTSTRAP}"
            )
    return addresses


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of days, hours, minutes and seconds, such as `PT1H30M` or `P1D`."""
    import re

    match = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text)
    if match is None or not any(match.groups()):
        raise InvalidConfigError(f"{text!r} is not a duration such as PT1H, PT30M or P1D")
    days, hours, minutes, seconds = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    return int((whole + float(seconds or 0)) * 1000)


def _check_reset(value: str) -> None:
    kind, separator, duration = value.partition(":")
    if kind == "by_duration" and separator:
        duration_ms(duration)
        return
    _one_of("auto_offset_reset", value, ("earliest", "latest", "none", "by_duration:PT1H"))


def _acks(value: object) -> str:
    text = str(value)
    if text == "-1":
        text = "all"
    _one_of("acks", text, ("all", "1", "0"))
    return text


def _one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidConfigError(f"config {key}={value!r}: use one of {', '.join(allowed)}")


def _parsed(key: str, value: Any, hint: Any) -> Any:
    """Turn text into the field's type; leave all else to the dataclass, after a check of its type."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    if bool in options:
        if isinstance(value, str):
            return parse_bool(key, value)
        return _checked(key, value, bool)
    if int in options:
        if isinstance(value, str):
            return parse_int(key, value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return _checked(key, value, int)
    return value


def _checked(key: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise InvalidConfigError(f"config {key}={value!r} is a {type(value).__name__}, not a {kind.__name__}")
    return value
