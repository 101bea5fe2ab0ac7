"""What to do next about an error, by its code: for `kraftctl explain` and for the line that ends a failed command.

A full sentence each, in the imperative, with the command to run where there is one.
"""

from kraftlog.proto.errors import ErrorCode

NEXT_STEP: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Look into the node's log (node-*/server.log of a local cluster) and report a bug.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "See the valid offsets with `kraftctl topic describe TOPIC`; choose with `-o start`.",
    ErrorCode.CORRUPT_MESSAGE: "Check the files with `kraftctl log inspect DIR`; a client may have sent broken bytes.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "See what exists with `kraftctl topic list`; make it with `kraftctl topic create`.",
    ErrorCode.LEADER_NOT_AVAILABLE: "Wait a moment and retry; `kraftctl topic describe TOPIC` shows the leaders.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Retry: clients fetch fresh metadata by themselves.",
    ErrorCode.REQUEST_TIMED_OUT: "Check the cluster with `kraftctl cluster status`, then retry; the request may have taken effect.",
    ErrorCode.BROKER_NOT_AVAILABLE: "Start a local cluster with `kraftctl cluster bootstrap`, or name another with -b HOST:PORT.",
    ErrorCode.NETWORK_EXCEPTION: "Check the address (-b HOST:PORT) and `kraftctl cluster status`, then retry.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller records, or raise max.message.bytes of the topic and max_request_size of the producer.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "Lower batch_size of the producer below segment.bytes of the topic.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Retry: the coordinator is reading its log after a start.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Retry; if it lasts, check `kraftctl cluster status`.",
    ErrorCode.NOT_COORDINATOR: "Retry: clients look for the coordinator by themselves.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Choose 1 to 249 characters of a-z A-Z 0-9 . _ - and neither '.' nor '..'.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Bring brokers back, or lower min.insync.replicas of the topic; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Bring brokers back and retry; the record may be in the log already.",
    ErrorCode.INVALID_REQUIRED_ACKS: "Use acks 0, 1 or all.",
    ErrorCode.ILLEGAL_GENERATION: "Join the group again: a rebalance has passed this member by.",
    ErrorCode.INVALID_GROUP_ID: "Choose a group id of 1 to 249 printable characters.",
    ErrorCode.UNKNOWN_MEMBER_ID: "Join the group again: the member was removed, most often by max_poll_interval_ms or session_timeout_ms.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "Choose session_timeout_ms within the broker's group.min/max.session.timeout.ms.",
    ErrorCode.REBALANCE_IN_PROGRESS: "Poll again: the consumer rejoins by itself.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use the topic as it is (`kraftctl topic describe TOPIC`), or delete it first.",
    ErrorCode.INVALID_PARTITIONS: "Give 1 or more partitions.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Give a replication factor from 1 to the number of brokers (`kraftctl cluster status`).",
    ErrorCode.INVALID_CONFIG: "Correct the key or value; docs/configuration.md lists them all.",
    ErrorCode.NOT_CONTROLLER: "Retry; if it lasts, a majority of the controllers is missing: see `kraftctl cluster status`.",
    ErrorCode.INVALID_REQUEST: "Correct the request; if it came from a kraftlog client, report a bug.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "Close the producer, find out what was acknowledged, and start a new one.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Close this producer: a newer one has taken its place.",
    ErrorCode.PRODUCER_FENCED: "Close this producer: a newer one with the same transactional_id has taken its place.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Look at the disk and at the node's log; check the files with `kraftctl log inspect DIR`.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the group's members first (`kraftctl group describe GROUP`).",
    ErrorCode.GROUP_ID_NOT_FOUND: "See what exists with `kraftctl group list`.",
    ErrorCode.FENCED_LEADER_EPOCH: "Retry: clients fetch fresh metadata by themselves.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "Retry: the broker is behind and catches up.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Use none, gzip, snappy, lz4 or zstd, as the topic's compression.type asks.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "Retry: a new leader is confirming its end of the log.",
    ErrorCode.MEMBER_ID_REQUIRED: "Join again with the member id in the answer; kraftlog's consumer does so by itself.",
    ErrorCode.FENCED_INSTANCE_ID: "Give every running member its own group_instance_id.",
    ErrorCode.INVALID_RECORD: "Correct the record: a compacted topic needs keys, and timestamps must not be negative.",
    ErrorCode.INVALID_TIMESTAMP: "Correct the record's timestamp: milliseconds since 1970, not negative.",
    ErrorCode.UNSUPPORTED_VERSION: "Upgrade the older side; `kraftctl doctor` shows the client's version.",
    ErrorCode.DUPLICATE_VOTER: "See the voters with `kraftctl quorum describe`; a lost disk's vote goes with `quorum remove-voter`.",
    ErrorCode.VOTER_NOT_FOUND: "See who votes and who follows with `kraftctl quorum describe`.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "Give the right cluster id, or name another directory in log.dirs.",
    ErrorCode.BUFFER_EXHAUSTED: "Send more slowly, or raise buffer_memory or max_block_ms of the producer.",
    ErrorCode.CLIENT_CLOSED: "Make a new client: this one was closed.",
    ErrorCode.NO_OFFSET_FOR_PARTITION: "Set auto_offset_reset to earliest or latest, or seek before polling.",
    ErrorCode.DATA_LOSS: "Find out why the records are gone (retention, deletion); failOnDataLoss=false goes on without them.",
    ErrorCode.ILLEGAL_STATE: "Correct the order of calls: the message says what comes first.",
    ErrorCode.SSL_AUTHENTICATION_FAILED: "Correct security_protocol and the ssl_ options (-X, --command-config); see docs/tls.md.",
    ErrorCode.SERIALIZATION_FAILED: "Give bytes or str, or set key_serializer and value_serializer.",
}


def next_step(code: ErrorCode) -> str:
    """What to do about `code`; a general sentence where there is nothing special to say."""
    return NEXT_STEP.get(
        code, "Read the message; `kraftctl doctor` and `kraftctl cluster status` show the surroundings."
    )
