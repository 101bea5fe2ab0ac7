"""Broker registrations: who is in the cluster, with which epoch, and who is fenced.

    (unknown) ──register──► fenced ──heartbeat, caught up──► unfenced ──session expired, or register again──► fenced
                                                                 └──controlled shutdown, nothing left to lead──► fenced

The broker epoch is the offset of the registration record: it grows with every registration, and requests that carry an
older one are refused (KIP-500). Partition leadership follows from these states in `topics`.
"""

from dataclasses import dataclass

from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.controller.sessions import BrokerSessions
from kraftlog.kraft.image import BrokerImage
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    IllegalStateError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
)
from kraftlog.proto.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftlog.proto.names import display

MAX_NODE_ID = (1 << 31) - 1
MAX_HOST_CHARACTERS = 255  # DNS
MAX_RACK_CHARACTERS = 249
MAX_LOG_DIRS = 1000
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

    def check(self) -> None:
        """Raise `InvalidRegistrationError` unless every value is within its bounds."""
        if not 0 <= self.node_id <= MAX_NODE_ID:
            raise InvalidRegistrationError(f"node id {self.node_id} is not within 0..{MAX_NODE_ID}")
        if len(self.incarnation_id) != ID_BYTES:
            raise InvalidRegistrationError(
                f"broker {self.node_id}: the incarnation id has {len(self.incarnation_id)} bytes, not {ID_BYTES}"
            )
        if not self.host or len(self.host) > MAX_HOST_CHARACTERS or not self.host.isprintable():
            raise InvalidRegistrationError(f"broker {self.node_id}: host {display(self.host)} is not a host name")
        if not 1 <= self.port <= 65535:
            raise InvalidRegistrationError(f"broker {self.node_id}: port {self.port} is not within 1..65535")
        if len(self.rack) > MAX_RACK_CHARACTERS or not (self.rack.isprintable()):
            raise InvalidRegistrationError(f"broker {self.node_id}: rack {display(self.rack)} is not a rack name")
        if len(self.log_dirs) > MAX_LOG_DIRS or any(len(directory) != ID_BYTES for directory in self.log_dirs):
            raise InvalidRegistrationError(
                f"broker {self.node_id}: at most {MAX_LOG_DIRS} directory ids of {ID_BYTES} bytes are allowed"
            )
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise InvalidRegistrationError(f"broker {self.node_id}: a directory id is named twice")


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
    def change(broker: BrokerImage, *, fenced: bool, in_controlled_shutdown: bool) -> MetadataRecord:
        return MetadataRecord(
            broker_registration_change=BrokerRegistrationChangeRecord(
                node_id=broker.node_id,
                broker_epoch=broker.broker_epoch,
                fenced=fenced,
                in_controlled_shutdown=in_controlled_shutdown,
            )
        )

    # --- replay -------------------------------------------------------------------------------------------------

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.node_id] = BrokerImage(
            node_id=record.node_id,
            incarnation_id=record.incarnation_id,
            broker_epoch=record.broker_epoch,
            host=record.host,
            port=record.port,
            rack=record.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=False,
            log_dirs=tuple(record.log_dirs),
        )

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        del self._brokers[record.node_id]

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._brokers.get(record.node_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise IllegalStateError(f"a record changes broker {record.node_id} epoch {record.broker_epoch}, not known")
        self._brokers[record.node_id] = BrokerImage(
            node_id=broker.node_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=broker.log_dirs,
        )
