"""Broker registrations: who is in the cluster, with which epoch, and who is fenced.

    (unknown) ──register──► fenced ──heartbeat, caught up──► unfenced ──session expired, or register again──► fenced
                                                                 └──controlled shutdown, nothing left to lead──► fenced

The broker epoch is the offset of the registration record: it grows with every registration, and requests that carry an
older one are refused (KIP-500). What these states mean for partitions is in `broker_life`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kraftlog.kraft.controller.config import MAX_FEATURES, MAX_LOSSES_PER_BATCH
from kraftlog.kraft.controller.features import supported_ranges
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.controller.sessions import BrokerSessions
from kraftlog.kraft.image import BrokerEndpoint, BrokerImage
from kraftlog.kraft.image.broker_state import changed_broker, endpoint_records, new_broker
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    IllegalStateError,
    InvalidRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
)
from kraftlog.proto.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    DirectoryList,
    FeatureRange,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftlog.proto.names import display

MAX_NODE_ID = (1 << 31) - 1
MAX_HOST_CHARACTERS = 255  # DNS
MAX_RACK_CHARACTERS = 249
MAX_LOG_DIRS = 1000
MAX_LISTENERS = 100
MAX_LISTENER_CHARACTERS = 249
MAX_FEATURE_CHARACTERS = 249
MAX_FEATURE_LEVEL = 32_767  # Kafka's field is an int16
ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """What a starting broker says of itself."""

    node_id: int
    incarnation_id: bytes
    """16 bytes, fresh at each start of the process."""
    host: str
    port: int
    rack: str = ""
    log_dirs: tuple[bytes, ...] = ()
    """Directory ids, 16 bytes each."""
    previous_broker_epoch: int | None = None
    """Epoch in which this broker last stopped in order, as its clean-shutdown marker says; -1: it has none, so the stop
    was unclean (KIP-966). None: the broker does not say, and is taken to have lost nothing."""
    lost_replicas: frozenset[tuple[bytes, int]] = frozenset()
    """(topic id, partition) of the replicas here of which the broker knows that records are gone: a damaged log, a
    missing one."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_ranges)
    """Feature -> lowest and highest level that it works with."""
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """One for each listener that serves clients; none: `host` and `port` serve all."""

    def check(self) -> None:
        """Raise `InvalidRegistrationError` unless every value is within its bounds."""
        if not 0 <= self.node_id <= MAX_NODE_ID:
            raise InvalidRegistrationError(f"node id {self.node_id} is not within 0..{MAX_NODE_ID}")
        if len(self.incarnation_id) != ID_BYTES:
            raise InvalidRegistrationError(
                f"broker {self.node_id}: the incarnation id has {len(self.incarnation_id)} bytes, not {ID_BYTES}"
            )
        self._check_address(self.host, self.port)
        self._check_endpoints()
        if len(self.rack) > MAX_RACK_CHARACTERS or not (self.rack.isprintable()):
            raise InvalidRegistrationError(f"broker {self.node_id}: rack {display(self.rack)} is not a rack name")
        if len(self.log_dirs) > MAX_LOG_DIRS or any(len(directory) != ID_BYTES for directory in self.log_dirs):
            raise InvalidRegistrationError(
                f"broker {self.node_id}: at most {MAX_LOG_DIRS} directory ids of {ID_BYTES} bytes are allowed"
            )
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise InvalidRegistrationError(f"broker {self.node_id}: a directory id is named twice")
        if len(self.lost_replicas) > MAX_LOSSES_PER_BATCH or any(
            len(topic_id) != ID_BYTES or not 0 <= number <= MAX_NODE_ID for topic_id, number in self.lost_replicas
        ):
            raise InvalidRegistrationError(
                f"broker {self.node_id}: {len(self.lost_replicas)} lost replicas: at most {MAX_LOSSES_PER_BATCH}, each by"
                f" a topic id of {ID_BYTES} bytes and a partition, are allowed; with more, unregister the broker first"
            )
        if len(self.features) > MAX_FEATURES or any(
            len(name) > MAX_FEATURE_CHARACTERS or not 0 <= low <= high <= MAX_FEATURE_LEVEL
            for name, (low, high) in self.features.items()
        ):
            raise InvalidRegistrationError(
                f"broker {self.node_id}: at most {MAX_FEATURES} ranges of feature levels within 0..{MAX_FEATURE_LEVEL}"
                " are allowed"
            )

    def _check_address(self, host: str, port: int) -> None:
        if not host or len(host) > MAX_HOST_CHARACTERS or not host.isprintable():
            raise InvalidRegistrationError(f"broker {self.node_id}: host {display(host)} is not a host name")
        if not 1 <= port <= 65535:
            raise InvalidRegistrationError(f"broker {self.node_id}: port {port} is not within 1..65535")

    def _check_endpoints(self) -> None:
        listeners = [endpoint.listener for endpoint in self.endpoints]
        if len(listeners) > MAX_LISTENERS or len(set(listeners)) != len(listeners):
            raise InvalidRegistrationError(
                f"broker {self.node_id}: {len(listeners)} listeners: at most {MAX_LISTENERS} with different names are allowed"
            )
        for endpoint in self.endpoints:
            name = endpoint.listener
            if not name or len(name) > MAX_LISTENER_CHARACTERS or not name.isprintable():
                raise InvalidRegistrationError(f"broker {self.node_id}: {display(name)} is not a listener name")
            self._check_address(endpoint.host, endpoint.port)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    is_fenced: bool
    should_shut_down: bool
    """The controlled shutdown is done: nothing is led by this broker that another one could lead."""


class BrokerManager:
    """Used only by the controller."""

    def __init__(self, registry: SnapshotRegistry, sessions: BrokerSessions) -> None:
        self._brokers: TimelineDict[int, BrokerImage] = TimelineDict(registry)
        self.sessions = sessions

    def broker(self, node_id: int) -> BrokerImage | None:
        return self._brokers.get(node_id)

    def all(self) -> list[BrokerImage]:
        return [self._brokers[node_id] for node_id in sorted(self._brokers)]

    def usable_racks(self) -> dict[int, str]:
        """Rack by id of the brokers that may get replicas and lead: not fenced, not about to stop."""
        return {b.node_id: b.rack for b in self.all() if not b.is_fenced and not b.in_controlled_shutdown}

    def check_epoch(self, node_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise BrokerIdNotRegisteredError(f"broker {node_id} is not registered: register first")
        if broker.broker_epoch != broker_epoch:
            raise StaleBrokerEpochError(
                f"broker {node_id} has epoch {broker.broker_epoch}, the request says {broker_epoch}:"
                " another process has registered with this node id"
            )
        return broker

    def check_registered(self, name: str) -> None:
        """Raise `InvalidRequestError` unless `name` is the id of a broker, `BrokerIdNotRegisteredError` if it is not
        registered."""
        if not name.isascii() or not name.isdecimal() or len(name) > 10:
            raise InvalidRequestError(f"broker {display(name)} is not a node id (empty: all brokers)")
        if int(name) not in self._brokers:
            raise BrokerIdNotRegisteredError(f"broker {name} is not registered")

    def register(self, registration: BrokerRegistration, next_offset: int, now_ms: float) -> Result[int]:
        """The response is the broker epoch. The record must be the first of its batch, at `next_offset`.

        The same incarnation may register again (a lost answer) and keeps its epoch. Another process is refused while
        the old one is alive, unless both name a common log directory: its lock proves that the old process is gone.
        """
        registration.check()
        node_id, existing, epoch = registration.node_id, self._brokers.get(registration.node_id), next_offset
        if existing is not None and existing.incarnation_id == registration.incarnation_id:
            epoch = existing.broker_epoch
        elif (
            existing is not None
            and self.sessions.is_alive(node_id, now_ms)
            and not set(existing.log_dirs) & set(registration.log_dirs)
        ):
            raise DuplicateBrokerRegistrationError(
                f"broker {node_id} is registered and alive at {existing.host}:{existing.port}:"
                " stop it, or give this node another node.id"
            )
        record = RegisterBrokerRecord(
            node_id=node_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            host=registration.host,
            port=registration.port,
            rack=registration.rack,
            fenced=True,
            log_dirs=registration.log_dirs,
            features=[
                FeatureRange(name=name, min_level=low, max_level=high)
                for name, (low, high) in sorted(registration.features.items())
            ],
            endpoints=endpoint_records(registration.endpoints),
        )
        self.sessions.end(node_id)  # a session starts with the first heartbeat
        return Result(epoch, [MetadataRecord(register_broker=record)])

    def unregister(self, node_id: int) -> Result[None]:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise BrokerIdNotRegisteredError(f"broker {node_id} is not registered")
        record = UnregisterBrokerRecord(node_id=node_id, broker_epoch=broker.broker_epoch)
        return Result(None, [MetadataRecord(unregister_broker=record)])

    @staticmethod
    def change(
        broker: BrokerImage,
        *,
        fenced: bool | None = None,
        in_controlled_shutdown: bool | None = None,
        log_dirs: Iterable[bytes] | None = None,
    ) -> MetadataRecord:
        """What is not given stays as it is."""
        record = BrokerRegistrationChangeRecord(
            node_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            fenced=broker.is_fenced if fenced is None else fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown if in_controlled_shutdown is None else in_controlled_shutdown
            ),
        )
        if log_dirs is not None:
            record.log_dirs.CopyFrom(DirectoryList(directories=log_dirs))
        return MetadataRecord(broker_registration_change=record)

    # --- replay -------------------------------------------------------------------------------------------------

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.node_id] = new_broker(record)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        broker = self._brokers.get(record.node_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise IllegalStateError(
                f"a record unregisters broker {record.node_id} epoch {record.broker_epoch}, not known"
            )
        del self._brokers[record.node_id]

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        self._brokers[record.node_id] = changed_broker(self._brokers.get(record.node_id), record)
