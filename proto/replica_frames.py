"""The messages of `replica.proto`, framed by hand (see `frames`): record batches are never copied.

Names, fields and defaults are those of `replica.proto`. A frame has exactly one of its fields set.
"""

from dataclasses import dataclass

from kraftlog.proto.frames import FrameCodec
from kraftlog.proto.framing import Buffer, Kind, Records, Schema

REPLICATE = "/kraftlog.v1.Replica/Replicate"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # a batch of the largest size that a topic may allow goes out alone
MAX_FRAMES = 20_000  # of one message; a follower of ten thousand partitions may say something of each


@dataclass(slots=True)
class ReplicaHello:
    cluster_id: str = ""
    node_id: int = 0
    broker_epoch: int = 0
    to_node_id: int = 0


@dataclass(slots=True)
class ReplicaHelloAnswer:
    node_id: int = 0
    broker_epoch: int = 0


@dataclass(slots=True)
class ReplicaAlive:
    pass


@dataclass(slots=True)
class ReplicaFollow:
    follow_id: int = 0
    topic_id: Buffer = b""
    partition: int = 0
    leader_epoch: int = 0
    log_end_offset: int = 0
    last_epoch: int = 0
    flushed_end_offset: int = 0
    log_start_offset: int = 0


@dataclass(slots=True)
class ReplicaUnfollow:
    follow_id: int = 0


@dataclass(slots=True)
class ReplicaReport:
    follow_id: int = 0
    log_end_offset: int = 0
    flushed_end_offset: int = 0
    log_start_offset: int = 0


@dataclass(slots=True)
class ReplicaCredit:
    bytes: int = 0
    throttled_bytes: int = 0


@dataclass(slots=True)
class ReplicaThrottle:
    follow_id: int = 0
    throttled: bool = False


@dataclass(slots=True)
class ReplicaRecords:
    follow_id: int = 0
    records: Records = b""
    high_watermark: int = 0
    log_start_offset: int = 0
    throttled: bool = False


@dataclass(slots=True)
class ReplicaProgress:
    follow_id: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0


@dataclass(slots=True)
class ReplicaDivergence:
    follow_id: int = 0
    epoch: int = 0
    end_offset: int = 0


@dataclass(slots=True)
class ReplicaRefusal:
    follow_id: int = 0
    error_code: int = 0
    error_message: str = ""
    log_start_offset: int = 0


ReplicaBody = (
    ReplicaHello
    | ReplicaHelloAnswer
    | ReplicaAlive
    | ReplicaFollow
    | ReplicaUnfollow
    | ReplicaReport
    | ReplicaCredit
    | ReplicaRecords
    | ReplicaProgress
    | ReplicaDivergence
    | ReplicaRefusal
    | ReplicaThrottle
)
"""What a frame holds."""


@dataclass(slots=True)
class ReplicaFrame:
    hello: ReplicaHello | None = None
    hello_answer: ReplicaHelloAnswer | None = None
    alive: ReplicaAlive | None = None
    follow: ReplicaFollow | None = None
    unfollow: ReplicaUnfollow | None = None
    report: ReplicaReport | None = None
    credit: ReplicaCredit | None = None
    records: ReplicaRecords | None = None
    progress: ReplicaProgress | None = None
    divergence: ReplicaDivergence | None = None
    refusal: ReplicaRefusal | None = None
    throttle: ReplicaThrottle | None = None


_FOLLOW_ID = (1, "follow_id", Kind.UINT64)
_INT64 = Kind.INT64
_SCHEMAS = (
    Schema(
        ReplicaHello,
        (1, "cluster_id", Kind.STRING),
        (2, "node_id", Kind.INT32),
        (3, "broker_epoch", _INT64),
        (4, "to_node_id", Kind.INT32),
    ),
    Schema(ReplicaHelloAnswer, (1, "node_id", Kind.INT32), (2, "broker_epoch", _INT64)),
    Schema(ReplicaAlive),
    Schema(
        ReplicaFollow,
        _FOLLOW_ID,
        (2, "topic_id", Kind.RECORDS),
        (3, "partition", Kind.UINT32),
        (4, "leader_epoch", Kind.INT32),
        (5, "log_end_offset", _INT64),
        (6, "last_epoch", Kind.SINT32),
        (7, "flushed_end_offset", _INT64),
        (8, "log_start_offset", _INT64),
    ),
    Schema(ReplicaUnfollow, _FOLLOW_ID),
    Schema(
        ReplicaReport,
        _FOLLOW_ID,
        (2, "log_end_offset", _INT64),
        (3, "flushed_end_offset", _INT64),
        (4, "log_start_offset", _INT64),
    ),
    Schema(ReplicaCredit, (1, "bytes", Kind.UINT64), (2, "throttled_bytes", Kind.UINT64)),
    Schema(
        ReplicaRecords,
        _FOLLOW_ID,
        (2, "records", Kind.RECORDS),
        (3, "high_watermark", _INT64),
        (4, "log_start_offset", _INT64),
        (5, "throttled", Kind.BOOL),
    ),
    Schema(ReplicaProgress, _FOLLOW_ID, (2, "high_watermark", _INT64), (3, "log_start_offset", _INT64)),
    Schema(ReplicaDivergence, _FOLLOW_ID, (2, "epoch", Kind.INT32), (3, "end_offset", _INT64)),
    Schema(
        ReplicaRefusal,
        _FOLLOW_ID,
        (2, "error_code", Kind.INT32),
        (3, "error_message", Kind.STRING),
        (4, "log_start_offset", _INT64),
    ),
    Schema(ReplicaThrottle, _FOLLOW_ID, (2, "throttled", Kind.BOOL)),
)
REPLICA_FRAMES: FrameCodec[ReplicaBody] = FrameCodec(
    ReplicaFrame, _SCHEMAS, max_message_bytes=MAX_MESSAGE_BYTES, max_frames=MAX_FRAMES
)
