from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaFrames(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[ReplicaFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[ReplicaFrame, _Mapping]]] = ...) -> None: ...

class ReplicaFrame(_message.Message):
    __slots__ = ("hello", "hello_answer", "alive", "follow", "unfollow", "report", "credit", "records", "progress", "divergence", "refusal", "throttle")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    UNFOLLOW_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    hello: ReplicaHello
    hello_answer: ReplicaHelloAnswer
    alive: ReplicaAlive
    follow: ReplicaFollow
    unfollow: ReplicaUnfollow
    report: ReplicaReport
    credit: ReplicaCredit
    records: ReplicaRecords
    progress: ReplicaProgress
    divergence: ReplicaDivergence
    refusal: ReplicaRefusal
    throttle: ReplicaThrottle
    def __init__(self, hello: _Optional[_Union[ReplicaHello, _Mapping]] = ..., hello_answer: _Optional[_Union[ReplicaHelloAnswer, _Mapping]] = ..., alive: _Optional[_Union[ReplicaAlive, _Mapping]] = ..., follow: _Optional[_Union[ReplicaFollow, _Mapping]] = ..., unfollow: _Optional[_Union[ReplicaUnfollow, _Mapping]] = ..., report: _Optional[_Union[ReplicaReport, _Mapping]] = ..., credit: _Optional[_Union[ReplicaCredit, _Mapping]] = ..., records: _Optional[_Union[ReplicaRecords, _Mapping]] = ..., progress: _Optional[_Union[ReplicaProgress, _Mapping]] = ..., divergence: _Optional[_Union[ReplicaDivergence, _Mapping]] = ..., refusal: _Optional[_Union[ReplicaRefusal, _Mapping]] = ..., throttle: _Optional[_Union[ReplicaThrottle, _Mapping]] = ...) -> None: ...

class ReplicaHello(_message.Message):
    __slots__ = ("cluster_id", "node_id", "broker_epoch", "to_node_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    broker_epoch: int
    to_node_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., to_node_id: _Optional[int] = ...) -> None: ...

class ReplicaHelloAnswer(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ReplicaAlive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaFollow(_message.Message):
    __slots__ = ("follow_id", "topic_id", "partition", "leader_epoch", "log_end_offset", "last_epoch", "flushed_end_offset", "log_start_offset")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    topic_id: bytes
    partition: int
    leader_epoch: int
    log_end_offset: int
    last_epoch: int
    flushed_end_offset: int
    log_start_offset: int
    def __init__(self, follow_id: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class ReplicaUnfollow(_message.Message):
    __slots__ = ("follow_id",)
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    def __init__(self, follow_id: _Optional[int] = ...) -> None: ...

class ReplicaReport(_message.Message):
    __slots__ = ("follow_id", "log_end_offset", "flushed_end_offset", "log_start_offset")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    log_end_offset: int
    flushed_end_offset: int
    log_start_offset: int
    def __init__(self, follow_id: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class ReplicaCredit(_message.Message):
    __slots__ = ("bytes", "throttled_bytes")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    throttled_bytes: int
    def __init__(self, bytes: _Optional[int] = ..., throttled_bytes: _Optional[int] = ...) -> None: ...

class ReplicaThrottle(_message.Message):
    __slots__ = ("follow_id", "throttled")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    throttled: bool
    def __init__(self, follow_id: _Optional[int] = ..., throttled: bool = ...) -> None: ...

class ReplicaRecords(_message.Message):
    __slots__ = ("follow_id", "records", "high_watermark", "log_start_offset", "throttled")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    records: bytes
    high_watermark: int
    log_start_offset: int
    throttled: bool
    def __init__(self, follow_id: _Optional[int] = ..., records: _Optional[bytes] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., throttled: bool = ...) -> None: ...

class ReplicaProgress(_message.Message):
    __slots__ = ("follow_id", "high_watermark", "log_start_offset")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    high_watermark: int
    log_start_offset: int
    def __init__(self, follow_id: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class ReplicaDivergence(_message.Message):
    __slots__ = ("follow_id", "epoch", "end_offset")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    epoch: int
    end_offset: int
    def __init__(self, follow_id: _Optional[int] = ..., epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ReplicaRefusal(_message.Message):
    __slots__ = ("follow_id", "error_code", "error_message", "log_start_offset")
    FOLLOW_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    follow_id: int
    error_code: int
    error_message: str
    log_start_offset: int
    def __init__(self, follow_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., log_start_offset: _Optional[int] = ...) -> None: ...
