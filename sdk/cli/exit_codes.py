"""What kraftctl's exit code says. Documented in docs/cli.md; a promise to scripts, so codes are never renumbered."""

from enum import IntEnum

from kraftlog.proto.errors import ErrorCode, KraftlogError


class ExitCode(IntEnum):
    """The codes and their meaning."""

    OK = 0
    FAILED = 1
    """The operation failed for a reason that has no code of its own."""
    USAGE = 2
    """The command line is wrong: unknown verb, option or argument."""
    UNREACHABLE = 3
    """No answer from the cluster in time, or no cluster runs."""
    NOT_FOUND = 4
    """Topic, partition, group or file does not exist."""
    CONFLICT = 5
    """It exists already, or somebody else uses it: topic, port, log directory."""
    INVALID_INPUT = 6
    """A name, config, record or file is not valid."""
    DAMAGED = 7
    """Data on disk fails its checks."""
    INTERNAL = 70
    """A bug in kraftlog."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of standard output went away, as with `| head`."""


_BY_ERROR: dict[ErrorCode, ExitCode] = {
    ErrorCode.REQUEST_TIMED_OUT: ExitCode.UNREACHABLE,
    ErrorCode.BROKER_NOT_AVAILABLE: ExitCode.UNREACHABLE,
    ErrorCode.NETWORK_EXCEPTION: ExitCode.UNREACHABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: ExitCode.UNREACHABLE,
    ErrorCode.NOT_CONTROLLER: ExitCode.UNREACHABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ExitCode.UNREACHABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ExitCode.UNREACHABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: ExitCode.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.LOG_DIR_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.BROKER_ID_NOT_REGISTERED: ExitCode.NOT_FOUND,
    ErrorCode.VOTER_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: ExitCode.CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: ExitCode.CONFLICT,
    ErrorCode.DUPLICATE_RESOURCE: ExitCode.CONFLICT,
    ErrorCode.DUPLICATE_VOTER: ExitCode.CONFLICT,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: ExitCode.CONFLICT,
    ErrorCode.INCONSISTENT_CLUSTER_ID: ExitCode.CONFLICT,
    ErrorCode.INVALID_TOPIC_EXCEPTION: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_GROUP_ID: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_PARTITIONS: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_REPLICATION_FACTOR: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_CONFIG: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_REQUEST: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_RECORD: ExitCode.INVALID_INPUT,
    ErrorCode.INVALID_TIMESTAMP: ExitCode.INVALID_INPUT,
    ErrorCode.MESSAGE_TOO_LARGE: ExitCode.INVALID_INPUT,
    ErrorCode.RECORD_LIST_TOO_LARGE: ExitCode.INVALID_INPUT,
    ErrorCode.OFFSET_OUT_OF_RANGE: ExitCode.INVALID_INPUT,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ExitCode.INVALID_INPUT,
    ErrorCode.SERIALIZATION_FAILED: ExitCode.INVALID_INPUT,
    ErrorCode.CORRUPT_MESSAGE: ExitCode.DAMAGED,
    ErrorCode.KAFKA_STORAGE_ERROR: ExitCode.DAMAGED,
    ErrorCode.DATA_LOSS: ExitCode.DAMAGED,
}


def exit_code_of(error: KraftlogError) -> ExitCode:
    """The exit code for an error of the cluster or the client."""
    return _BY_ERROR.get(error.code, ExitCode.FAILED)
