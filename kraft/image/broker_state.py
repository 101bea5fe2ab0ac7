"""What broker records mean. One place for the controller's state and the image, so that they cannot differ."""

from collections.abc import Iterable
from dataclasses import replace

from kraftlog.kraft.image.image import BrokerEndpoint, BrokerImage
from kraftlog.kraft.image.persistent import PersistentMap
from kraftlog.proto import metadata_pb2
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.metadata_pb2 import BrokerRegistrationChangeRecord, FeatureRange, RegisterBrokerRecord


def new_broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        node_id=record.node_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        host=record.host,
        port=record.port,
        rack=record.rack,
        is_fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        features=PersistentMap({f.name: (f.min_level, f.max_level) for f in record.features}),
        endpoints=tuple(BrokerEndpoint(each.listener, each.host, each.port) for each in record.endpoints),
    )


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """Inverse of `new_broker`."""
    return RegisterBrokerRecord(
        node_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        features=[
            FeatureRange(name=name, min_level=low, max_level=high) for name, (low, high) in broker.features.items()
        ],
        endpoints=endpoint_records(broker.endpoints),
    )


def endpoint_records(endpoints: Iterable[BrokerEndpoint]) -> list[metadata_pb2.BrokerEndpoint]:
    return [metadata_pb2.BrokerEndpoint(listener=each.listener, host=each.host, port=each.port) for each in endpoints]


def changed_broker(broker: BrokerImage | None, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    """Raises `IllegalStateError` for a broker that is not registered in this epoch."""
    if broker is None or broker.broker_epoch != record.broker_epoch:
        raise IllegalStateError(f"metadata changes broker {record.node_id} epoch {record.broker_epoch}, not known")
    return replace(
        broker,
        is_fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs.directories) if record.HasField("log_dirs") else broker.log_dirs,
    )
