from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ForwardRequest(_message.Message):
    __slots__ = ("method", "request", "internal")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    method: str
    request: bytes
    internal: bool
    def __init__(self, method: _Optional[str] = ..., request: _Optional[bytes] = ..., internal: bool = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("response", "metadata_offset")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    response: bytes
    metadata_offset: int
    def __init__(self, response: _Optional[bytes] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("node_id", "incarnation_id", "host", "port", "rack", "log_dirs", "listeners", "previous_broker_epoch", "features", "lost_replicas")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation_id: bytes
    host: str
    port: int
    rack: str
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    listeners: _containers.RepeatedCompositeFieldContainer[BrokerListener]
    previous_broker_epoch: int
    features: _containers.RepeatedCompositeFieldContainer[SupportedFeature]
    lost_replicas: _containers.RepeatedCompositeFieldContainer[LostReplica]
    def __init__(self, node_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., rack: _Optional[str] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., listeners: _Optional[_Iterable[_Union[BrokerListener, _Mapping]]] = ..., previous_broker_epoch: _Optional[int] = ..., features: _Optional[_Iterable[_Union[SupportedFeature, _Mapping]]] = ..., lost_replicas: _Optional[_Iterable[_Union[LostReplica, _Mapping]]] = ...) -> None: ...

class LostReplica(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class SupportedFeature(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class BrokerListener(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("broker_epoch",)
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    def __init__(self, broker_epoch: _Optional[int] = ...) -> None: ...

class BrokerHeartbeatRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "metadata_offset", "want_fence", "want_shut_down", "offline_log_dirs", "lost_replicas")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    LOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    lost_replicas: _containers.RepeatedCompositeFieldContainer[LostReplica]
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ..., lost_replicas: _Optional[_Iterable[_Union[LostReplica, _Mapping]]] = ...) -> None: ...

class BrokerHeartbeatResponse(_message.Message):
    __slots__ = ("is_fenced", "should_shut_down")
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    is_fenced: bool
    should_shut_down: bool
    def __init__(self, is_fenced: bool = ..., should_shut_down: bool = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "count", "request_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    count: int
    request_id: bytes
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., count: _Optional[int] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("first_id", "count")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first_id: int
    count: int
    def __init__(self, first_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "changes")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[InSyncChange]
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[InSyncChange, _Mapping]]] = ...) -> None: ...

class InSyncChange(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "partition_epoch", "in_sync_replicas", "flushed")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: _containers.RepeatedCompositeFieldContainer[InSyncReplica]
    flushed: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., in_sync_replicas: _Optional[_Iterable[_Union[InSyncReplica, _Mapping]]] = ..., flushed: bool = ...) -> None: ...

class InSyncReplica(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[InSyncAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[InSyncAnswer, _Mapping]]] = ...) -> None: ...

class InSyncAnswer(_message.Message):
    __slots__ = ("error_code", "error_message", "partition_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    partition_epoch: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., partition_epoch: _Optional[int] = ...) -> None: ...
