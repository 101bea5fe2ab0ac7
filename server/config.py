"""The configuration of a node: Kafka's keys of `server.properties`, parsed and checked in one place.

`NodeConfig.from_properties` takes the strings of the file. Defaults of topic configs have broker-wide keys as in Kafka
(`log.retention.ms` for `retention.ms`); they are collected in `topic_defaults` under their topic names.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.logstore.config import validate_topic_configs
from kraftlog.logstore.open_segments import DEFAULT_MAX_OPEN_FILES
from kraftlog.proto.config import check_range, parse_bool, parse_int, reject_unknown
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.security import Password
from kraftlog.replication.cleaner import CleanerLimits
from kraftlog.server.listeners import (
    Listener,
    ListenerPlan,
    ProtocolMap,
    listener_name,
    parse_listener_names,
    parse_listeners,
    parse_optional_listener_name,
)

T = TypeVar("T")

MAX_INT = 2**31 - 1
MAX_NODE_ID = MAX_INT
LISTENER_PREFIX = "listener.name."
MIN_DEDUPE_BYTES = 1 << 20  # of one compaction thread, as in Kafka: with fewer keys, large logs take hundreds of passes

TOPIC_DEFAULT_KEYS: Mapping[str, str] = {
    "compression.type": "compression.type",
    "flush.policy": "flush.policy",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "validate.records": "validate.records",
}
"""Broker key -> the topic config whose default it sets."""

_COARSE_UNITS: Mapping[str, tuple[str, int]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "log.roll.hours": ("log.roll.ms", 3_600_000),
}
"""Kafka's coarser spellings; the key in milliseconds wins."""

_ALIASES: Mapping[str, str] = {"log.dir": "log.dirs", "broker.id": "node.id"}


def _setting(key: str, default: T, parse: Callable[[str, str], T]) -> T:
    """A dataclass field that is read from `key` by `parse(key, text)`."""
    return field(default=default, metadata={"key": key, "parse": parse})


def _integer(minimum: int, maximum: int = MAX_INT) -> Callable[[str, str], int]:
    return lambda key, text: parse_int(key, text, minimum=minimum, maximum=maximum)


def _positive_number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise InvalidConfigError(f"config {key}={text!r} is not a number above 0")
    return number


def _text(key: str, text: str) -> str:
    return text.strip()


def _names(key: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(key: str, text: str) -> str:
        value = text.strip()
        if value not in allowed:
            raise InvalidConfigError(f"config {key}={text!r}: use {' or '.join(word or 'nothing' for word in allowed)}")
        return value

    return parse


def _endpoints(key: str, text: str) -> tuple[Endpoint, ...]:
    """`host:port`, comma-separated."""
    try:
        return tuple(dict.fromkeys(Endpoint.parse(part) for part in _names(key, text)))
    except ValueError as error:
        raise InvalidConfigError(f"config {key}: {error}") from None


def _no_static_voters(key: str, text: str) -> str:
    if text.strip():
        raise InvalidConfigError(
            f"config {key} is not supported: name some controllers in controller.quorum.bootstrap.servers, and the first "
            "voters once, with kraftctl storage format --initial-controllers"
        )
    return ""


def _pem_type(key: str, text: str) -> str:
    """Only PEM: what gRPC takes."""
    if text.strip().upper() != "PEM":
        raise InvalidConfigError(
            f"config {key}={text!r}: only PEM is supported: convert the store, for example with "
            "openssl pkcs12 -in store.p12 -nodes -out store.pem"
        )
    return "PEM"


def _password(key: str, text: str) -> Password | None:
    return Password(text) if text.strip() else None


def _selector(key: str, text: str) -> str:
    return _one_of("RackAwareReplicaSelector", "LeaderSelector")(key, text.strip().rpartition(".")[2])


def _client_auth(key: str, text: str) -> str:
    if text.strip() == "requested":
        raise InvalidConfigError(
            f"config {key}=requested is not possible: gRPC asks for no certificate or demands one. Use required, and give "
            "clients without certificates a listener of their own"
        )
    return _one_of("none", "required")(key, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What one node is told. Each field names its key of `server.properties` and explains it below."""

    node_id: int = _setting("node.id", 1, _integer(0, MAX_NODE_ID))
    """This node's number, unique in the cluster; also its broker id."""

    cluster_id: str = _setting("cluster.id", "", _text)
    """The cluster that the log directory must belong to; empty: whichever it was formatted for."""

    process_roles: tuple[str, ...] = _setting("process.roles", ("broker", "controller"), _names)
    """`broker`, `controller` or both."""

    listeners: tuple[Listener, ...] = _setting(
        "listeners", (Listener("PLAINTEXT", "127.0.0.1", 9092),), parse_listeners
    )
    """Where the node listens: `NAME://host:port`, comma-separated. Host `0.0.0.0` or an empty one means every address; port 0
    the kernel's choice."""

    advertised_listeners: tuple[Listener, ...] = _setting("advertised.listeners", (), parse_listeners)
    """What clients and other nodes are told, by listener name; none: the listener's host (this machine's name for
    `0.0.0.0`) with the bound port. Port 0 here: the bound port."""

    listener_security_protocol_map: ProtocolMap = _setting(  # noqa: RUF009 (immutable)
        "listener.security.protocol.map", ProtocolMap(), ProtocolMap.parse
    )
    """`NAME:PLAINTEXT` or `NAME:SSL` for each listener name, comma-separated. The names PLAINTEXT and SSL need no entry."""

    controller_listener_names: tuple[str, ...] = _setting("controller.listener.names", (), parse_listener_names)
    """Names of the listeners that serve the quorum and no clients; the first one is dialled. Empty: the listener for
    brokers serves both."""

    inter_broker_listener_name: str = _setting("inter.broker.listener.name", "", parse_optional_listener_name)
    """The listener through which brokers reach each other; empty: the first one that serves clients."""

    ssl_keystore_type: str = _setting("ssl.keystore.type", "PEM", _pem_type)
    """Only PEM. This key and the other `ssl.` keys hold for every listener of protocol SSL;
    `listener.name.<name in lower case>.ssl.keystore.type` and so on set them for one."""

    ssl_keystore_location: str = _setting("ssl.keystore.location", "", _text)
    """A file with the private key and the certificate chain of this node."""

    ssl_keystore_key: Password | None = _setting("ssl.keystore.key", None, _password)  # noqa: RUF009 (immutable)
    """The private key itself (PKCS#8, not encrypted), instead of ssl.keystore.location."""

    ssl_keystore_certificate_chain: Password | None = _setting("ssl.keystore.certificate.chain", None, _password)  # noqa: RUF009 (immutable)
    """The certificate chain itself, the node's own certificate first; goes with ssl.keystore.key."""

    ssl_truststore_type: str = _setting("ssl.truststore.type", "PEM", _pem_type)
    """Only PEM."""

    ssl_truststore_location: str = _setting("ssl.truststore.location", "", _text)
    """A file with the certificates of the authorities that peers are checked with; empty: the system's, when this node
    connects to others."""

    ssl_truststore_certificates: Password | None = _setting("ssl.truststore.certificates", None, _password)  # noqa: RUF009 (immutable)
    """The certificates themselves, instead of ssl.truststore.location."""

    ssl_client_auth: str = _setting("ssl.client.auth", "none", _client_auth)
    """`required`: who connects must show a certificate that the truststore accepts; `none`: nobody is asked. Kafka's
    `requested` is not possible over gRPC."""

    ssl_endpoint_identification_algorithm: str = _setting(
        "ssl.endpoint.identification.algorithm", "https", _one_of("https", "")
    )
    """`https`: a node that this one connects to must have a certificate for the host name dialled; empty: any host name
    will do."""

    log_dirs: tuple[str, ...] = _setting("log.dirs", ("/tmp/kraftlog-logs",), _names)
    """The formatted directory that holds the logs. Exactly one."""

    controller_quorum_voters: str = _setting("controller.quorum.voters", "", _no_static_voters)
    """Must stay empty: the voters are in the metadata log (KIP-853). `kraftctl storage format` says who the first ones are."""

    controller_quorum_bootstrap_servers: tuple[Endpoint, ...] = _setting(
        "controller.quorum.bootstrap.servers", (), _endpoints
    )
    """`host:port` of some controllers, comma-separated, from which a node learns who leads and who votes. Empty: what the
    voters' records say; a node that is the only voter of its cluster needs none."""

    rack: str = _setting("broker.rack", "", _text)
    """Where the broker stands, for placement and for reads from the nearest replica; empty: unknown."""

    replica_selector_class: str = _setting("replica.selector.class", "RackAwareReplicaSelector", _selector)
    """`RackAwareReplicaSelector`: leaders send consumers with a `client.rack` to a replica in that rack that is in sync
    (KIP-392). `LeaderSelector`: everybody reads from leaders, which is Kafka's default. Java packages before the name are
    dropped."""

    num_partitions: int = _setting("num.partitions", 1, _integer(1))
    """Partitions of a topic that is created without a number."""

    default_replication_factor: int = _setting("default.replication.factor", -1, _integer(-1, 32767))
    """Replicas of a topic that is created without a number; -1: min(3, brokers)."""

    auto_create_topics_enable: bool = _setting("auto.create.topics.enable", False, parse_bool)
    """Whether a producer's first use of an unknown topic creates it (and a consumer's with
    `allow_auto_create_topics`). Kafka's default is true; a misspelt name then makes a topic, so ours is false."""

    offsets_topic_num_partitions: int = _setting("offsets.topic.num.partitions", 50, _integer(1))
    """Partitions of `__consumer_offsets`; must not change once it exists."""

    offsets_topic_replication_factor: int = _setting("offsets.topic.replication.factor", -1, _integer(-1, 32767))
    """Replicas of `__consumer_offsets`; -1: min(3, brokers), also when brokers join later."""

    offsets_topic_segment_bytes: int = _setting("offsets.topic.segment.bytes", 104_857_600, _integer(14))
    """Segment size of `__consumer_offsets`; small, because compaction works on closed segments."""

    offsets_retention_minutes: int = _setting("offsets.retention.minutes", 10_080, _integer(1))
    """How long committed offsets of an empty group live."""

    offsets_retention_check_interval_ms: int = _setting("offsets.retention.check.interval.ms", 600_000, _integer(1))
    """Time between looks for committed offsets to forget."""

    offset_metadata_max_bytes: int = _setting("offset.metadata.max.bytes", 4096, _integer(0))
    """Largest metadata string of a committed offset."""

    group_min_session_timeout_ms: int = _setting("group.min.session.timeout.ms", 6_000, _integer(1))
    """Shortest session timeout that a group member may ask for."""

    group_max_session_timeout_ms: int = _setting("group.max.session.timeout.ms", 1_800_000, _integer(1))
    """Longest session timeout that a group member may ask for."""

    group_initial_rebalance_delay_ms: int = _setting("group.initial.rebalance.delay.ms", 100, _integer(0))
    """How long an empty group waits for more members before its first rebalance. Kafka waits 3000 ms, which every
    newcomer meets as a consumer that shows nothing for three seconds."""

    group_max_size: int = _setting("group.max.size", 1_000, _integer(1))
    """Most members of one group."""

    replica_lag_time_max_ms: int = _setting("replica.lag.time.max.ms", 10_000, _integer(1))
    """A follower that is behind for longer leaves the in-sync replicas."""

    broker_heartbeat_interval_ms: int = _setting("broker.heartbeat.interval.ms", 500, _integer(1))
    """Time between heartbeats of a broker to the controller."""

    broker_session_timeout_ms: int = _setting("broker.session.timeout.ms", 3_000, _integer(1))
    """A broker without heartbeats for longer is fenced."""

    auto_leader_rebalance_enable: bool = _setting("auto.leader.rebalance.enable", True, parse_bool)
    """Whether the controller gives leadership back to preferred leaders (the first replica) by itself."""

    leader_imbalance_check_interval_seconds: int = _setting("leader.imbalance.check.interval.seconds", 300, _integer(1))
    """Time between looks for leadership to give back."""

    leader_imbalance_per_broker_percentage: int = _setting(
        "leader.imbalance.per.broker.percentage", 10, _integer(0, 100)
    )
    """A broker gets leadership back when more than this share of the partitions that prefer it has another leader."""

    metadata_log_max_record_bytes_between_snapshots: int = _setting(
        "metadata.log.max.record.bytes.between.snapshots", 20_971_520, _integer(1)
    )
    """Bytes of the metadata log after which a node takes a snapshot, from which it starts the next time."""

    metadata_log_max_snapshot_interval_ms: int = _setting(
        "metadata.log.max.snapshot.interval.ms", 3_600_000, _integer(0)
    )
    """Time after the last snapshot at which the next one is taken, if there is anything new; 0: never."""

    controller_quorum_election_timeout_ms: int = _setting("controller.quorum.election.timeout.ms", 1_000, _integer(10))
    """A voter that hears no leader for this long (plus jitter) stands for election; a leader that hears no majority for
    this long steps down."""

    controller_quorum_fetch_timeout_ms: int = _setting("controller.quorum.fetch.timeout.ms", 2_000, _integer(1))
    """A node without a vote that hears no leader for this long looks for another; a connection that is silent for this long
    is given up."""

    controller_quorum_request_timeout_ms: int = _setting("controller.quorum.request.timeout.ms", 2_000, _integer(1))
    """How long a broker waits for the controller's answer, and a read for the leader's confirmation."""

    fetch_max_bytes: int = _setting("fetch.max.bytes", 4 << 20, _integer(1024))
    """Largest fetch message, unless a single batch is larger. A client that asks for more gets several messages, so
    that one reader never holds more of the node's memory; Kafka allows 55 MiB."""

    background_threads: int = _setting("background.threads", 4, _integer(1, 256))
    """Threads for blocking work: fsync, validation of large batches, recovery."""

    num_recovery_threads_per_data_dir: int = _setting("num.recovery.threads.per.data.dir", 2, _integer(1, 256))
    """Threads that load the logs at the start, recovering them if need be, and close them at the end."""

    log_max_open_files: int = _setting("log.max.open.files", DEFAULT_MAX_OPEN_FILES, _integer(1))
    """Segment files that the node keeps open, but for those that wait for a flush; at most half of what the process may
    open. Kafka keeps every segment open that was ever read."""

    shutdown_grace_ms: int = _setting("controlled.shutdown.max.wait.ms", 5_000, _integer(0))
    """How long a stop waits for running requests before it drops them."""

    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        "replica.high.watermark.checkpoint.interval.ms", 5_000, _integer(1)
    )
    """Time between writes of `replication-offset-checkpoint`."""

    log_flush_offset_checkpoint_interval_ms: int = _setting(
        "log.flush.offset.checkpoint.interval.ms", 1_000, _integer(1)
    )
    """Time between writes of `recovery-point-offset-checkpoint`, when something was flushed: after an unclean stop, logs
    are checked from there. Kafka's default is 60000; here the file also says up to where missing records are damage."""

    log_retention_check_interval_ms: int = _setting("log.retention.check.interval.ms", 300_000, _integer(1))
    """Time between looks at all logs for segments to delete (retention.ms, retention.bytes, deleted records) and idle ones
    to roll (segment.ms)."""

    log_cleaner_enable: bool = _setting("log.cleaner.enable", True, parse_bool)
    """Whether topics with cleanup.policy=compact are compacted. Without it `__consumer_offsets` grows for ever."""

    log_cleaner_threads: int = _setting("log.cleaner.threads", 1, _integer(1, 64))
    """Logs that are compacted at the same time."""

    log_cleaner_dedupe_buffer_size: int = _setting(
        "log.cleaner.dedupe.buffer.size", 134_217_728, _integer(MIN_DEDUPE_BYTES)
    )
    """Bytes for the offset maps of all compaction threads together, 1 MiB or more for each; a key takes 27. A log with more new keys than fit is
    compacted in several passes."""

    log_cleaner_io_max_bytes_per_second: float = _setting(
        "log.cleaner.io.max.bytes.per.second", math.inf, _positive_number
    )
    """What compaction reads and writes in a second, at most."""

    log_cleaner_backoff_ms: int = _setting("log.cleaner.backoff.ms", 15_000, _integer(1))
    """Time between looks for something to compact, while there is nothing."""

    producer_id_expiration_ms: int = _setting("producer.id.expiration.ms", 86_400_000, _integer(1))
    """A partition forgets a producer that it has not heard of for so long, by this process's clock, and then takes a
    repeated batch of it for a new one."""

    producer_id_expiration_check_interval_ms: int = _setting(
        "producer.id.expiration.check.interval.ms", 600_000, _integer(1)
    )
    """Time between looks for producers to forget."""

    listener_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """`ssl.` keys of single listeners by listener name, as text. No key of its own: see LISTENER_PREFIX."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Defaults of topic configs that this file sets, by topic config name. No key of its own: see TOPIC_DEFAULT_KEYS."""

    def __post_init__(self) -> None:
        validate_topic_configs(self.topic_defaults)
        roles = set(self.process_roles)
        if not roles or roles - {"broker", "controller"}:
            raise InvalidConfigError(
                f"config process.roles={','.join(self.process_roles)!r}: use broker, controller or broker,controller"
            )
        self._check_listeners()
        self._check_quorum()
        if len(self.log_dirs) != 1:
            raise InvalidConfigError(f"config log.dirs names {len(self.log_dirs)} directories: name one")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfigError(
                f"config group.min.session.timeout.ms={self.group_min_session_timeout_ms} exceeds "
                f"group.max.session.timeout.ms={self.group_max_session_timeout_ms}"
            )
        if self.cleaner_limits.map_bytes < MIN_DEDUPE_BYTES:
            raise InvalidConfigError(
                f"config log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size} is less than "
                f"{MIN_DEDUPE_BYTES} bytes for each of log.cleaner.threads={self.log_cleaner_threads}"
            )
        for key, factor in (
            ("default.replication.factor", self.default_replication_factor),
            ("offsets.topic.replication.factor", self.offsets_topic_replication_factor),
        ):
            if factor == 0:
                raise InvalidConfigError(f"config {key}=0: use 1 or more, or -1 for min(3, brokers)")

    def _check_quorum(self) -> None:
        if not self.is_controller and not self.controller_quorum_bootstrap_servers:
            raise InvalidConfigError(
                "config controller.quorum.bootstrap.servers is empty: a node with process.roles=broker has to be told where "
                "a controller is"
            )
        if 2 * self.controller_quorum_fetch_timeout_ms <= self.controller_quorum_election_timeout_ms:
            raise InvalidConfigError(
                f"config controller.quorum.fetch.timeout.ms={self.controller_quorum_fetch_timeout_ms} must be above half of "
                f"controller.quorum.election.timeout.ms={self.controller_quorum_election_timeout_ms}"
            )

    def _check_listeners(self) -> None:
        plan = self.listener_plan
        names = dict.fromkeys((*(listener.name for listener in plan.listeners), *plan.controller_names))
        for name, own in self.listener_configs.items():
            if name not in names:
                raise InvalidConfigError(
                    f"config {self.key_at(name, next(iter(own)))}: there is no listener {name}, only {', '.join(names)}"
                )
            self.at_listener(name)

    def at_listener(self, name: str) -> "NodeConfig":
        """This configuration with the `ssl.` keys as they hold for the listener `name`."""
        settings = {setting.metadata["key"]: setting for setting in dataclasses.fields(self) if setting.metadata}
        own = self.listener_configs.get(name, {})
        values = {
            settings[key].name: settings[key].metadata["parse"](self.key_at(name, key), text)
            for key, text in own.items()
        }
        return dataclasses.replace(self, **values, listener_configs={})

    def key_at(self, name: str, key: str) -> str:
        """The key that decides at the listener `name`: `key` itself, or the listener's own."""
        return f"{LISTENER_PREFIX}{name.lower()}.{key}" if key in self.listener_configs.get(name, {}) else key

    @property
    def listener_plan(self) -> ListenerPlan:
        """Which listeners serve whom. Raises `InvalidConfigError` for keys that do not fit together."""
        return ListenerPlan(
            listeners=self.listeners,
            advertised=self.advertised_listeners,
            protocol_map=self.listener_security_protocol_map,
            controller_names=self.controller_listener_names,
            inter_broker_name=self.inter_broker_listener_name,
            is_broker=self.is_broker,
            is_controller=self.is_controller,
        )

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether the node may vote in the metadata quorum, and serves other nodes that ask the controller."""
        return "controller" in self.process_roles

    @property
    def cleaner_limits(self) -> CleanerLimits:
        """Of one compaction thread."""
        return CleanerLimits(
            self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads, self.log_cleaner_io_max_bytes_per_second
        )

    @property
    def log_dir(self) -> str:
        """The only log directory."""
        return self.log_dirs[0]

    def described(self) -> dict[str, tuple[str, bool]]:
        """Key -> (value as it would stand in the file, whether it differs from the default)."""
        found: dict[str, tuple[str, bool]] = {}
        for setting in dataclasses.fields(self):
            if setting.metadata:
                value = getattr(self, setting.name)
                found[setting.metadata["key"]] = (_written(value), value != setting.default)
        for name, own in self.listener_configs.items():
            described = self.at_listener(name).described()
            found |= {self.key_at(name, key): (described[key][0], True) for key in own}
        for key, topic_key in TOPIC_DEFAULT_KEYS.items():
            if topic_key in self.topic_defaults:
                found[key] = (self.topic_defaults[topic_key], True)
        return found

    @classmethod
    def from_properties(cls, pairs: Mapping[str, str]) -> "NodeConfig":
        """Parse the strings of `server.properties`. Raises `InvalidConfigError` for an unknown key or a bad value."""
        settings = {setting.metadata["key"]: setting for setting in dataclasses.fields(cls) if setting.metadata}
        listener_configs = _listener_configs(pairs)
        pairs = {key: value for key, value in pairs.items() if not key.startswith(LISTENER_PREFIX)}
        reject_unknown(pairs, [*settings, *TOPIC_DEFAULT_KEYS, *_COARSE_UNITS, *_ALIASES], "node configuration")
        resolved = _resolve(pairs)
        values = {
            setting.name: setting.metadata["parse"](key, resolved[key])
            for key, setting in settings.items()
            if key in resolved
        }
        defaults = {topic: resolved[key].strip() for key, topic in TOPIC_DEFAULT_KEYS.items() if key in resolved}
        return cls(**values, topic_defaults=defaults, listener_configs=listener_configs)


def _listener_configs(pairs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The `listener.name.<name>.ssl.` keys by listener name. Raises `InvalidConfigError` for a key that is none."""
    settings = dataclasses.fields(NodeConfig)
    known = [s.metadata["key"] for s in settings if s.metadata and s.metadata["key"].startswith("ssl.")]
    found: dict[str, dict[str, str]] = {}
    for key, text in pairs.items():
        if key.startswith(LISTENER_PREFIX):
            name, _, own = key.removeprefix(LISTENER_PREFIX).partition(".")
            reject_unknown([key], [f"{LISTENER_PREFIX}{name}.{each}" for each in known], "node configuration")
            found.setdefault(listener_name(key, name), {})[own] = text
    return found


def _written(value: object) -> str:
    """A setting's value in the words of `server.properties`."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _resolve(pairs: Mapping[str, str]) -> dict[str, str]:
    """Aliases and coarse units replaced by the keys that are read."""
    resolved = dict(pairs)
    for alias, key in _ALIASES.items():
        if alias in resolved:
            value = resolved.pop(alias)
            if resolved.setdefault(key, value) != value:
                raise InvalidConfigError(f"config {alias}={value!r} contradicts {key}={resolved[key]!r}: keep one")
    for coarse, (key, factor) in _COARSE_UNITS.items():
        if coarse in resolved:
            number = check_range(coarse, parse_int(coarse, resolved.pop(coarse)), minimum=-1)
            resolved.setdefault(key, str(number * factor if number >= 0 else -1))
    return resolved
